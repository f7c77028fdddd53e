"""``taer serve DIR --many``: how it starts."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from typing import Any

from taer.heads import Head, make_head
from taer.serve import traces
from taer.serve.backbones import find
from taer.serve.collector import set_aside
from taer.serve.inbox import Bounds
from taer.serve.inputs import Backbone
from taer.serve.learner import Learner
from taer.serve.many.app import create_many
from taer.serve.run import Access, answer, listen, open_service
from taer.serve.service import Service
from taer.serve.staging import Promote

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def run_many(
    folder: Path,
    backbone: str | None,
    access: Access,
    method: str | None = None,
    memory: int | None = None,
    drawings: bool = False,
    promote: Promote = "auto",
    inbox: Bounds | None = None,
    errors: float | None = None,
) -> None:
    """Serve the heads of a folder until stopped."""
    traces.start()
    opener = Opener(backbone, method, promote, inbox, errors)
    app = create_many(folder, access.token, opener, memory, access.is_public, access.hosts, drawings)
    listener = listen(access.host, access.port)
    address = f"http://{access.name}:{listener.getsockname()[1]}/#token={access.token}"
    count = len(app.heads.folder.names())
    print(f"taer serves {folder} with {count} head{'s' * (count != 1)} at {address}", flush=True)
    answer(app, listener)


class Opener:
    """Opens heads, which share each backbone: one copy of it is in memory for all of them."""

    def __init__(
        self,
        backbone: str | None = None,
        method: str | None = None,
        promote: Promote = "auto",
        inbox: Bounds | None = None,
        errors: float | None = None,
    ) -> None:
        if method is not None:
            make_head(method)  # a wrong name is told at the start
        self._method, self._promote, self._inbox, self._errors = method, promote, inbox, errors
        self._found: dict[str, Backbone] = {}
        self._finding = threading.Lock()
        self._usual = self.find(backbone) if backbone is not None else None

    def __call__(self, folder: Path, learner: Learner) -> Service:
        """The service of a head; one that has learned nothing yet gets the backbone of the start."""
        service = open_service(
            folder, None, None, self._method, False, self._promote, self._inbox, learner, self.find, self._errors
        )
        if service.serving.head is None and service.backbone is None:
            service.backbone = self._usual
        return service

    def find(self, name: str, head: Head | None = None) -> Backbone:
        """The backbone of this name; the first head that needs it waits until it is loaded."""
        with self._finding:
            if name not in self._found:
                print(f"taer: loading the backbone {name}", file=sys.stderr, flush=True)
                self._found[name] = find(name)
                set_aside()
        found: Any = self._found[name]
        if head is not None:
            head._check_origin(found.origin)
        return found


def size_of(text: str) -> int:
    """A number of bytes such as 500M or 2G.

    Examples
    --------
    >>> size_of("1.5G")
    1610612736
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT])(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found or not (size := int(float(found[1]) * _UNITS[found[2].upper()])):
        raise ValueError(f"--memory: expected a size such as 500M or 2G, got {text}")
    return size
