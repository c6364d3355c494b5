"""A prompt as it will be sent, with the filler marked."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from fillerscope.files import Json
from fillerscope.prompts.prompt import Prompt
from fillerscope.prompts.tokenizer import Tokenizer, decode
from fillerscope.study.conditions import Condition


@dataclass(frozen=True)
class PromptPreview:
    """The text of a prompt in three parts: before the filler, the filler, and after it."""

    condition: str
    tokens: int
    filler_tokens: int
    before: str
    filler: str
    after: str

    @classmethod
    def of(cls, condition: Condition, prompt: Prompt, tokenizer: Tokenizer) -> PromptPreview:
        start, stop = prompt.filler
        parts = (prompt.ids[:start], prompt.ids[start:stop], prompt.ids[stop:])
        before, filler, after = (_text(tokenizer, ids) for ids in parts)
        return cls(condition.name, len(prompt), stop - start, before, filler, after)

    def around(self, reach: int) -> PromptPreview:
        """The same with no more than so many characters on either side of the filler."""
        before = self.before if len(self.before) <= reach else f"...{self.before[-reach:]}"
        after = self.after if len(self.after) <= reach else f"{self.after[:reach]}..."
        return replace(self, before=before, after=after)

    def record(self) -> Json:
        """The same for programs."""
        return asdict(self)


def _text(tokenizer: Tokenizer, ids: tuple[int, ...]) -> str:
    return decode(tokenizer, ids) if ids else ""
