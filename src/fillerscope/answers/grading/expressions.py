"""Expressions read by math-verify and compared by it, exactly; a decimal with the value that it stands for.

Imported by the worker alone, after it has restricted sympy's parser: reading an answer anywhere else is not safe.
"""

from __future__ import annotations

import logging
from fractions import Fraction

import sympy
import sympy.physics.units  # loaded by sympy's simplify when it first needs it
from latex2sympy2_extended.latex2sympy2 import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy import Expr

from fillerscope.answers.grading.compare import Comparison
from fillerscope.answers.grading.numbers import Numeral, read_numeral, same_number, stands_for

# Units are split off before, by `units.py`: math-verify would take the t of 5t for one.
_SPELLING = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="all")
_LATEX = [LatexExtractionConfig(boxed_match_priority=0, normalization_config=_SPELLING)]
_PRECISION = 60

logging.disable(logging.CRITICAL)


class UnreadableReference(ValueError):
    """The reference is no mathematics: a name, a word."""


class UnreadableAnswer(ValueError):
    """The answer is no mathematics."""


def same(reference: str, answer: str) -> bool:
    return Comparison(same_expression).same(reference, answer)


def same_expression(reference: str, answer: str) -> bool:
    gold, given = read(reference), read(answer)
    if gold is None:
        raise UnreadableReference
    if given is None:
        raise UnreadableAnswer
    first, second = read_numeral(reference), read_numeral(answer)
    if second and second.places and _stands_for(second, gold):
        return True
    if first and first.places and _stands_for(first, given):
        return True
    return bool(verify(gold, given, timeout_seconds=None, allow_set_relation_comp=True))


def read(text: str) -> Expr:
    """A sympy object with exact numbers, `i` as the imaginary unit and real variables; None if unreadable."""
    parsed = parse(rf"\boxed{{{text}}}", _LATEX, fallback_mode="no_fallback", parsing_timeout=None)
    if not parsed or isinstance(parsed[0], str):
        return None
    return _exact(parsed[0]) if isinstance(parsed[0], sympy.Basic) else parsed[0]


def _exact(expression: Expr) -> Expr:
    names = {symbol: _symbol(symbol) for symbol in expression.atoms(sympy.Symbol)}
    decimals = {number: sympy.Rational(str(number)) for number in expression.atoms(sympy.Float)}
    return expression.xreplace({**names, **decimals})


def _symbol(symbol: Expr) -> Expr:
    return sympy.I if symbol.name == "i" else sympy.Symbol(symbol.name, real=True)


def _stands_for(decimal: Numeral, expression: Expr) -> bool:
    """For a constant whose value has no finite decimal form: pi, and the square root of 2, but not of 4."""
    if not isinstance(expression, sympy.Expr) or expression.free_symbols:
        return False
    simple = expression.doit()
    if simple.is_Rational:
        return same_number(Numeral(_fraction(simple)), decimal)
    value = sympy.N(simple, _PRECISION)
    return bool(value.is_Float) and stands_for(decimal, _fraction(sympy.Rational(value)))


def _fraction(number: Expr) -> Fraction:
    return Fraction(int(number.p), int(number.q))
