r"""Units behind (or before) a number: `5 \text{ cm}`, `12 marbles`, `\$12`, `90^\circ`, `50\%`.

Only units of measure and money have a meaning here; other words behind a number are dropped ("12 marbles"). Units
are compared by name and never converted. Does not know what a number is worth.
"""

from __future__ import annotations

import re

# All spellings of a unit in a line; the first is its name.
MEASURES = """
mm millimeter millimetre 毫米
cm centimeter centimetre 厘米
dm decimeter decimetre 分米
m meter metre 米
km kilometer kilometre 千米 公里
inch in inches
foot ft feet
yard yd yds
mile mi
mg milligram 毫克
g gram 克
kg kilogram 千克 公斤
t ton tonne 吨
ounce oz
pound lb lbs
ml milliliter millilitre 毫升
l liter litre 升
gallon gal
quart qt
pint pt
cup
acre
hectare ha
ms millisecond
s second sec 秒
min minute mins 分钟
h hour hr hrs 小时
day 天
week wk 周
month mo 月
year yr yrs 年
dollar usd bucks 美元
cent ¢
euro eur 欧元
gbp £
yuan cny rmb yen jpy 元 ¥ 円
rupee rs inr ₹
degree deg °
radian rad
celsius
fahrenheit
mile/h mph
km/h kph kmh
hz hertz
n newton
j joule
w watt
v volt
"""
NAMES = {spelling: line.split()[0] for line in MEASURES.strip().splitlines() for spelling in line.split()}
PERCENT, DEGREE = "%", "degree"
SYMBOLS = {r"\$": "dollar", "€": "euro", "£": "gbp", "¥": "yuan", "₹": "rupee"}
POWERS = {"square": "2", "sq": "2", "cubic": "3", "cu": "3", "平方": "2", "立方": "3"}
ORDINALS = ("st", "nd", "rd", "th")
# Words that are part of a value, so that they are no unit.
NO_UNITS = {
    *("and", "or", "hundred", "thousand", "million", "billion", "trillion", "dozen", "over", "mod", "base", "plus"),
    *("minus", "times", "squared", "cubed", "factorial", "choose", "half", "halves", "thirds", "fourths", "fifths"),
    *("sixths", "eighths", "tenths", "not", "to", "less", "more", "than"),
}
LETTERS = ("m", "g", "L")  # units that are often written bare; other letters behind a number are variables

_NUMBER_END = r"(?:(?<=[\d})!])|(?<=\\pi))"
_CJK = r"[\u3040-\u30ff\u4e00-\u9fff]"
_CODE = re.compile(r"(Rs|USD|EUR|GBP|CNY|RMB|JPY|INR)\.? ?(?=[-\d.])(.*)", re.DOTALL)  # before an amount
_PRICED = re.compile(r"(.*[\d}]) ?(?:\\text\{([^{}]*)\}|(/ ?[a-zA-Z ]+|[a-zA-Z][a-zA-Z ./]*))", re.DOTALL)
_PERCENT = re.compile(r"(.*?) ?(?:\\?%|\bpercent(?:age)?|\\text\{ ?percent ?\})", re.DOTALL)
_DEGREE = re.compile(r"(.*?) ?\^ ?\\circ ?(?:\\text\{ ?)?([CF]?)(?: ?\})?", re.DOTALL)
_WRAPPED = re.compile(r"(.*\S) ?\\text\{([^{}]*)\} ?(?:\^ ?\{?([23])\}?)?", re.DOTALL)
_WORDS = re.compile(
    rf"(.*{_NUMBER_END}) ([a-zA-Z][a-zA-Z ./]*?) ?(?:\^ ?\{{?([23])\}}?)?|"
    rf"(.*{_NUMBER_END}) ?([a-zA-Z]{{2,}}|{_CJK}{{1,8}}) ?(?:\^ ?\{{?([23])\}}?)?",
    re.DOTALL,
)


def split_unit(text: str, other: str = "") -> tuple[str, str]:
    """The text without its unit, and the unit's name: "" where there is none, or a word that is no measure.

    `other` is the unit that it is compared with: next to hours, the h of `3 h` is no variable.
    """
    for symbol, name in SYMBOLS.items():
        if text.startswith((symbol, "-" + symbol)):
            return _amount(text.replace(symbol, "", 1).strip(), name)
        if text.endswith(symbol):
            return text.removesuffix(symbol).strip(), name
    if found := _CODE.fullmatch(text):
        return found[2], NAMES[found[1].lower()]
    if found := _PERCENT.fullmatch(text):
        return found[1], PERCENT
    if found := _DEGREE.fullmatch(text):
        return found[1], {"": DEGREE, "C": "celsius", "F": "fahrenheit"}[found[2]]
    return _split_words(text, other)


def _amount(text: str, currency: str) -> tuple[str, str]:
    r"""The number of `5 \text{ per hour}` behind a currency, and `dollar/h`. Words that are no measure are dropped."""
    found = _PRICED.fullmatch(text)
    words = (found[2] or found[3]).strip() if found else ""
    if not found or not _may_be_unit(words):
        return text, currency
    if words.startswith(("per ", "/")):
        return found[1], name_of(f"{currency} {words}")
    name = name_of(words)
    return (found[1], name or currency) if not name or name.startswith(currency) else (text, currency)


def differ(reference: str, answer: str) -> bool:
    """Both name a unit, and not the same one."""
    return bool(reference and answer) and reference != answer


def _split_words(text: str, other: str) -> tuple[str, str]:
    if found := _WRAPPED.fullmatch(text):
        value, words, power = found.groups()
        return (value, name_of(words, power)) if _may_be_unit(words) else (text, "")
    if found := _WORDS.fullmatch(text):
        value, words, power = found.groups()[:3] if found[1] else found.groups()[3:]
        if _may_be_unit(words) and _reads_as_unit(words, other):
            return value, name_of(words, power)
    return text, ""


def _may_be_unit(words: str) -> bool:
    return not NO_UNITS & set(words.lower().split()) and bool(re.search(r"[^\W\d_]", words))


def _reads_as_unit(word: str, other: str) -> bool:
    """Two letters or one may as well be variables."""
    if len(word) == 1 and word.isascii():
        return word in LETTERS or (bool(other) and NAMES.get(word.lower()) == other)
    return len(word) > 2 or word.lower() in NAMES or word in ORDINALS or not word.isascii()


def name_of(words: str, power: str | None = None) -> str:
    """`square meters` is `m^2`, `miles per hour` is `mile/h`, `marbles` is no measure."""
    upper, per, lower = re.sub(r" ?/ ?| per ", "/", words.strip().lower().rstrip(".")).partition("/")
    if per:
        names = [name_of(upper), name_of(lower)]
        return "/".join(names) if all(names) else ""
    for word, exponent in POWERS.items():
        if upper.startswith(word):
            upper, power = upper.removeprefix(word).strip(" ."), exponent
    found = next((NAMES[each] for each in _spellings(upper) if each in NAMES), "")
    return found + (f"^{power}" if found and power else "")


def _spellings(words: str) -> list[str]:
    """Whole, and the first word, each as it is and without the ending of its plural."""
    first = words.partition(" ")[0]
    return [words, words.removesuffix("s"), first, first.removesuffix("s")]
