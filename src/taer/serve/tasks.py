"""The tasks that make a new version from the current one: learn, correct, delete, rename, forget, describe."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from taer.heads import Head, make_head
from taer.heads.few import collected
from taer.inspection.audit import audit
from taer.origin import Origin
from taer.serve.store import Edit, Example, Store, Version

HOLD_BACK_EVERY = 4  # of the examples of a class, in order of arrival
HOLD_BACK_FROM = 8  # examples of a class; fewer are all learned


class Refused(Exception):
    """The task cannot be done, for the reason in the message."""


def learn(
    store: Store, method: str, backbone: str | None, origin: Sequence[str] | None, staged: bool = False
) -> Version:
    """Learn all waiting examples as one task on top of the current version; returns the new version.

    A new head records the origin of its features. If ``staged``, the version is a candidate; the first one never is.
    """
    parent = store.current()
    before = _head(store, parent)
    examples = store.pending()
    if not examples:
        raise Refused("no examples were added since the last task; add some with POST /examples")
    learned, held_back = _split(examples, store.learned(parent))
    head = _head(store, parent) or make_head(method, random_state=0)
    start = time.perf_counter()
    try:
        with collected() as warned:
            head.partial_fit(matrix(learned), names(learned, before))
    except ValueError as error:
        raise Refused(f"the task cannot be learned: {error}") from None
    seconds = time.perf_counter() - start
    if before is None and origin is not None:
        head.feature_origin_ = Origin(*origin)
    report = describe(before, head, [*store.held_back(parent), *held_back])
    report |= {"seconds": round(seconds, 4), "examples": len(learned), "warnings": warned, "backbone": backbone}
    return store.add_version(
        head,
        parent,
        report,
        [example.id for example in learned],
        [example.id for example in held_back],
        staged=staged and before is not None,
    )


def relabel(store: Store, number: int, label: str) -> Version:
    """Correct the label of an example: it is unlearned, and learned with the right label."""
    return _correct(store, number, label)


def delete(store: Store, number: int) -> Version:
    """Unlearn an example."""
    return _correct(store, number, None)


def _correct(store: Store, number: int, label: str | None) -> Version:
    parent = store.current()
    example = store.example(number, parent)
    if example is None or example.version is None:
        raise Refused(f"example {number} is no longer among those that were learned; nothing was changed")
    did = f"example {number} of {example.label} " + ("deleted" if label is None else f"is now {label}")

    def correct(head: Head) -> None:
        if example.held_back:  # nothing was learned from it
            return
        _take_back(store, parent, head, example)
        if label is not None:
            head.partial_fit(matrix([example]), names([Example(number, label, example.x)], head))

    return _edit(store, parent, did, correct, {number: Edit(label)})


def _take_back(store: Store, version: int, head: Head, example: Example) -> None:
    """Unlearn an example; if a head can only forget a whole class, forget it and learn its other examples again."""
    known = _value(example.label, head)
    task = next(task for label, task in head.learning_order_ if label == known)
    if head.card.corrects or head.card.forgets == "no" or task <= _tasks_from_elsewhere(store, version):
        head.unlearn(matrix([example]), names([example], head))  # which says why, if it cannot
        return
    kept = store.taught(version, example.label)
    rest = [other for other in kept if not other.held_back and other.id != example.id]
    head.forget(known)
    if rest:
        head.partial_fit(matrix(rest), names(rest, head))


def _tasks_from_elsewhere(store: Store, version: int) -> int:
    """The number of tasks that the head had learned before the service; their examples are not stored."""
    oldest = [number for number in store.lineage(version) if number][-1]
    first = next(known for known in store.versions() if known.version == oldest)
    head = None if first.report["examples"] else store.load(oldest)
    return 0 if head is None else head.n_tasks_


def rename(store: Store, label: str, new: str) -> Version:
    """Rename a class."""
    parent = store.current()
    edits = {example.id: Edit(new) for example in store.taught(parent, label)}

    def change(head: Head) -> None:
        head.rename(_value(label, head), _value(new, head))

    return _edit(store, parent, f"{label} is now called {new}", change, edits, compare=False)


def forget(store: Store, label: str) -> Version:
    """Forget a class and its examples."""
    parent = store.current()
    edits = {example.id: Edit(None) for example in store.taught(parent, label)}
    return _edit(store, parent, f"{label} forgotten", lambda head: head.forget(_value(label, head)), edits)


def add_described(store: Store, descriptions: Mapping[str, Sequence[float]], staged: bool = False) -> Version:
    """Add classes by the vectors of descriptions; those of known classes show how much a description counts."""
    parent = store.current()

    def change(head: Any) -> None:
        head.describe({_value(label, head): np.array(x, np.float32) for label, x in descriptions.items()})

    return _edit(store, parent, f"described: {', '.join(descriptions)}", change, {}, staged=staged)


def _edit(
    store: Store,
    parent: int,
    did: str,
    change: Callable[[Head], Any],
    edits: Mapping[int, Edit],
    compare: bool = True,
    staged: bool = False,
) -> Version:
    before, head = _head(store, parent), _head(store, parent)
    assert before is not None
    assert head is not None
    start = time.perf_counter()
    try:
        with collected() as warned:
            change(head)
    except (ValueError, NotImplementedError) as error:
        raise Refused(f"{error}; nothing was changed") from None
    seconds = time.perf_counter() - start
    held_back = [
        Example(example.id, edit.label, example.x) if edit.label is not None else None
        for example in store.held_back(parent)
        for edit in [edits.get(example.id, Edit(example.label))]
    ]
    report = describe(before if compare else None, head, [example for example in held_back if example])
    report |= {"edit": did, "seconds": round(seconds, 4), "examples": 0, "warnings": warned}
    report |= {"backbone": store.backbone(parent)} | ({} if compare else {"new_classes": []})
    return store.add_version(head, parent, report, edits=edits, staged=staged)


def _head(store: Store, version: int) -> Head | None:
    try:
        return store.load(version)
    except ValueError:
        raise Refused(f"the file of version {version} is missing or damaged; go to another version first") from None


def describe(before: Head | None, after: Head, held_back: list[Example]) -> dict[str, Any]:
    """The report of a version: accuracy and confusion on held-out examples, and the changes by the task."""
    order = [str(label) for label, _ in after.learning_order_]
    known = [example for example in held_back if example.label in set(order)]
    report: dict[str, Any] = {
        "method": type(after).__name__,
        "classes": len(order),
        "new_classes": order,
        "held_back": len(known),
        "accuracy": None,
        "confusion": [],
        "changes": None,
    }
    if known:
        place = {label: i for i, label in enumerate(order)}
        truth = [place[example.label] for example in known]
        answers = [place[label] for label in after.predict(matrix(known)).astype(str).tolist()]
        report["accuracy"] = float(np.mean(np.equal(truth, answers)))
        cells, counts = np.unique(np.column_stack([truth, answers]), axis=0, return_counts=True)
        report["confusion"] = np.column_stack([cells, counts]).tolist()  # only the cells that are not zero
    if before is not None:
        found = audit(before, after, matrix(known) if known else None)
        report["changes"] = asdict(found) | {"sentence": found.sentence()}
        report["new_classes"] = [str(label) for label in found.new_classes]
        for key in ("old_classes", "new_classes"):
            del report["changes"][key]
    return report


def _split(examples: list[Example], known: Mapping[str, tuple[int, int]]) -> tuple[list[Example], list[Example]]:
    """Split examples into learned and held-out ones: every fourth of a class, if it has enough.

    ``known`` has the numbers of learned and held-out examples of each class in earlier tasks.
    """
    seen = Counter({label: sum(counts) for label, counts in known.items()})
    total = seen + Counter(example.label for example in examples)
    learned: list[Example] = []
    held_back: list[Example] = []
    for example in examples:
        seen[example.label] += 1
        is_fourth = seen[example.label] % HOLD_BACK_EVERY == 0
        enough = total[example.label] >= HOLD_BACK_FROM
        (held_back if enough and is_fourth else learned).append(example)
    return learned, held_back


def matrix(examples: list[Example]) -> np.ndarray:
    return np.stack([example.x for example in examples])


def names(examples: list[Example], head: Head | None) -> np.ndarray:
    """Labels of examples, in the type of the head's own."""
    found = np.array([example.label for example in examples])
    return found if head is None or head.classes_.dtype.kind == "U" else found.astype(head.classes_.dtype)


def _value(label: str, head: Head) -> Any:
    """A label in the type of the head's own."""
    return label if head.classes_.dtype.kind == "U" else head.classes_.dtype.type(label).item()


TASKS: dict[str, Callable[..., Version]] = {
    task.__name__: task for task in (learn, relabel, delete, rename, forget, add_described)
}
