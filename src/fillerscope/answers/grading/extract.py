r"""Which part of a free text is its answer.

The first of these that a text holds:

1. the last complete and non-empty `\boxed{...}` or `\fbox{...}`; of nested boxes the innermost; of boxes with
   nothing but a comma, "and" or "or" between them, all;
2. what follows the last phrase of ANNOUNCING or ANSWER ("the answer is 12", "Answer: x + 1", "答案是12"; "#### 42",
   where it is all there is on the line: otherwise that is a heading); of a choice, its letter and what is behind it;
3. the last sentence that opens with a word of CONCLUDING, or says what a SUMMARY is ("So she has 12 left.",
   "The total is 12."): what follows the summary, otherwise the sentence's last number or formula; a displayed formula
   that ends the text belongs to the sentence before it;
4. a number after `=` that ends the last line with a digit or a formula ("12 + 30 = 42"): nothing comes after it that
   could be the answer, though words may;
5. a single line that is nothing but a formula, a number with its unit, a choice or one word ("42 cm", "(B)", "Paris"):
   so a prompt without a chat template is answered after worked examples.

What is before `</think>` counts only where nothing after it holds an answer. A filler that is repeated at the end of
the text, or of an answer, is removed first (`repeats.py`).

A number that merely occurs is not an answer, and what stands in a fenced program says nothing. Of a text that was
truncated, a closed box counts as ever, an answer phrase in a whole sentence, and nothing else: what a derivation
concludes on its way ("So x = 2 is a root.") is not what it would have ended with, and the number of an equation
at the end may lack digits. A sentence that a filler follows up to the limit is whole.

Takes time in proportion to the text, whatever the text. Does not know what is right, nor any mathematics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fillerscope.answers.grading.repeats import before_repeats, without_first_repeats, without_repeats
from fillerscope.problems.boxed import boxed

ANNOUNCING = ("####",)
ANSWER = ("answer", "answers", "final result", "correct option", "correct choice")
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
THOUGHT = "</think>"
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
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\bRs\.)(?<!\\!)(?:[*_\"')\]]{1,3})?\s|\n|(?<=[" + _STOPS + "])")
_LINE_END = re.compile(r"\n|(?<!\bRs)(?<!\\)[.!?](?:\s|[*_\"')]|$)|[;" + _STOPS + r"\uff1b]|\b(?:because|since)\b")
_PROGRAM = re.compile(rf"```[ \t]*(?:{'|'.join(LANGUAGES)})\s.*?(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_MARKUP = " \t\r\n*_:=~`\"'>#-"
_CLAUSE_START = re.compile(r"\A(?:[ \t\r*_`\"'~,!]|\.(?!\d)|(?<=\.)\.)+")  # a point may begin a decimal
_CHOICE = re.compile(r"(?:[Oo]ption|[Cc]hoice) \*{0,2}(?:\(([A-J])\)|([A-J])\b(?![-'])[).:]?)|\(([A-J])\)|([A-J])[):]")
_SPAN = re.compile(r"\$\$([^$]+)\$\$|\\\((.+?)\\\)|\\\[(.+?)\\\]|(?<!\\)\$(?!\s)([^$\n]*[^$\s\\])\$(?!\d)", re.DOTALL)
_LETTER = r"[^\W\u3040-\u30ff\u4e00-\u9fff]"  # Chinese and Japanese write no space between a number and a word
_LONELY = re.compile(rf"[*_\"'$]{{0,3}}(?:\([A-J]\)|(?:(?!\d){_LETTER}|['-]){{1,{WORD}}})\.?[*_\"'$]{{0,3}}\.?")
_DIGITS = r"(?:\d{1,3}(?:[, ]\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_MIXED = r"\d{1,9} \d{1,9}/\d{1,9}(?![\d/])"
_NUMBER = re.compile(
    rf"(?:(?<!{_LETTER})(?<![.)])[-\u2212])?(?:{_MIXED}|(?:{_DIGITS})(?:\s?/\s?\d+(?![\d/]))?(?:\s?\\?%)?)"
)
_TIME = r"\d+(?::\d+)+(?:\s?[ap]\.?m\b)?"  # a ratio, too
_NUMERIC = re.compile(rf"(?<!{_LETTER})(?<!\.)(?:{_TIME}|{_NUMBER.pattern})(?!{_LETTER})", re.IGNORECASE)
_COUNTED = re.compile(rf"(?:{_NUMBER.pattern})(?: [a-z]+){{0,3}}")
_WORD = re.compile(r"(?<!\\)(?<![a-zA-Z])[a-zA-Z]{2,}")
_ESCAPING = re.compile(r"\\(?![a-zA-Z])")  # of a sign, as in `\$5`
_BOX = re.compile(r"\\(?:boxed|fbox)\b")
_OTHER_WORD = re.compile(r"[^\W\d_a-zA-Z]{2,}")  # of another script
_MATHEMATICAL = re.compile(r"[\d$\\]")
_MONEY = "$€£¥₹"
_EQUATION_AT_END = re.compile(
    rf"=\s?[\\{_MONEY}*]{{0,4}}({_NUMBER.pattern})(?:\s?[^\W\d]{{1,20}}){{0,3}}(?:[\s.{_MONEY}*)]|\\[\])]){{0,9}}$"
)
_DISPLAYS = ((r"\[", r"\]"), ("$$", "$$"))


def extract(text: str, truncated: bool = False) -> str | None:
    """The answer in a text, or None. `truncated`: the text ended at the token limit."""
    _, thought, rest = text.rpartition(THOUGHT)
    if thought and rest.strip() and (answer := _extract(rest, truncated)):
        return answer
    return _extract(text, truncated)


def _extract(text: str, truncated: bool) -> str | None:
    if content := boxed(text, truncated):
        return without_repeats(content)
    prose = _PROGRAM.sub("\n", text)
    kept = without_repeats(prose, truncated)
    if truncated:
        return _announced(_whole_sentences(prose) if kept == prose else kept)
    if answer := _whole(kept):
        return answer
    repeated = prose[len(kept) :].split(maxsplit=1)  # of "The answer is yes yes yes yes" the answer itself
    return _whole(f"{kept} {repeated[0]}") if repeated else None


def _whole(text: str) -> str | None:
    """The answer in a text that has an end."""
    concluding = _with_display(text)
    return _announced(text) or _concluded(list(_sentences(concluding))) or _equation(concluding) or _bare(text)


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
    line = without_repeats(text[start : start + REACH].partition("\n")[0], cut=True)
    line = _ESCAPING.sub("", line).strip(_MARKUP.replace("-", "") + ".$")
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
    match = _EQUATION_AT_END.search(without_repeats(last).rstrip()[-100:])
    return match[1] if match else None


def _bare(text: str) -> str | None:
    """A text that is nothing but an answer."""
    line = text.strip()
    if "\n" in line or len(line) > REACH:
        return None
    is_value = _is_alone(line, 0) and not _OTHER_WORD.search(line)
    return _after(line, 0, words=True) if is_value or _LONELY.fullmatch(line) else None


def _with_display(text: str) -> str:
    r"""The text with the displayed formula that ends it on the line before: `Therefore,\n\[ x = 42 \]`."""
    whole = text.rstrip(" \r\n.")
    for opening, closing in _DISPLAYS:
        before, start, formula = whole.removesuffix(closing).rpartition(opening)
        if start and whole.endswith(closing):
            line = " ".join(formula.split()).rstrip(" .,")  # a full stop would end the sentence
            return f"{before.rstrip()} {opening}{line}{closing}"
    return text


def _whole_sentences(text: str) -> str:
    """A truncated text without its last sentence."""
    return text.removesuffix(list(_sentences(text))[-1])


def _sentences(text: str) -> Iterator[str]:
    """The sentences of a text; the last one may be incomplete."""
    start = 0
    for end in _SENTENCE_END.finditer(text):
        yield text[start : end.start()]
        start = end.end()
    yield text[start:]


def _after(text: str, start: int, words: bool = False) -> str | None:
    """What a phrase that ends at `start` announces: a formula, the first number, or (`words`) a single word."""
    reach = without_first_repeats(text[start : start + REACH].lstrip(_MARKUP.replace("-", "")))
    if reach.split(" ", 1)[0].rstrip(".,;!").lower() in NOT_YET:
        return None
    if (span := _SPAN.match(reach)) and _is_formula(content := _content(span)):
        return content
    clause = _first_clause(reach)
    if _BOX.search(clause):
        return None  # it is empty, or not closed: others were taken
    if _is_formula(clause):
        return clause
    if words and (answer := _chosen(clause)):
        return answer
    if value := _value(clause):
        return value
    return clause if words and re.fullmatch(rf"(?=.*\w)\S{{1,{WORD}}}", clause) else None


def _chosen(clause: str) -> str | None:
    """`(B) 42` of "Option B) 42", as the reference may be either of both; `(B)` where too many words follow."""
    choice = _CHOICE.match(clause)
    if not choice:
        return None
    rest = re.split(r"\bnot\b", clause[choice.end() :])[0].strip(" *_,:")
    if _CHOICE.search(rest):
        return None  # several choices are none
    letter = next(group for group in choice.groups() if group)
    words = rest if len(rest) <= WORD else ""
    return f"({letter}) {_value(rest) or words}".strip()


def _value(clause: str) -> str | None:
    """The first formula among words, otherwise the first number."""
    if span := next((each for each in _SPAN.finditer(clause) if _is_formula(_content(each))), None):
        return _content(span)
    number = _NUMERIC.search(clause.rpartition("=")[2]) or _NUMERIC.search(clause)
    return number[0] if number else None


def _last(sentence: str) -> str | None:
    """The last formula or number, whichever ends later; one with a digit before one without."""
    tail = sentence[-REACH:]
    answers = [(each.end(), _content(each)) for each in _SPAN.finditer(tail) if _is_formula(_content(each))]
    answers += [(each.end(), each[0]) for each in _NUMERIC.finditer(tail)]
    return max((any(map(str.isdigit, text)), end, text) for end, text in answers)[2] if answers else None


def _first_clause(reach: str) -> str:
    end = _LINE_END.search(reach)
    clause = before_repeats(reach[: end.start()] if end else reach).rstrip(" \t\r*_`\"'~.,!")
    clause = without_repeats(_CLAUSE_START.sub("", clause).removeprefix("\\$").strip("$ "), cut=end is None)
    return clause if re.search(r"\\[(\[]", clause) else re.sub(r"\s*\\[)\]]$", "", clause)  # of "answer \(x = 5\)"


def _content(span: re.Match[str]) -> str:
    content = next(group for group in span.groups() if group is not None)
    return without_repeats(str(content)).strip().rstrip(".,")


def _is_formula(text: str) -> bool:
    """Something with a digit or a symbol, and no words but those of formulas."""
    plain = re.sub(r"\\(?:text|mathrm|textbf|mbox|begin|end)\s?\{[^{}]*\}|\\[a-zA-Z]+", " 0 ", text)
    return bool(re.search(r"\w", plain)) and all(word in FUNCTIONS for word in _WORD.findall(plain))
