r"""Numbers as they are written, read exactly: `1 000`, `2 1/2`, `\frac{3}{4}`, `1.2\times 10^{-8}`, `0.\overline{3}`.

Also the rule for decimals: a decimal stands for a value that has no finite decimal form where it is that value
rounded or truncated, with at least DIGITS significant digits. Knows no expressions, only numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

DIGITS = 4
LARGEST_EXPONENT = 300
NOISE = Fraction(1, 10**9)  # of a value: what a computer's arithmetic may add in a decimal of so many places
NOISY_PLACES = 9
WORDS = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}

_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+|\d+)"
_PLAIN = rf"(?P<whole>{_WHOLE})?(?:\.(?P<places>\d*))?"
_NUMBER = re.compile(_PLAIN)
_REPEATING = re.compile(r"(?P<whole>\d*)\.(?P<places>\d*)\\(?:overline|bar|dot)\s?\{(?P<period>\d+)\}")
_CONTINUED = re.compile(r"(?P<whole>\d*)\.(?P<places>\d*?)(?P<period>\d+?)(?P=period)+ ?(?:\.\.\.|\\[lc]?dots)")
_RATIO = re.compile(rf"(?:(?P<mixed>\d+) ?)?\\frac ?\{{ ?(?P<top>-?{_WHOLE}) ?\}} ?\{{ ?(?P<bottom>{_WHOLE}) ?\}}")
_SLASHED = re.compile(rf"(?:(?P<mixed>\d+) )?(?P<top>{_WHOLE}) ?/ ?(?P<bottom>{_WHOLE})")
_EXPONENT = r"(?P<exponent>[-+]?\d{1,9})"
_TIMES_TEN = r"(?:\\times|\\cdot|\*|x) ?)?10"
_SCIENTIFIC = re.compile(rf"(?:{_PLAIN} ?{_TIMES_TEN} ?\^ ?(?:\{{ ?)?{_EXPONENT}(?: ?\}})?")
_PROGRAMMED = re.compile(rf"{_PLAIN}[eE]{_EXPONENT}")
_WORDED = re.compile(rf"{_PLAIN} ?(?:\\text\{{ ?)?(?P<word>{'|'.join(WORDS)})(?: ?\}})?")
_GROUPED = re.compile(r"-?\d{1,3}(?:,\d{3})+")


@dataclass(frozen=True)
class Numeral:
    """A number, and how many digits it has after the decimal point: None where it is not written as a decimal."""

    value: Fraction
    places: int | None = None

    @property
    def digits(self) -> int:
        """Significant digits of a decimal."""
        return len(str(abs(int(self.value * 10 ** (self.places or 0))))) if self.value else 0

    @property
    def is_finite(self) -> bool:
        """Whether some decimal is exactly this number."""
        bottom = self.value.denominator
        for factor in (2, 5):
            while bottom % factor == 0:
                bottom //= factor
        return bottom == 1


def read_numeral(text: str) -> Numeral | None:
    """The number that a whole text is, or None."""
    bare = text.strip().removeprefix("+").strip()
    if bare.startswith("-"):
        number = _unsigned(bare[1:].strip())
        return Numeral(-number.value, number.places) if number else None
    return _unsigned(bare)


def same_number(reference: Numeral, answer: Numeral) -> bool:
    if reference.value == answer.value:
        return True
    if answer.places and (_is_noise(answer, reference.value) or not reference.is_finite):
        return stands_for(answer, reference.value)
    return bool(reference.places and not answer.is_finite and stands_for(reference, answer.value))


def stands_for(decimal: Numeral, value: Fraction) -> bool:
    """Whether a decimal is this value, rounded or truncated, with enough digits."""
    if not decimal.places or decimal.value * value < 0:
        return False
    scaled, written = abs(value) * 10**decimal.places, abs(decimal.value) * 10**decimal.places
    fits = written in (scaled.__floor__(), (scaled + Fraction(1, 2)).__floor__())
    return (fits and decimal.digits >= DIGITS) or _is_noise(decimal, value)


def is_grouped(text: str) -> bool:
    """`100,200` is a number with a thousands separator, and may be a list of two."""
    return bool(_GROUPED.fullmatch(text))


def _is_noise(decimal: Numeral, value: Fraction) -> bool:
    return bool(decimal.places and decimal.places >= NOISY_PLACES) and abs(decimal.value - value) <= NOISE * abs(value)


def _unsigned(text: str) -> Numeral | None:
    if match := _REPEATING.fullmatch(text) or _CONTINUED.fullmatch(text):
        return _repeating(match)
    if match := _RATIO.fullmatch(text) or _SLASHED.fullmatch(text):
        return _ratio(match)
    if match := _SCIENTIFIC.fullmatch(text) or _PROGRAMMED.fullmatch(text):
        return _scientific(match)
    if match := _WORDED.fullmatch(text):
        plain = _plain(match)
        return plain and Numeral(plain.value * WORDS[match["word"]])
    return _plain(match) if (match := _NUMBER.fullmatch(text)) else None


def _plain(match: re.Match[str]) -> Numeral | None:
    whole, places = match["whole"], match["places"]
    if not whole and not places:
        return None
    value = Fraction(_integer(whole or "0")) + (Fraction(int(places), 10 ** len(places)) if places else 0)
    return Numeral(value, len(places) if places else None)


def _ratio(match: re.Match[str]) -> Numeral | None:
    """A mixed number has a proper fraction: `2\\frac{3}{2}` is none."""
    top, bottom, mixed = _integer(match["top"]), _integer(match["bottom"]), match["mixed"]
    if bottom == 0 or (mixed and not 0 < top < bottom):
        return None
    return Numeral(int(mixed or 0) + Fraction(top, bottom))


def _scientific(match: re.Match[str]) -> Numeral | None:
    exponent = int(match["exponent"])
    if abs(exponent) > LARGEST_EXPONENT:
        return None
    mantissa = _plain(match) or Numeral(Fraction(1))
    return Numeral(mantissa.value * Fraction(10) ** exponent, max(0, (mantissa.places or 0) - exponent) or None)


def _repeating(match: re.Match[str]) -> Numeral:
    places, period = match["places"], match["period"]
    start = Fraction(int((match["whole"] or "0") + places), 10 ** len(places))
    return Numeral(start + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(places)))


def _integer(text: str) -> int:
    return int(text.replace(",", "").replace(" ", ""))
