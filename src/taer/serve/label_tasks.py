"""Examples with several labels: how they are stored, and the task that learns them.

The label of an example in the database is a cell as in a table for ``taer fit --multi-label``: ``late;refund``, or ``;``
without a label. If not all labels were judged, those that were follow: ``late|damaged;late``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taer.heads import make_head
from taer.heads.few import collected
from taer.metrics import f1_macro, f1_micro
from taer.multilabel.model import MultiLabel
from taer.origin import Origin
from taer.serve.store import Example, Store, Version
from taer.serve.tasks import HOLD_BACK_EVERY, HOLD_BACK_FROM, Refused, matrix

SEPARATOR, JUDGED = ";", "|"


def cell(labels: Sequence[str], judged: Sequence[str] | None = None) -> str:
    """Labels as they are stored.

    Examples
    --------
    >>> cell(["late", "refund"]), cell([]), cell(["late"], ["damaged", "late"])
    ('late;refund', ';', 'late|damaged;late')
    """
    text = SEPARATOR.join(labels) or SEPARATOR
    return text if judged is None else f"{text}{JUDGED}{SEPARATOR.join(judged)}"


def labels_of(stored: str) -> tuple[list[str], list[str] | None]:
    """The labels of an example, and those that were judged; None for all."""
    labels, bar, judged = stored.partition(JUDGED)
    return _split(labels), _split(judged) if bar else None


def _split(text: str) -> list[str]:
    return [name for name in text.split(SEPARATOR) if name]


def learn_labels(store: Store, method: str, backbone: str | None, origin: Sequence[str] | None) -> Version:
    """Learn all waiting examples on top of the current version; returns the new version.

    Examples for which the same labels were judged are one task, those with all labels first.
    """
    parent = store.current()
    examples = store.pending()
    if not examples:
        raise Refused("no examples were added since the last task; add some with POST /examples")
    learned, held_back = _held_apart(examples, store.learned(parent))
    model = _model(store, parent)
    known = [str(label) for label in getattr(model, "classes_", [])]
    model = model or MultiLabel(make_head(method, random_state=0))
    start = time.perf_counter()
    try:
        with collected() as warned:
            for judged, part in _by_judged(learned):
                typed = None if judged is None else _typed(judged, model)
                model.partial_fit(matrix(part), [_typed(labels_of(each.label)[0], model) for each in part], typed)
    except ValueError as error:
        raise Refused(f"the task cannot be learned: {error}") from None
    seconds = time.perf_counter() - start
    if not known and origin is not None:
        model.feature_origin_ = Origin(*origin)
    report = described(model, known) | _f1(store, parent, model, held_back)
    report |= {"seconds": round(seconds, 4), "examples": len(learned), "warnings": warned, "backbone": backbone}
    return store.add_version(model, parent, report, [each.id for each in learned], [each.id for each in held_back])


def described(model: MultiLabel, known: Sequence[str]) -> dict[str, Any]:
    """The part of a report that needs no examples. ``known`` are the labels of the version before."""
    labels = [str(label) for label in model.classes_]
    return {
        "method": "MultiLabel",
        "classes": len(labels),
        "new_classes": [label for label in labels if label not in known],
        "held_back": 0,
        "accuracy": None,
        "confusion": [],
        "changes": None,
        "seconds": None,
        "examples": 0,
        "f1_micro": None,
        "f1_macro": None,
    }


def _model(store: Store, version: int) -> MultiLabel | None:
    try:
        found = store.load(version)
    except ValueError:
        raise Refused(f"the file of version {version} is missing or damaged; go to another version first") from None
    assert found is None or isinstance(found, MultiLabel)
    return found


def _typed(labels: Sequence[str], model: MultiLabel) -> list[Any]:
    """Labels in the type of the head's own."""
    kind = type(getattr(model, "classes_", [""])[0])
    return [kind(label) for label in labels]


def _by_judged(examples: Sequence[Example]) -> list[tuple[list[str] | None, list[Example]]]:
    found: dict[str, list[Example]] = {"": []}
    for example in examples:
        found.setdefault(example.label.partition(JUDGED)[2], []).append(example)
    return [(_split(judged) if judged else None, part) for judged, part in found.items() if part]


def _held_apart(
    examples: Sequence[Example], known: Mapping[str, tuple[int, int]]
) -> tuple[list[Example], list[Example]]:
    """Learned and held-out examples. Of no label with eight or more is more than a quarter held out, of others none.

    Only an example whose labels were all judged can be held out. ``known`` has the numbers of learned and of held-out
    examples by what is stored as their label. What has no label counts as a label of its own.
    """
    seen, held = Counter[str](), Counter[str]()
    for stored, (used, kept) in known.items():
        for label in labels_of(stored)[0] or [""]:
            seen[label] += used + kept
            held[label] += kept
    total = seen + Counter(label for each in examples for label in labels_of(each.label)[0] or [""])
    learned: list[Example] = []
    held_back: list[Example] = []
    for example in examples:
        labels, judged = labels_of(example.label)
        labels = labels or [""]
        seen.update(labels)
        enough = all(
            total[label] >= HOLD_BACK_FROM and held[label] < seen[label] // HOLD_BACK_EVERY for label in labels
        )
        if judged is None and enough:
            held.update(labels)
            held_back.append(example)
        else:
            learned.append(example)
    return learned, held_back


def _f1(store: Store, parent: int, model: MultiLabel, fresh: Sequence[Example]) -> dict[str, Any]:
    """F1 on the held-out examples. One that was held out before a label was known was not judged for it."""
    examples = [*store.held_back(parent), *fresh]
    if not examples:
        return {}
    labels, line = [str(label) for label in model.classes_], set(store.lineage(parent))
    since = {
        label: made.version
        for made in store.versions()
        if made.version in line
        for label in made.report["new_classes"]
    }
    truth, judged = np.zeros((2, len(examples), len(labels)), np.bool_)
    for row, example in enumerate(examples):
        inside = labels_of(example.label)[0]
        truth[row] = [label in inside for label in labels]
        judged[row] = [example.version is None or since.get(label, np.inf) <= example.version for label in labels]
    found = (model.decision_function(matrix(examples)) >= 0) & judged
    truth &= judged
    seen = (truth | found).any(axis=0)  # a label that no example has and none is given says nothing
    if not seen.any():
        return {"held_back": len(examples)}
    return {
        "held_back": len(examples),
        "f1_micro": f1_micro(truth, found),
        "f1_macro": f1_macro(truth[:, seen], found[:, seen]),
    }
