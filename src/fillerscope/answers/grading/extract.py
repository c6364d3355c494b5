r"""Which part of a free text is its answer.

The first of these that a text holds:

1. the last complete and non-empty `\boxed{...}` or `\fbox{...}`; of nested boxes the innermost; of boxes with
   nothing but a comma, "and" or "or" between them, all;
2. what follows the last phrase of ANNOUNCING or ANSWER ("the answer is 12", "Answer: x + 1", "答案是12"; "#### 42",
   where it is all there is on the line: otherwise that is a heading);
3. the last sentence that opens with a word of CONCLUDING, or says what a SUMMARY is ("So she has 12 left.",
   "The total is 12."): what follows the summary, otherwise the sentence's last number or formula;
4. a number after `=` that ends the last line with a digit or a formula ("12 + 30 = 42"): nothing comes after it that
   could be the answer, though words may (of a filler that the model repeats, say).

A number that merely occurs is not an answer, and what stands in a fenced program says nothing. Of a text that was
truncated, a closed box counts as ever, an answer phrase in a whole sentence, and nothing else: what a derivation
concludes on its way ("So x = 2 is a root.") is not what it would have ended with, and the number of an equation
at the end may lack digits.

Takes time in proportion to the text, whatever the text. Does not know what is right, nor any mathematics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fillerscope.problems.boxed import boxed

ANNOUNCING = ("####",)
ANSWER = ("answer", "answers", "final result")
SUMMARY = ("total", "result", "sum", "final value", "solution")
LINKS = ("is", "are", "was", "be", "equals", "comes to")
CONCLUDING = (
    *("so", "therefore", "thus", "hence", "finally", "in total", "altogether", "overall", "in all"),
    *("in conclusion", "this means", "that means", "which means", "we get", "this gives", "that leaves", "this leaves"),
)
# Words that follow a link without naming an answer: "the answer is found by adding 3 and 4".
NOT_YET = ("to", "not", "found", "given", "obtained", "calculated", "by", "in", "correct", "incorrect", "wrong")
# Words that stand in formulas, and in lists and numbers.
LISTING = {"and", "or", "hundred", "thousand", "million", "billion", "trillion", "dozen"}
FUNCTIONS = {
    *LISTING, "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "sqrt", "pi", "max", "min", "gcd", "lcm",
}  # fmt: skip
# The same in Chinese, which has no spaces between words.
ANSWER_CHINESE = ("答案", "最终结果")
LINKS_CHINESE = ("是", "为", "為", "等于")
CONCLUDING_CHINESE = ("所以", "因此", "因而", "故", "综上", "总之", "于是", "总共", "一共")
TRIES = 50  # so many phrases are tried, from the last one back
REACH = 300  # how far behind a phrase its answer may reach, in characters
WORD = 40
LANGUAGES = ("python", "python3", "py", "sage", "sympy", "javascript", "js", "java", "c", "cpp", "matlab", "r", "julia")

_LINK = r"(?:[^\n.!?:=]|\.(?=\d)){0,80}?(?::|=|\b(?:" + "|".join(LINKS) + r")\b)"
# In "the answer for n = 10 is 55", what the equals sign links is a condition.
_CONDITIONAL = re.compile(r"\b(?:for|when|if|with|where|at|given)\b.*=$", re.IGNORECASE | re.DOTALL)
_LINKED = re.compile(r"(?:[^\n.!?:]|\.(?=\d)){0,80}?\b(?:" + "|".join(LINKS) + r")\b", re.IGNORECASE)
_STOPS = "\u3002\uff01\uff1f"  # full stop, exclamation mark and question mark of Chinese
_LINK_CHINESE = rf"[^\n.:={_STOPS}\uff1a]{{0,40}}?(?:[:=\uff1a]|{'|'.join(LINKS_CHINESE)})"
_ANNOUNCED = re.compile(
    rf"(?<!#)(?:{'|'.join(ANNOUNCING)})(?!#)|\b(?:{'|'.join(ANSWER)})\b{_LINK}"
    rf"|(?:{'|'.join(ANSWER_CHINESE)}){_LINK_CHINESE}",
    re.IGNORECASE,
)
_SUMMED = re.compile(rf"\b(?:{'|'.join(SUMMARY)})\b{_LINK}", re.IGNORECASE)
_CONCLUDED = re.compile(
    rf"[^\w$\\]*(?:(?:and |then )?(?:{'|'.join(CONCLUDING)})\b|(?:{'|'.join(CONCLUDING_CHINESE)}))", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"(?<=[.!?])(?:[*_\"')\]]{1,3})?\s|\n|(?<=[" + _STOPS + "])")
_LINE_END = re.compile(r"\n|[.!?](?:\s|[*_\"')]|$)|[;" + _STOPS + r"\uff1b]|\b(?:because|since)\b")
_PROGRAM = re.compile(rf"```[ \t]*(?:{'|'.join(LANGUAGES)})\s.*?(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_MARKUP = " \t\r\n*_:=~`\"'>#-"
_SPAN = re.compile(r"\$\$([^$]+)\$\$|\\\((.+?)\\\)|\\\[(.+?)\\\]|(?<!\\)\$(?!\s)([^$\n]*[^$\s\\])\$(?!\d)", re.DOTALL)
_LETTER = r"[^\W\u3040-\u30ff\u4e00-\u9fff]"  # Chinese and Japanese write no space between a number and a word
_DIGITS = r"(?:\d{1,3}(?:[, ]\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_MIXED = r"\d{1,9} \d{1,9}/\d{1,9}(?![\d/])"
_NUMBER = re.compile(
    rf"(?:(?<!{_LETTER})(?<![.)])[-\u2212])?(?:{_MIXED}|(?:{_DIGITS})(?:\s?/\s?\d+(?![\d/]))?(?:\s?\\?%)?)"
)
_TIME = r"\d+(?::\d+)+(?:\s?[ap]\.?m\b)?"  # a ratio, too
_NUMERIC = re.compile(rf"(?<!{_LETTER})(?<!\.)(?:{_TIME}|{_NUMBER.pattern})(?!{_LETTER})", re.IGNORECASE)
_COUNTED = re.compile(rf"(?:{_NUMBER.pattern})(?: [a-z]+){{0,3}}")
_WORD = re.compile(r"(?<!\\)(?<![a-zA-Z])[a-zA-Z]{2,}")
_MATHEMATICAL = re.compile(r"[\d$\\]")
_EQUATION_AT_END = re.compile(rf"=\s?[\\$€£*]{{0,4}}({_NUMBER.pattern})(?:\s?[^\W\d]{{1,20}}){{0,3}}[\s.$*)]{{0,9}}$")


def extract(text: str, truncated: bool = False) -> str | None:
    """The answer in a text as it is written there, or None. `truncated`: the text ended at the token limit."""
    if content := boxed(text, truncated):
        return content
    prose = _PROGRAM.sub("\n", text)
    sentences = list(_sentences(prose))
    if truncated:
        return _announced(prose.removesuffix(sentences[-1]))
    return _announced(prose) or _concluded(sentences) or _equation(prose)


def extract_box(reference: str) -> str:
    """A reference without the box that some data sets put around it."""
    return boxed(reference) or reference


def _announced(text: str) -> str | None:
    for phrase in reversed(list(_ANNOUNCED.finditer(text))[-TRIES:]):
        if phrase[0] in ANNOUNCING and not _is_alone(text, phrase.end()):
            continue
        conditional = _LINKED.match(text, phrase.end()) if _CONDITIONAL.search(phrase[0]) else None
        if conditional and (answer := _after(text, conditional.end(), words=True)):
            return answer
        if answer := _after(text, phrase.end(), words=True):
            return answer
    return None


def _is_alone(text: str, start: int) -> bool:
    """Whether a line holds from here on a formula or a number with its unit: not "Case 2: x > 3", "1. Add them"."""
    line = text[start : start + REACH].partition("\n")[0].strip(_MARKUP.replace("-", "") + ".$\\")
    return _is_formula(line) or bool(_COUNTED.fullmatch(line))


def _concluded(sentences: list[str]) -> str | None:
    for sentence in reversed(sentences):
        summed = list(_SUMMED.finditer(sentence))
        if summed and (answer := _after(sentence, summed[-1].end())):
            return answer
        if (opening := _CONCLUDED.match(sentence)) and (answer := _last(sentence[opening.end() :])):
            return answer
    return None


def _equation(text: str) -> str | None:
    last = next((line for line in reversed(text.splitlines()) if _MATHEMATICAL.search(line)), "")
    match = _EQUATION_AT_END.search(last.rstrip()[-100:])
    return match[1] if match else None


def _sentences(text: str) -> Iterator[str]:
    """The sentences of a text; the last one may be incomplete."""
    start = 0
    for end in _SENTENCE_END.finditer(text):
        yield text[start : end.start()]
        start = end.end()
    yield text[start:]


def _after(text: str, start: int, words: bool = False) -> str | None:
    """What a phrase that ends at `start` announces: a formula, the first number, or (`words`) a single word."""
    reach = text[start : start + REACH].lstrip(_MARKUP.replace("-", ""))
    if reach.split(" ", 1)[0].rstrip(".,;!").lower() in NOT_YET:
        return None
    if (span := _SPAN.match(reach)) and _is_formula(content := _content(span)):
        return content
    clause = _first_clause(reach)
    if _is_formula(clause):
        return clause
    if span := next((each for each in _SPAN.finditer(clause) if _is_formula(_content(each))), None):
        return _content(span)
    if number := _NUMERIC.search(clause.rpartition("=")[2]) or _NUMERIC.search(clause):
        return number[0]
    return clause if words and re.fullmatch(rf"(?=.*\w)\S{{1,{WORD}}}", clause) else None


def _last(sentence: str) -> str | None:
    """The last formula or number, whichever ends later; one with a digit before one without."""
    tail = sentence[-REACH:]
    answers = [(each.end(), _content(each)) for each in _SPAN.finditer(tail) if _is_formula(_content(each))]
    answers += [(each.end(), each[0]) for each in _NUMERIC.finditer(tail)]
    return max((any(map(str.isdigit, text)), end, text) for end, text in answers)[2] if answers else None


def _first_clause(reach: str) -> str:
    end = _LINE_END.search(reach)
    clause = reach[: end.start()] if end else reach
    clause = clause.strip(" \t\r*_`\"'~.,!").removeprefix("\\$").strip("$ ")
    return clause if re.search(r"\\[(\[]", clause) else re.sub(r"\s*\\[)\]]$", "", clause)  # of "answer \(x = 5\)"


def _content(span: re.Match[str]) -> str:
    return str(next(group for group in span.groups() if group is not None)).strip().rstrip(".,")


def _is_formula(text: str) -> bool:
    """Something with a digit or a symbol, and no words but those of formulas."""
    plain = re.sub(r"\\(?:text|mathrm|textbf|mbox)\s?\{[^{}]*\}|\\[a-zA-Z]+", " 0 ", text)
    return bool(re.search(r"\w", plain)) and all(word in FUNCTIONS for word in _WORD.findall(plain))
