"""Learning all stored examples again, with another head or another backbone."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.base import clone

from taer.features.images import decode_image
from taer.heads import make_head
from taer.serve.inputs import Backbone
from taer.serve.store import Edit, Example, Store
from taer.serve.tasks import describe, matrix, names

_BATCH = 64  # images in memory at a time


def relearn(store: Store, backbone: Backbone | None, method: str | None) -> str:
    """Learn the examples of the current version as one task of a new head, which becomes the next version.

    With a backbone, features are extracted again from the stored texts or images; held-out examples that were sent as
    vectors are left out. The head is ``method``, or of the same kind as the current one. Returns notices.
    """
    current = store.current()
    old = store.load(current)
    examples = store.taught(current)
    if old is None or all(example.held_back for example in examples):
        raise ValueError(f"{store.folder}: version {current} keeps no examples that it was taught with")
    moved: dict[int, np.ndarray] = {}
    waiting = [] if backbone is None else store.pending()
    if backbone is not None:
        seen = [example for example in examples if not example.held_back or _source(example, backbone)]
        moved = _seen(store, [*seen, *waiting], backbone)
    edits = {e.id: Edit(e.label, moved[e.id]) if e.id in moved else Edit(None) for e in examples} if moved else {}
    kept = [Example(e.id, e.label, moved.get(e.id, e.x), held_back=e.held_back) for e in examples]
    learned = [example for example in kept if not example.held_back]
    head = clone(old) if method is None else make_head(method, random_state=0)
    start = time.perf_counter()
    head.partial_fit(matrix(learned), names(learned, old))
    seconds = time.perf_counter() - start
    if origin := backbone.origin if backbone else getattr(old, "feature_origin_", None):
        head.feature_origin_ = origin
    held_back = [example for example in kept if example.held_back and (not moved or example.id in moved)]
    did = f"{len(learned)} examples learned again" + (f" with {backbone.name}" if backbone else "")
    report = describe(None, head, held_back) | {
        "edit": did,
        "seconds": round(seconds, 4),
        "examples": len(learned),
        "backbone": backbone.name if backbone else store.backbone(current),
    }
    seen_again = {example.id: moved[example.id] for example in waiting}
    version = store.add_version(head, current, report, edits=edits, moved=seen_again).version
    lost = [str(label) for label, _ in old.learning_order_ if label not in set(head.classes_.tolist())]
    told = f"version {version}: {did}"
    if lost:
        listed = ", ".join(lost[:5]) + (", …" if len(lost) > 5 else "")
        told += f"; {len(lost)} classes came without examples and are not in it: {listed}"
    return told


def _seen(store: Store, examples: list[Example], backbone: Backbone) -> dict[int, np.ndarray]:
    """Features of examples by their numbers."""
    sources = [_source(example, backbone) for example in examples]
    if blind := sum(source is None for source in sources):
        raise ValueError(
            f"{store.folder}: {blind} of {len(examples)} examples were not sent as {backbone.kind}s, so the backbone "
            f"{backbone.name} cannot see them; delete them, or send them again as {backbone.kind}s"
        )
    found: dict[int, np.ndarray] = {}
    for start in range(0, len(examples), _BATCH):
        items: list[Any] = sources[start : start + _BATCH]
        if backbone.kind == "image":
            items = [decode_image(item) for item in items]
        rows = np.ascontiguousarray(backbone(items), np.float32)
        found |= {e.id: row for e, row in zip(examples[start : start + _BATCH], rows, strict=True)}
    return found


def _source(example: Example, backbone: Backbone) -> str | bytes | None:
    wanted = str if backbone.kind == "text" else bytes
    return example.source if isinstance(example.source, wanted) else None
