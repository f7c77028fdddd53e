"""Recovery of a damaged or incomplete folder at the start of the service."""

from __future__ import annotations

from typing import Any

from taer.serve.serving import Serving
from taer.serve.store import Store, Version
from taer.serve.tasks import describe


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
        assert head is not None
        before = [entry for entry in head.learning_order_ if entry.task < head.n_tasks_]
        parents = [known for known, had in learned.items() if had == (head.n_tasks_ - 1, before)]
        parent = (parents or [0, *learned])[-1] if head.n_tasks_ > 1 else 0
        report = describe(None, head, []) | {"seconds": None, "examples": 0}
        older = [label for label, _ in learned[parent][1]] if parent else []
        report["new_classes"] = [str(label) for label, _ in head.learning_order_ if label not in older]
        found.append(Version(number, parent, store.made(number), report))
        learned[number] = head.n_tasks_, list(head.learning_order_)
    return found


def newest_that_loads(store: Store, notices: list[str]) -> Serving:
    """The current version; if its file is missing or damaged, the newest one that can be loaded.

    A file that cannot be read for another reason is an error: it may be whole.
    """
    current = store.current()
    try:
        return Serving.load(store, current)
    except ValueError as error:
        reason = str(error)
    for known in reversed(store.versions()):
        try:
            serving = Serving.load(store, known.version)
        except ValueError:
            continue
        store.go_to(known.version)
        notices.append(f"version {current} cannot be loaded ({reason}); version {known.version} answers")
        return serving
    raise ValueError(f"none of the versions can be loaded: {reason}. Restore a copy made by taer backup")
