"""Permanent deletion of examples, with every version that was learned from them."""

from __future__ import annotations

from collections.abc import Sequence

from taer.answers import Purged
from taer.serve.serving import Conflict
from taer.serve.store import Example, Store

_LISTED = 20  # numbers in a message
_OF_VERSION = "SELECT id FROM examples WHERE version = ?"


def purge(store: Store, ids: Sequence[int], backbone: str | None = None, width: int | None = None) -> Purged:
    """Delete examples, the versions that learned them and all later versions built on those.

    A version that removed an example is deleted, too, because what its first task fixed may still depend on it. Nothing
    else is lost: the other examples of these versions wait again, with their last labels. An example that had been
    deleted or forgotten before, and was kept only for going back, goes with the last version that had it.

    ``backbone`` and ``width`` are those of the service. Raises KeyError for an example that does not exist, and Conflict
    for examples that cannot wait again because they have others. Call it only while nothing is learned.
    """
    marks = ", ".join("?" * len(ids))
    found = store.rows(f"SELECT id, version, held_back FROM examples WHERE id IN ({marks})", *ids)
    if missing := set(ids) - {number for number, _, _ in found}:
        raise KeyError(min(missing))
    gone = _descendants(store, {version for _, version, held_back in found if version and not held_back})
    current = store.current()
    heir = _heir(store, current, gone)
    again = [example for example in store.taught(current) if example.version in gone and example.id not in ids]
    undone = _undone(store, current, gone, set(ids))
    back = [*((current, example) for example in again), *undone]
    left = [example for example in store.pending() if example.id not in ids]
    _check_eyes(store, back, left, backbone or store.backbone(current), width if heir else None)
    with store.transaction() as db:
        for _, example in back:
            db.execute(
                "UPDATE examples SET label = ?, x = ?, version = NULL, held_back = 0 WHERE id = ?",
                (example.label, example.x.tobytes(), example.id),
            )
        doomed = [(version,) for version in gone]
        lost = {*ids, *(number for row in doomed for (number,) in db.execute(_OF_VERSION, row))}
        db.executemany("INSERT INTO purged VALUES (?)", doomed)
        db.executemany(
            "DELETE FROM inbox WHERE x IN (SELECT x FROM examples WHERE id = ?)", [(number,) for number in lost]
        )
        db.executemany("DELETE FROM examples WHERE id = ?", [(number,) for number in lost])
        db.executemany("DELETE FROM edits WHERE example = ?", [(number,) for number in lost])
        for table in ("edits", "versions", "candidate"):
            db.executemany(f"DELETE FROM {table} WHERE version = ?", doomed)
        db.execute("UPDATE current SET version = ?", (heir,))
        ((waiting,),) = db.execute("SELECT count(*) FROM examples WHERE version IS NULL")
    notices = [*_told(undone), *_overwrite(store)]
    return Purged(examples=sorted(lost), versions=sorted(gone), current=heir, waiting=waiting, notices=notices)


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


def _undone(store: Store, current: int, gone: set[int], ids: set[int]) -> list[tuple[int, Example]]:
    """Examples that the current version never had and only versions that go have, each with the youngest of those."""
    parents = {known.parent for known in store.versions()}
    elsewhere = gone - set(store.lineage(current))
    found: dict[int, tuple[int, Example]] = {}
    for last in sorted(gone - parents, reverse=True):
        for example in store.taught(last):
            if example.version in elsewhere and example.id not in ids:
                found.setdefault(example.id, (last, example))
    return [found[number] for number in sorted(found)]


def _check_eyes(
    store: Store, back: list[tuple[int, Example]], left: list[Example], backbone: str | None, width: int | None
) -> None:
    """Raise Conflict if examples that would come back could not be learned beside those that are left waiting."""
    widths = [len(example.x) for example in (*left, *(example for _, example in back))]
    width = widths[0] if left else width or next(iter(widths), None)
    strange = [
        example.id
        for version, example in back
        if len(example.x) != width or (backbone and (store.backbone(version) or backbone) != backbone)
    ]
    if strange:
        raise Conflict(
            f"{_count(strange)} would be lost, which only the versions to delete had, and which cannot wait again "
            f"because their features are of another kind: {_listed(strange)}. Add them to the ids to delete them as "
            f"well{', or discard what waits' if left else ''}; nothing was deleted"
        )


def _told(undone: list[tuple[int, Example]]) -> list[str]:
    ids = [example.id for _, example in undone]
    return [f"{_count(ids)} that only the deleted versions had wait again: {_listed(ids)}"] if ids else []


def _count(ids: list[int]) -> str:
    return "1 example" if len(ids) == 1 else f"{len(ids)} examples"


def _listed(ids: list[int]) -> str:
    return ", ".join(map(str, ids[:_LISTED])) + (", …" if len(ids) > _LISTED else "")


def _overwrite(store: Store) -> list[str]:
    """Delete the files of purged versions and empty the database's log; returns what is left for the next start."""
    left = store.tidy()
    if why := store.to_file(all_of_it=True):
        left.append(f"the log of the database still has what was deleted ({why}); the next start empties it")
    return left
