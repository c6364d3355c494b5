"""Whether transformers splits texts as the tokenizer.json of a model says.

For some types of models it takes the vocabulary of that file alone, and rules of its own.
"""

from __future__ import annotations

from pathlib import Path

from fillerscope.files import parse_json, read_limited
from fillerscope.prompts.tokenizer import Tokenizer, encode

FILE = "tokenizer.json"
_AS_IN_FILE = ("TokenizersBackend", "PreTrainedTokenizerFast")  # classes with no rules of their own
_STAGES = ("normalizer", "pre_tokenizer")
_SAMPLES = (
    "What is 17 + 25?\n\nIt's 3.14159, isn't it?  12,345 / 678",
    " / / / /// he he camelCase HTTPServer\tx^2 = {y}\r\n",
    "e\u0301\u00e9 \u4e00\u4e8c\u4e09 \uff11\uff12 \u0661\u0662 \U0001f600\U0001f600 na\u00efve",
)


def other_splits(tokenizer: Tokenizer, folder: Path) -> str:
    """What to say of a tokenizer that splits texts otherwise than its file says; empty where it does not."""
    backend, path = getattr(tokenizer, "backend_tokenizer", None), folder / FILE
    if backend is None or type(tokenizer).__name__ in _AS_IN_FILE or not path.exists():
        return ""
    rules = parse_json(read_limited(path))
    stages = {stage: getattr(backend, stage) for stage in _STAGES}
    if all(rules.get(stage) == (part and parse_json(part.__getstate__())) for stage, part in stages.items()):
        return ""
    from tokenizers import Tokenizer as FileTokenizer

    of_file = FileTokenizer.from_file(str(path))
    for sample in _SAMPLES:
        own, wanted = encode(tokenizer, sample), of_file.encode(sample, add_special_tokens=False).ids
        if own != wanted:
            return (
                f"transformers splits texts by rules of its {type(tokenizer).__name__}, and not of {FILE} (a sample "
                f"text has {len(own)} tokens, {len(wanted)} by the file); what the model was trained on cannot be told"
            )
    return ""
