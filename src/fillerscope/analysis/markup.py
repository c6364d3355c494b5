"""HTML and SVG from the templates of a package. Every text that a template shows is made visible and escaped here."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fillerscope.display import printable


@cache
def templates(package: str) -> Environment:
    """The templates in the folder `templates` of a package."""
    environment = Environment(
        loader=PackageLoader(package), autoescape=True, finalize=_visible, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"bdi": bdi, "px": px}
    return environment


def _visible(value: object) -> object:
    """What no template must forget: characters that cannot be seen are replaced, in all but finished markup."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def px(length: float) -> str:
    """A length in pixels, to a tenth."""
    return f"{length:z.1f}".removesuffix(".0")


def bdi(text: object) -> Markup:
    """A text in an element of its own, so that its direction does not turn its surroundings."""
    return Markup("<bdi>{}</bdi>").format(printable(str(text)))
