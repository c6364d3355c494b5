"""The part of transformers' tokenizers that fillerscope uses, as a protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from fillerscope.display import first_line
from fillerscope.errors import PromptError
from fillerscope.study.arguments import is_text


class Tokenizer(Protocol):
    """A tokenizer of the model that is measured, as `AutoTokenizer` gives one."""

    chat_template: str | dict[str, str] | None  # several by name
    bos_token: str | None
    bos_token_id: int | None
    eos_token_id: int | None

    @property
    def all_special_tokens(self) -> list[str]: ...
    @property
    def all_special_ids(self) -> list[int]: ...
    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]: ...

    def __hash__(self) -> int: ...
    def __call__(self, text: str, **options: bool) -> Mapping[str, list[int]]: ...
    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...
    def decode(self, ids: Sequence[int] | int, **options: bool) -> str: ...
    def apply_chat_template(self, messages: Sequence[Mapping[str, str]], **options: object) -> Any: ...
    def convert_ids_to_tokens(self, ids: Any) -> Any: ...
    def get_vocab(self) -> dict[str, int]: ...
    def save_pretrained(self, folder: str | Path) -> object: ...


def encode(tokenizer: Tokenizer, text: str, add_special_tokens: bool = False) -> list[int]:
    """The ids of a text. A PromptError where the text holds halves of characters, or where the tokenizer fails: its
    settings may be of any type, and it panics on a pattern that tries for ever."""
    if not is_text(text):
        raise PromptError(
            f"{text[:40]!r} holds lone surrogates, halves of characters: no tokenizer takes them; mend it"
        )
    with _failing_on(text):
        return list(tokenizer.encode(text, add_special_tokens=add_special_tokens))


def decode(tokenizer: Tokenizer, ids: Sequence[int], skip_special_tokens: bool = False, **options: bool) -> str:
    """The text of ids. A PromptError where the tokenizer fails."""
    with _failing_on(ids):
        return str(tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens, **options))


@contextmanager
def _failing_on(given: str | Sequence[int]) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        shown = f"{given[:40]!r}" if isinstance(given, str) else f"tokens {', '.join(map(str, given[:8]))}"
        raise PromptError(
            f"the tokenizer fails on {shown}: {first_line(error)}; use the tokenizer of another model"
        ) from error


def refuse_beyond(texts: Iterable[Sequence[int]], vocabulary: int) -> None:
    """Raise for a token that the model has no embedding for: tokens were added, and its embedding did not grow."""
    largest = max((token for ids in texts for token in ids), default=0)
    if largest >= vocabulary:
        raise PromptError(
            f"the tokenizer gives token {largest}, and the model has embeddings for {vocabulary} (0 to "
            f"{vocabulary - 1}); use the model's own tokenizer, or call model.resize_token_embeddings"
        )


def is_panic(error: BaseException) -> bool:
    """Whether an error is a panic of a library in Rust, which is no Exception."""
    return type(error).__name__ == "PanicException"
