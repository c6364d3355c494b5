"""Takes cookies that are not an explorer's out of requests, as their bytes come.

Pages at other ports of a host set cookies that browsers send to the explorer too. Their number, length and characters
must not decide whether a request is answered, so they are gone before anything else looks at it.
"""

from __future__ import annotations

import re

NAME = "fillerscope-"  # and the port
_LINE = b"cookie:"
_OWN = re.compile(rb"(?:\A|;) ?(%s[0-9]{1,5}=[0-9a-f]{64})(?=[ \t\r]*(?:;|\Z))" % NAME.encode())
_LONGEST = 200  # bytes, more than one of ours has


class CookieFilter:
    """What one connection sends, in pieces that may end anywhere."""

    _held = b""  # the beginning of a line, or of a cookie, of which more must be seen
    _in_line = _in_cookies = False  # whether the next byte belongs to a line that is known, and to one of cookies

    def filtered(self, data: bytes) -> bytes:
        """The next bytes without the cookies of others. Empty where more must come first."""
        data, self._held = self._held + data, b""
        kept, at = [], 0
        while at < len(data):
            if not self._in_line:
                start = data[at : at + len(_LINE)]
                self._in_cookies = start.lower() == _LINE
                if not self._in_cookies and _LINE.startswith(start.lower()):  # it may become one of cookies
                    self._held = start
                    break
                self._in_line = True
                if self._in_cookies:
                    kept.append(start)
                    at += len(start)
            end = data.find(b"\n", at) + 1
            rest = data[at : end or len(data)]
            kept.append(self._own(rest) if self._in_cookies else rest)
            self._in_line, at = not end, at + len(rest)
        return b"".join(kept)

    def _own(self, rest: bytes) -> bytes:
        """Our own cookies of what is there of a line. A cookie that has not ended is held."""
        ended = rest.endswith(b"\n")
        cookies, _, last = rest.rpartition(b"\n" if ended else b";")
        self._held = b"" if ended else last[:_LONGEST]
        return b"".join(b" %s;" % one for one in _OWN.findall(cookies)) + (b"\r\n" if ended else b"")
