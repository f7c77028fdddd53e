"""The inbox as a pool: groups of inputs that look like new classes, and inputs whose names would help most."""

from __future__ import annotations

import threading
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from taer import answers
from taer.serve.api import Api
from taer.serve.inputs import MAX_NAMED, NameRequest
from taer.serve.service import Service
from taer.serve.serving import Conflict


class Pool:
    """What the inbox of a service holds, compared with the classes of the version that answers."""

    def __init__(self, service: Service) -> None:
        self._service = service
        # Comparing thousands of inputs takes seconds; the same question waits for the answer.
        self._turn = threading.Lock()
        self._found: tuple[tuple[int, ...], answers.InboxGroups] | None = None

    def groups(self) -> answers.InboxGroups:
        """Found again only if the version or the inputs have changed."""
        with self._turn:
            version, head, inputs, X = self._read("discover")
            of = (version, *(entry["id"] for entry in inputs))
            if self._found is None or self._found[0] != of:
                self._found = of, _groups(version, head, inputs, X)
            return self._found[1]

    def next(self, count: int) -> answers.InboxNext:
        version, head, inputs, X = self._read("suggest")
        rows = head.suggest(X, count).tolist() if inputs else []
        return {"version": version, "inputs": [inputs[row] for row in rows]}

    def _read(self, verb: str) -> tuple[int, Any, list[answers.InboxEntry], np.ndarray]:
        inbox, serving = self._service.opened_inbox, self._service.serving
        if serving.head is None:
            raise Conflict("nothing was learned yet: add examples, then learn")
        if not hasattr(serving.head, verb):
            raise Conflict(f"the head {serving.head.name} cannot {verb}; the heads bayes and bayes-replay can")
        return serving.version, serving.head, *inbox.latest(serving.head.n_features_in_, MAX_NAMED)


def _groups(version: int, head: Any, inputs: list[answers.InboxEntry], X: np.ndarray) -> answers.InboxGroups:
    from taer.loop.words import telling_words

    if not inputs:
        return {"version": version, "compared": 0, "known": 0, "groups": []}
    found = head.discover(X)
    texts = [[inputs[row]["text"] or "" for row in group.rows.tolist()] for group in found.groups]
    return {
        "version": version,
        "compared": len(inputs),
        "known": int(found.known.sum()),
        "groups": [
            {
                "ids": [inputs[row]["id"] for row in group.rows.tolist()],
                "distinct": group.distinct,
                "sure": group.sure,
                "words": words,
                "typical": [inputs[row] for row in group.typical.tolist()],
            }
            for group, words in zip(found.groups, telling_words(texts), strict=True)
        ],
    }


def add_groups(api: Api, service: Service) -> None:
    """Add it before the other routes of the inbox, because ``/inbox/{number}`` is any path below ``/inbox``."""
    pool = Pool(service)

    def inbox_groups() -> answers.InboxGroups:
        """Groups of inputs that belong to no known class, as proposals of new classes. Thousands of inputs take seconds."""
        return pool.groups()

    def inbox_next(count: Annotated[int, Meta(ge=1, le=1000)] = 20) -> answers.InboxNext:
        """The inputs to name next: typical of what is not known yet, and unlike each other."""
        return pool.next(count)

    def name_inputs(body: NameRequest) -> answers.Added:
        """Say that some inputs are all of one class: they leave the inbox, and wait as examples. All or none."""
        return {"ids": service.name_inputs(body.ids, body.label), "waiting": service.n_pending}

    api.add("GET", "/inbox/groups", inbox_groups, tag="inbox", token=True, problems=(404, 409, 503))
    api.add("GET", "/inbox/next", inbox_next, tag="inbox", token=True, problems=(404, 409, 503))
    api.add("POST", "/inbox", name_inputs, tag="inbox", token=True, problems=(404, 409, 415, 503))
