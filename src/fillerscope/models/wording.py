"""How sizes and foreign errors are put into our one-line messages."""

from __future__ import annotations


def readable(size: int) -> str:
    """Bytes as a person reads them: `94 MiB`, `1.04 GiB`."""
    if size < 1 << 20:
        return f"{size / (1 << 10):.0f} KiB"
    return f"{size / (1 << 20):.0f} MiB" if size < 1 << 30 else f"{size / (1 << 30):.2f} GiB"


def first_line(error: BaseException) -> str:
    """Other libraries write paragraphs; the first line says what happened."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].strip()
