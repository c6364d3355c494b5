"""The process that renders chat templates: `python -m fillerscope.prompts.render_template LONGEST`.

One JSON object a line comes in, with a template, turns and settings; one goes out, with a text or an error.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import threading
import time
from datetime import datetime, tzinfo
from functools import partial
from typing import Self

from jinja2.utils import Cycler, Joiner, Namespace

from fillerscope.files import Json
from fillerscope.prompts.child_process import limit_memory

ADDRESS = re.compile(r" at 0x[0-9a-f]{6,}")
HELD = 8  # objects of a kind, in whose place others have other addresses
MEMORY = 4 << 30  # addresses, of which a process has more than it uses


class _OneDay(datetime):
    """The clock of templates that print the date: a prompt must not change overnight."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls(2024, 7, 26, tzinfo=tz)


def _end_with(parent: int) -> None:
    """End this process when the one that asks is gone: a template without end would never see its input close."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def main(longest: int) -> None:
    replies, sys.stdout = sys.stdout, sys.stderr
    limit_memory(MEMORY)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    from transformers.utils import chat_template_utils

    chat_template_utils.datetime = _OneDay  # it takes no clock, and no functions for templates

    def once(request: Json, template: str) -> str:
        random.seed(0)  # templates can draw, and a prompt must not change with the process
        texts, _ = chat_template_utils.render_jinja_template(
            conversations=[request["turns"]], chat_template=template, **request["settings"]
        )
        return str(texts[0])

    def rendered(request: Json) -> dict[str, str]:
        try:
            text = once(request, request["template"])
            if len(text) > longest:
                return {"error": f"it gives {len(text)} characters, and {longest} is the most"}
            held = [kind() for kind in (Joiner, Namespace, partial(Cycler, "")) for _ in range(HELD)]
            # A comment, and the line break that goes with it: compiled anew, to other objects.
            again = held and once(request, "{##}\n" + request["template"])
            if again != text or any(one not in str(request["turns"]) for one in ADDRESS.findall(text)):
                return {"error": "it writes the address of an object, which is another one in every process"}
            return {"text": text}
        except Exception as error:  # templates raise what they like
            return {"error": " ".join(str(error).split())[:300] or type(error).__name__}

    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(rendered(json.loads(line))), file=replies, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
