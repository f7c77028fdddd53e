"""The walks through the code that CONTRIBUTING describes, and what really runs in a call."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

import taer

ROOT = Path(__file__).parent.parent


def walks():
    """The text of each walk in CONTRIBUTING, by its title."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## Walks through the code")[2].partition("\n## ")[0]
    _, *parts = re.split(r"^\*\*(.+)\*\*$", text, flags=re.M)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def traced(call):
    """The functions of ours that run in a call, each with those that it ran inside.

    What a thread runs, runs inside what the calling thread was in when the thread began.
    """
    source, inside, own = Path(taer.__file__).parent, {}, threading.local()
    main = own.stack = []

    def record(frame, event, _):
        code = frame.f_code
        if event in ("call", "return") and code.co_filename.startswith(str(source)):
            if not hasattr(own, "stack"):
                own.stack = list(main)
            stack = own.stack
            if event == "call":
                name = f"{Path(code.co_filename).relative_to(source)}:{code.co_qualname}"
                inside.setdefault(name, set()).update(stack)
                stack.append(name)
            elif stack:
                stack.pop()

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return inside


def follow(title, inside):
    """Every function of a walk ran, those after an arrow inside the one before it."""
    walk = walks()[title]
    for step in re.findall(r"`([\w/]+\.py:[\w.]+)`", walk):
        assert step in inside, f"{step} does not run"
    for outer, inner in re.findall(r"`([\w/]+\.py:[\w.]+)`(?: \([^)]*\))?\s+→\s+(?=`([\w/]+\.py:[\w.]+)`)", walk):
        assert outer in inside[inner], f"{inner} does not run inside {outer}"
