"""Permanent deletion of examples, with every version that was learned from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taer.serve.store import Store


@dataclass(frozen=True)
class Purged:
    """The deleted examples and versions, and the current version."""

    examples: list[int]
    versions: list[int]
    current: int


def purge(store: Store, ids: Sequence[int]) -> Purged:
    """Delete examples, the versions that learned them and all later versions built on those; raises KeyError.

    A version that removed an example is deleted, too, because what its first task fixed may still depend on it. The
    other examples of the current version wait again, with their current labels. Call it only while nothing is learned.
    """
    marks = ", ".join("?" * len(ids))
    found = store.rows(f"SELECT id, version, held_back FROM examples WHERE id IN ({marks})", *ids)
    if missing := set(ids) - {number for number, _, _ in found}:
        raise KeyError(min(missing))
    gone = _descendants(store, {version for _, version, held_back in found if version and not held_back})
    current = store.current()
    heir = _heir(store, current, gone)
    again = [example for example in store.taught(current) if example.version in gone and example.id not in ids]
    with store.transaction() as db:
        db.executemany("INSERT INTO purged VALUES (?)", [(version,) for version in gone])
        for example in again:
            db.execute(
                "UPDATE examples SET label = ?, x = ?, version = NULL, held_back = 0 WHERE id = ?",
                (example.label, example.x.tobytes(), example.id),
            )
        db.executemany("DELETE FROM examples WHERE id = ?", [(number,) for number in ids])
        db.executemany("DELETE FROM edits WHERE example = ?", [(number,) for number in ids])
        for table in ("examples", "edits", "versions"):
            db.executemany(f"DELETE FROM {table} WHERE version = ?", [(version,) for version in gone])
        db.execute("UPDATE current SET version = ?", (heir,))
    store.tidy()
    store.to_file(all_of_it=True)  # nothing is left in the log
    return Purged(sorted(ids), sorted(gone), heir)


def _descendants(store: Store, versions: set[int]) -> set[int]:
    """Versions and all that were built on them; a version is younger than its parent."""
    found = set(versions)
    for known in store.versions():
        if known.parent in found:
            found.add(known.version)
    return found


def _heir(store: Store, current: int, gone: set[int]) -> int:
    """The youngest ancestor that is kept and has the same backbone; 0 if there is none."""
    for version in store.lineage(current):
        if version not in gone and store.backbone(version) == store.backbone(current):
            return version
    return 0
