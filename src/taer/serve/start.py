"""What the start of a service may have to do: repair its folder, or learn all stored examples again."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.base import clone

from taer.features.images import decode_image
from taer.heads import make_head
from taer.multilabel.model import MultiLabel
from taer.serve.inputs import Backbone
from taer.serve.label_tasks import described
from taer.serve.serving import Serving
from taer.serve.staging import Promote
from taer.serve.store import Edit, Example, Store, Version
from taer.serve.tasks import HOLD_BACK_FROM, describe, matrix, names
from taer.serve.trust import known_examples

_BATCH = 64  # images in memory at a time


def look_at_versions(store: Store) -> list[str]:
    """Rebuild the history if there are versions but no database. Returns notices, also about files without a row."""
    files, notices = store.files(), []
    if files and store.is_empty():
        known = _history_of(store, files)
        if not known:
            raise ValueError(f"{store.folder}: taer.db is missing, and no file in versions/ can be loaded")
        store.rebuild(known)
        notices.append(
            f"taer.db was missing or empty; its history was rebuilt from {len(known)} files in versions/. "
            "Examples are not in them: those that waited or were held out are lost unless a backup has them"
        )
    if strays := sorted(set(files) - {version.version for version in store.versions()}):
        names = ", ".join(map(str, strays[:10])) + (", …" if len(strays) > 10 else "")
        notices.append(f"files in versions/ that do not count, left alone: {names}")
    return notices


def _history_of(store: Store, files: list[int]) -> list[Version]:
    """The history, reconstructed from the heads.

    The parent of a version is the last one that had learned all of its tasks except the last; if there is none, as after
    a correction, the previous version.
    """
    found: list[Version] = []
    learned: dict[int, tuple[int, list[Any]]] = {}  # tasks, and classes in order
    for number in files:
        try:
            head = store.load(number)
        except ValueError:
            continue
        if isinstance(head, MultiLabel):
            parent = found[-1].version if found else 0
            older = [label for label, _ in learned[parent][1]] if parent else []
            found.append(Version(number, parent, store.made(number), described(head, older)))
            learned[number] = 0, [(str(label), 1) for label in head.classes_]
            continue
        before = [entry for entry in head.learning_order_ if entry.task < head.n_tasks_]
        parents = [known for known, had in learned.items() if had == (head.n_tasks_ - 1, before)]
        parent = (parents or [0, *learned])[-1] if head.n_tasks_ > 1 else 0
        report = describe(None, head, []) | {"seconds": None, "examples": 0}
        older = [label for label, _ in learned[parent][1]] if parent else []
        report["new_classes"] = [str(label) for label, _ in head.learning_order_ if label not in older]
        found.append(Version(number, parent, store.made(number), report))
        learned[number] = head.n_tasks_, list(head.learning_order_)
    return found


def newest_that_loads(store: Store, notices: list[str], errors: float | None = None) -> Serving:
    """The current version; if its file is missing or damaged, the newest one that can be loaded.

    A file that cannot be read for another reason is an error: it may be whole.
    """
    current = store.current()
    try:
        return Serving.load(store, current, errors)
    except ValueError as error:
        reason = str(error)
    for known in reversed(store.versions()):
        try:
            serving = Serving.load(store, known.version, errors)
        except ValueError:
            continue
        store.go_to(known.version)
        notices.append(f"version {current} cannot be loaded ({reason}); version {known.version} answers")
        return serving
    raise ValueError(f"none of the versions can be loaded: {reason}. Restore a copy made by taer backup")


def untested(store: Store, serving: Serving, promote: Promote) -> list[str]:
    """A notice if what the service was told to do needs held-out examples, and its version has none, as a loaded head."""
    idle = ["--promote if-not-worse asks each time"] if promote == "if-not-worse" else []
    if serving.promise is not None and serving.promise.problem:
        idle.append("--errors-at-most promises nothing")
    if not idle or serving.head is None or known_examples(store, serving.version, serving.head):
        return []
    return [
        f"version {serving.version} has no held-out examples, so {' and '.join(idle)}; teach the service at least "
        f"{HOLD_BACK_FROM} examples per class that this version has not learned: every fourth is held out"
    ]


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
