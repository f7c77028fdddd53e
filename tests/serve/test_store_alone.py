"""The store without a service around it: each method beside what it says, on a small history with two branches."""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
import time
from contextlib import closing
from datetime import UTC, datetime

import numpy as np
import pytest

import taer
from taer.serve.database import CommitFailed, StorageFailed
from taer.serve.store import Edit, Example, Store, only_one, version_file

NOW = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")
ROWS = np.arange(24, dtype=np.float32).reshape(12, 2)


def head():
    return taer.NCM().partial_fit(np.eye(2), ["a", "b"])


def labels(examples):
    return {example.id: example.label for example in examples}


def assert_rows(examples, rows):
    for example, row in zip(examples, rows, strict=True):
        assert example.x.dtype == np.float32
        np.testing.assert_array_equal(example.x, row)


@pytest.fixture
def store(tmp_path):
    with closing(Store(tmp_path / "service")) as made:
        yield made


@pytest.fixture
def grown(store):
    """Examples 1 to 4 of a, 5 to 6 of b, 7 to 8 of c, 9 of d waiting; versions 1, 2 on 1, and 3 on 1 beside it.

    Version 1 holds example 4 out; version 2 calls 1 c, moves it, and takes 2 out; version 3 has learned 7 and 8.
    """
    store.add_examples("a", ROWS[:4], ["one", b"two", None, "four"])
    store.add_examples("b", ROWS[4:6])
    store.add_version(head(), 0, {"backbone": "letters", "examples": 5}, learned=[1, 2, 3, 5, 6], held_back=[4])
    edits = {1: Edit("c", ROWS[11]), 2: Edit(None), 4: Edit("b")}
    store.add_version(head(), 1, {"examples": 0}, edits=edits)
    store.go_to(1)
    store.add_examples("c", ROWS[6:8])
    store.add_version(head(), 1, {"examples": 2}, learned=[7, 8])
    store.add_examples("d", ROWS[8:9])
    return store


def test_what_is_added_waits_in_order_of_arrival(store):
    assert store.is_empty()
    assert store.width() is None
    wide = np.asfortranarray(np.arange(12.0).reshape(3, 4)[:, ::2])  # neither float32 nor in order
    assert store.add_examples("b", wide, ["text", b"image", None]) == [1, 2, 3]
    assert store.add_examples("a", ROWS[:1]) == [4]
    assert store.add_examples("b", ROWS[1:2]) == [5]
    assert not store.is_empty()
    waiting = store.pending()
    assert [(one.id, one.label, one.version, one.held_back, one.source) for one in waiting] == [
        (1, "b", None, False, "text"),
        (2, "b", None, False, b"image"),
        (3, "b", None, False, None),
        (4, "a", None, False, None),
        (5, "b", None, False, None),
    ]
    assert_rows(waiting, [*wide, ROWS[0], ROWS[1]])
    assert all(NOW.fullmatch(one.added) for one in waiting)
    assert list(store.count_pending().items()) == [("b", 4), ("a", 1)]
    assert (store.width(), type(store.width())) == (2, int)


def test_all_examples_are_added_or_none(store):
    def fail(db, numbers):
        assert numbers == [1, 2]
        assert db.execute("SELECT count(*) FROM examples").fetchone() == (2,)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        store.add_examples("a", ROWS[:2], record=fail)
    for sources in (["one"], ["one", "two", "three"]):
        with pytest.raises(ValueError, match="zip"):
            store.add_examples("a", ROWS[:2], sources)
    assert store.is_empty()
    assert store.pending() == []


def test_waiting_examples_change_and_go_and_learned_ones_do_not(grown):
    grown.change_pending(9, "e")
    assert labels(grown.pending()) == {9: "e"}
    grown.change_pending(1, "e")
    grown.change_pending(1, None)
    assert labels(grown.taught(1))[1] == "a"
    (ten,) = grown.add_examples("f", ROWS[9:10])
    grown.change_pending(ten, None)
    assert labels(grown.pending()) == {9: "e"}
    assert grown.add_examples("f", ROWS[9:11]) == [11, 12]  # a number is never given twice
    assert grown.discard_pending() == 3
    assert grown.pending() == []
    assert grown.discard_pending() == 0
    assert len(grown.taught(1)) == 6


def test_inputs_of_the_inbox_become_examples(store):
    values = "(x, source, label, probability, novelty, unknown, arrived) VALUES (?, ?, 'b', 0.1, 2.0, 1, 0)"
    with store.transaction() as db:
        for row, source in zip(ROWS[:3], ("one", b"two", None), strict=True):
            db.execute(f"INSERT INTO inbox {values}", (row.tobytes(), source))
    assert store.take_from_inbox([3, 1], "a") == [1, 2]
    assert_rows(store.pending(), ROWS[[2, 0]])
    assert [(one.label, one.source) for one in store.pending()] == [("a", None), ("a", "one")]
    assert store.rows("SELECT id FROM inbox") == [(2,)]


def test_each_version_has_its_own_and_its_ancestors_examples_as_it_corrected_them(grown):
    first = {1: "a", 2: "a", 3: "a", 4: "a", 5: "b", 6: "b"}
    assert labels(grown.taught(0)) == {}
    assert labels(grown.taught(1)) == first
    assert labels(grown.taught(2)) == {1: "c", 3: "a", 4: "b", 5: "b", 6: "b"}
    assert labels(grown.taught(3)) == {**first, 7: "c", 8: "c"}
    assert list(labels(grown.taught(3))) == sorted(labels(grown.taught(3)))
    assert_rows(grown.taught(2), ROWS[[11, 2, 3, 4, 5]])
    assert_rows(grown.taught(3), ROWS[:8])
    assert labels(grown.taught(1, "b")) == {5: "b", 6: "b"}
    assert labels(grown.taught(2, "b")) == {4: "b", 5: "b", 6: "b"}
    assert labels(grown.taught(2, "none")) == {}
    one, four, seven = grown.taught(3)[0], grown.taught(3)[3], grown.taught(3)[6]
    assert (one.version, one.held_back, one.source) == (1, False, "one")
    assert (four.version, four.held_back, four.source) == (1, True, "four")
    assert (seven.version, seven.held_back, seven.source) == (3, False, None)
    assert NOW.fullmatch(one.added)
    assert labels(grown.held_back(0)) == {}
    assert labels(grown.held_back(2)) == {4: "b"}
    assert labels(grown.held_back(3)) == {4: "a"}
    assert grown.learned(0) == {}
    assert grown.learned(1) == {"a": (3, 1), "b": (2, 0)}
    assert grown.learned(2) == {"a": (1, 0), "b": (2, 1), "c": (1, 0)}
    assert grown.learned(3) == {"a": (3, 1), "b": (2, 0), "c": (2, 0)}


def test_the_last_correction_of_a_version_counts_and_a_vector_stays_moved(grown):
    grown.go_to(2)
    grown.add_version(head(), 2, {}, edits={1: Edit("b"), 3: Edit("d", ROWS[10])})
    assert labels(grown.taught(4)) == {1: "b", 3: "d", 4: "b", 5: "b", 6: "b"}
    assert_rows(grown.taught(4), ROWS[[11, 10, 3, 4, 5]])
    grown.add_version(head(), 4, {}, edits={1: Edit("b", ROWS[9])})
    assert_rows(grown.taught(5), ROWS[[9, 10, 3, 4, 5]])
    assert_rows(grown.taught(4), ROWS[[11, 10, 3, 4, 5]])
    assert_rows(grown.taught(3), ROWS[:8])


def test_the_latest_examples_of_some_classes(grown):
    found = grown.latest(3, ["a", "c"], 3)
    assert labels(found) == {2: "a", 3: "a", 4: "a", 7: "c", 8: "c"}
    assert [one.id for one in found] == [2, 3, 4, 7, 8]
    assert {one.source for one in found} == {None}
    assert [(one.version, one.held_back) for one in found] == [(1, False)] * 2 + [(1, True)] + [(3, False)] * 2
    assert_rows(found, ROWS[[1, 2, 3, 6, 7]])
    assert [one.id for one in grown.latest(3, ["a", "c"], 1)] == [4, 8]
    assert grown.latest(3, ["none"], 3) == []


def test_one_example_of_a_version_or_one_that_waits(grown):
    assert grown.example(9, 1).label == "d"
    assert grown.example(9, 1).version is None
    assert grown.example(1, 1).label == "a"
    assert grown.example(1, 2).label == "c"
    assert grown.example(2, 2) is None
    assert grown.example(7, 1) is None
    assert grown.example(7, 3).label == "c"
    assert grown.example(99, 3) is None


def test_examples_are_listed_a_page_at_a_time(grown):
    found = grown.listed(3, None, 0, 100)
    assert [one["id"] for one in found] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert all(NOW.fullmatch(one.pop("added")) for one in found)
    assert found[0] == {"id": 1, "label": "a", "version": 1, "held_back": False, "kind": "text", "text": "one"}
    assert found[1] == {"id": 2, "label": "a", "version": 1, "held_back": False, "kind": "image", "text": None}
    assert found[2] == {"id": 3, "label": "a", "version": 1, "held_back": False, "kind": "vector", "text": None}
    assert found[3] == {"id": 4, "label": "a", "version": 1, "held_back": True, "kind": "text", "text": "four"}
    assert found[8] == {"id": 9, "label": "d", "version": None, "held_back": False, "kind": "vector", "text": None}
    assert found[3]["held_back"] is True
    assert [one["id"] for one in grown.listed(3, None, 2, 3)] == [3, 4, 5]
    assert [one["id"] for one in grown.listed(3, None, 8, 3)] == [9]
    assert grown.listed(3, None, 9, 3) == []
    assert [one["id"] for one in grown.listed(3, "c", 7, 9)] == [8]
    assert [one["id"] for one in grown.listed(2, "c", 0, 9)] == [1]
    assert [one["id"] for one in grown.listed(2, "d", 0, 9)] == [9]


def test_versions_have_parents_reports_and_times(grown):
    found = grown.versions()
    assert [(one.version, one.parent, one.report) for one in found] == [
        (1, 0, {"backbone": "letters", "examples": 5}),
        (2, 1, {"examples": 0}),
        (3, 1, {"examples": 2}),
    ]
    assert all(NOW.fullmatch(one.created) for one in found)
    assert [grown.backbone(number) for number in (0, 1, 2)] == [None, "letters", None]
    assert [grown.lineage(number) for number in (0, 1, 2, 3)] == [[0], [1, 0], [2, 1, 0], [3, 1, 0]]
    assert grown.current() == 3
    assert grown.candidate() is None
    assert grown.files() == [1, 2, 3]
    assert version_file(grown.folder, 12) == grown.folder / "versions" / "000012.safetensors"
    os.utime(version_file(grown.folder, 2), (0, 86_400))
    assert grown.made(2) == "1970-01-02T00:00:00+00:00"


def test_a_version_is_loaded_or_its_absence_is_told(grown):
    assert grown.load(0) is None
    assert grown.load(2).predict([[0.9, 0.1]]).tolist() == ["a"]
    file = version_file(grown.folder, 2)
    file.unlink()
    for _ in ("missing", "a folder"):
        with pytest.raises(ValueError, match=rf"^{re.escape(str(file))}: no such file$"):
            grown.load(2)
        file.mkdir(exist_ok=True)
    version_file(grown.folder, 3).write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match=r"not a head|truncated"):
        grown.load(3)


def test_a_version_that_cannot_be_read_is_a_failure_of_storage(grown):
    file = version_file(grown.folder, 3)
    file.unlink()
    file.symlink_to(file)  # a loop
    with pytest.raises(StorageFailed, match=r"Too many levels .*; version 3 cannot be read$"):
        grown.load(3)


def test_a_new_version_is_the_current_one_or_waits(grown):
    before = datetime.now(UTC)
    made = grown.add_version(head(), 3, {"a": [1]}, learned=[9], moved={9: ROWS[0] + 0.5, 1: ROWS[9]}, staged=True)
    assert (made.version, made.parent, made.report) == (4, 3, {"a": [1]})
    assert abs(datetime.fromisoformat(made.created) - before).total_seconds() < 60
    assert grown.versions()[-1] == made
    assert (grown.current(), grown.candidate()) == (3, 4)
    assert grown.pending() == []
    assert labels(grown.taught(4))[9] == "d"
    np.testing.assert_array_equal(grown.example(1, 3).x, ROWS[0])  # it does not wait
    grown.go_to(4)
    assert (grown.current(), grown.candidate()) == (4, None)
    brought = [Example(0, "a", ROWS[5]), Example(0, "b", ROWS[6])]
    assert grown.add_version(head(), 4, {}, brought=brought).version == 5
    assert (grown.current(), grown.candidate()) == (5, None)
    assert [(one.id, one.label, one.version) for one in grown.held_back(5)] == [
        (4, "a", 1),
        (10, "a", 5),
        (11, "b", 5),
    ]
    assert_rows(grown.held_back(5)[1:], ROWS[5:7])


def test_waiting_examples_get_new_vectors_with_a_version(grown):
    grown.add_version(head(), 3, {}, moved={9: np.asfortranarray(np.array([3.5, 4.5]))})
    assert_rows(grown.pending(), [[3.5, 4.5]])
    assert labels(grown.pending()) == {9: "d"}


def test_a_version_is_in_the_database_file_itself(grown, tmp_path):
    grown.add_version(head(), 3, {}, learned=[9])
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "taer.db").write_bytes((grown.folder / "taer.db").read_bytes())  # without its log
    with closing(Store(tmp_path / "copy")) as copy:
        assert copy.current() == 4


def test_a_version_that_fails_leaves_nothing(grown):
    files = sorted(path.name for path in (grown.folder / "versions").iterdir())

    class Failing:
        def save(self, file):
            file.write_bytes(b"half")
            raise OSError(28, "No space left on device")

    with pytest.raises(StorageFailed, match=r"^the disk is full \(No space left on device\); nothing was changed$"):
        grown.add_version(Failing(), 3, {}, learned=[9])
    with pytest.raises(AttributeError):
        grown.add_version(head(), 3, {}, learned=[9], brought=[Example(0, "a", None)])
    assert grown.current() == 3
    assert labels(grown.pending()) == {9: "d"}
    assert sorted(path.name for path in (grown.folder / "versions").iterdir()) == files
    assert grown.add_version(head(), 3, {}).version == 4


def test_the_file_of_a_version_that_may_come_back_stays(grown):
    file = version_file(grown.folder, 7)

    def fail(version, error):
        with grown._written(version, head()):
            assert grown.load(version) is not None
            raise error

    with pytest.raises(CommitFailed):
        fail(7, CommitFailed())
    assert file.exists()
    with pytest.raises(KeyboardInterrupt):
        fail(8, KeyboardInterrupt())
    assert grown.files() == [1, 2, 3, 7]

    class Vanishing:
        def save(self, file):
            raise ValueError("never began")

    with pytest.raises(ValueError, match="never began"), grown._written(9, Vanishing()):
        pass
    assert grown.add_version(head(), 3, {}).version == 8  # after each file


def test_a_rejected_candidate_s_number_is_not_used_again(grown):
    grown.add_version(head(), 3, {}, learned=[9], held_back=[], staged=True)
    grown.add_examples("e", ROWS[9:10])
    grown.reject(4)
    assert (grown.current(), grown.candidate(), grown.files()) == (3, None, [1, 2, 3])
    assert labels(grown.pending()) == {9: "d", 10: "e"}
    assert [one.version for one in grown.versions()] == [1, 2, 3]
    assert grown.rows("SELECT version FROM purged") == [(4,)]
    assert len(grown.taught(3)) == 8
    grown.add_version(head(), 3, {}, held_back=[9], staged=True)
    grown.reject(5)
    assert not grown.example(9, 3).held_back
    assert grown.add_version(head(), 3, {}).version == 6


def test_a_version_becomes_the_only_one(grown):
    two = grown.versions()[1]
    (version_file(grown.folder, 9)).mkdir()  # cannot be removed as a file
    grown.become(two)
    assert grown.versions() == [two]
    assert grown.current() == 2
    assert grown.files() == [2, 9]
    grown.become(type(two)(0, 0, "", {}))
    assert (grown.versions(), grown.current(), grown.files()) == ([], 0, [9])
    assert not grown.is_empty()  # its examples are there
    grown.discard_pending()
    with grown.transaction() as db:
        db.execute("DELETE FROM examples")
    assert grown.is_empty()


def test_a_database_is_filled_from_versions(grown, tmp_path):
    known = grown.versions()
    with closing(Store(tmp_path / "other")) as other:
        other.rebuild(known)
        assert other.versions() == known
        assert other.current() == 3
        assert not other.is_empty()
        assert other.candidate() is None


def test_files_without_a_row_count_and_others_do_not(grown):
    versions = grown.folder / "versions"
    for name in ("000007.safetensors", "1234567.safetensors", "12345.safetensors", "000008.safetensors.old", "x"):
        (versions / name).write_bytes(b"")
    assert grown.files() == [1, 2, 3, 7, 1234567]
    assert grown._next() == 1234568
    with grown.transaction() as db:
        db.execute("INSERT INTO purged VALUES (2000000)")
    assert grown._next() == 2000001


def test_leftovers_are_removed_and_what_cannot_be_is_told(grown, monkeypatch):
    versions = grown.folder / "versions"
    unfinished = [".000004.safetensors.123.partial", ".tmpAb3_de"]
    others = [
        ".tmpAb3_de7",
        "x.000004.safetensors.123.partial",
        "000007.safetensors",
        ".000004.safetensors.partial",
    ]
    for name in (*unfinished, *others):
        (versions / name).write_bytes(b"")
    (versions / ".tmpfolder"[:10]).mkdir()
    with grown.transaction() as db:
        db.executemany("INSERT INTO purged VALUES (?)", [(2,), (5,)])
    assert grown.tidy() == []
    left = {path.name for path in versions.iterdir()}
    assert left == {"000001.safetensors", "000003.safetensors", ".tmpfolder"[:10], *others}
    version_file(grown.folder, 5).mkdir()
    (told,) = grown.tidy()
    assert re.fullmatch(
        r"versions/000005\.safetensors could not be deleted \(.+\); the next start tries again", told
    )
    version_file(grown.folder, 5).rmdir()
    gone = [versions / "gone"]
    monkeypatch.setattr(grown, "_to_remove", lambda: gone)  # removed by somebody else in between
    assert grown.tidy() == []

    def unreadable():
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(grown, "_to_remove", unreadable)
    assert grown.tidy() == ["versions/ could not be searched for files to delete (Input/output error)"]

    def without_a_number():
        raise StorageFailed("the database is damaged")

    monkeypatch.setattr(grown, "_to_remove", without_a_number)
    assert grown.tidy() == ["versions/ could not be searched for files to delete (the database is damaged)"]


def test_a_failure_before_the_file_is_one_of_storage(grown, monkeypatch):
    def unreadable(folder):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("taer.serve.store.os.listdir", unreadable)
    with pytest.raises(
        StorageFailed, match=r"^the disk failed to read or write \(Input/output error\); nothing was changed$"
    ):
        grown.add_version(head(), 3, {})


def test_a_folder_has_one_at_a_time(tmp_path):
    held = only_one(tmp_path, "serve")
    assert (tmp_path / "serve.lock").exists()
    told = rf"^{re.escape(str(tmp_path))}: another taer serve is at work in this folder$"
    with pytest.raises(ValueError, match=told):
        only_one(tmp_path, "serve")
    only_one(tmp_path, "learner").close()
    waited = []

    def wait():
        with only_one(tmp_path, "serve", wait=True):
            waited.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    assert not waited
    held.close()
    thread.join(60)
    assert waited


def test_a_lock_that_fails_is_not_left_open(tmp_path, monkeypatch):
    opened = []

    def fail(file, how):
        opened.append(file)
        assert how == fcntl.LOCK_EX | fcntl.LOCK_NB
        raise OSError(37, "No locks available")

    monkeypatch.setattr("taer.serve.store.fcntl.flock", fail)
    with pytest.raises(OSError, match="No locks available"):
        only_one(tmp_path, "serve")
    assert opened[0].closed


def test_a_report_is_json_in_the_database(grown):
    (row,) = grown.rows("SELECT version, parent, created, report FROM versions WHERE version = 1")
    assert row[:2] == (1, 0)
    assert json.loads(row[3]) == {"backbone": "letters", "examples": 5}
