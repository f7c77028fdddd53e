"""A service over HTTP through any sequence of operations, beside dictionaries of what it should know.

Two clients, restarts and ``kill -9`` in between. After each step the service lists what the dictionaries have; at the end
the head of every version has learned just the examples that they say.
"""

from __future__ import annotations

import os
import secrets
import signal
import tarfile
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import httpx2 as httpx
import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from taer.serve.backup import back_up
from taer.serve.service import Service
from taer.serve.store import Store
from tests.serve.conftest import AUTH, Server, vectors

LONG = os.environ.get("TAER_TESTS") == "long"
EXAMPLES, STEPS = (60, 30) if LONG else (12, 20)
# What a run must have done; a kill comes before or after the learning is done, as the machine's speed has it.
RULES = {
    "add", "add, two at once", "correct what waits", "discard", "delete", "relabel", "purge", "learn",
    "learn while another adds", "rename", "forget", "rollback", "promote", "reject", "refused", "restart", "kill",
    "backup",
}  # fmt: skip
LABELS = ["a", "b", "c", "d"]
labels = st.sampled_from(LABELS)
numbers = st.integers(0, 10**6)  # picks one of those that are there
clients = st.integers(0, 1)
Labels = dict[int, str]  # by the number of an example


@dataclass
class Model:
    """What the service should know."""

    waiting: Labels = field(default_factory=dict)
    current: int = 0
    candidate: int | None = None
    parents: dict[int, int] = field(default_factory=dict)  # of each version
    taught: dict[int, Labels] = field(default_factory=lambda: {0: {}})  # what each version has, learned or held out
    learner: dict[int, int] = field(default_factory=dict)  # the version that learned an example
    held: set[int] = field(default_factory=set)  # examples that are held out

    def now(self) -> Labels:
        return self.taught[self.current]

    def used(self) -> Counter[str]:
        """How many examples of each class the head of the current version has learned; others are held out."""
        return Counter(label for number, label in self.now().items() if number not in self.held)

    def version(self, number: int, content: Labels, staged: bool = False) -> None:
        self.parents[number], self.taught[number] = self.current, content
        if staged:
            self.candidate = number
        else:
            self.current = number

    def lineage(self, version: int) -> list[int]:
        return [version, *self.lineage(self.parents[version])] if version else [0]

    def drop(self, versions: set[int]) -> None:
        for version in versions:
            del self.parents[version], self.taught[version]
        if self.candidate in versions:
            self.candidate = None

    def purge(self, ids: set[int]) -> None:
        gone = {self.learner[number] for number in ids if number in self.learner and number not in self.held}
        while more := {version for version, parent in self.parents.items() if parent in gone} - gone:
            gone |= more
        family = set(self.lineage(self.current))
        leaves = sorted(gone - set(self.parents.values()), reverse=True)
        again = {n: label for n, label in self.now().items() if self.learner[n] in gone}
        for leaf in leaves:
            for n, label in self.taught[leaf].items():
                if self.learner[n] in gone - family:
                    again.setdefault(n, label)
        self.current = next(version for version in self.lineage(self.current) if version not in gone)
        self.waiting |= again
        lost = ids | {n for n, version in self.learner.items() if version in gone and n not in again}
        for number in lost | again.keys():
            self.learner.pop(number, None)
            self.held.discard(number)
        for number in lost:
            self.waiting.pop(number, None)
        self.drop(gone)
        for content in self.taught.values():
            for number in lost:
                content.pop(number, None)


class Machine(RuleBasedStateMachine):
    """Rules with a condition are only tried when the service must accept; :meth:`refused` has what it must not."""

    done: ClassVar[Counter[str]] = Counter()

    @initialize(ask=st.booleans())
    def start(self, ask):
        self.work = tempfile.TemporaryDirectory()
        self.folder = Path(self.work.name) / "service"
        self.options = ("--promote", "ask") if ask else ()
        self.model, self.ask_first, self.seed = Model(), ask, 0
        self._serve()
        for label in ("a", "b"):
            self.add(label, 8, 0)
        self.learn(0)

    def _serve(self):
        self.server = Server(self.folder, *self.options)
        self.clients = [self.server.http, httpx.Client(base_url=self.server.url, headers=AUTH, timeout=60)]

    def _stop(self):
        self.clients[1].close()
        self.server.close()

    def _ask(self, client, method, path, body=None, code=200):
        answer = self.clients[client].request(method, path, json=body)
        assert answer.status_code == code, (method, path, body, answer.text)
        return answer.json()

    def _vectors(self, label, count):
        self.seed += 1
        return vectors(LABELS.index(label), count, seed=self.seed)

    def _count(self, name):
        type(self).done[name] += 1

    # What changes examples

    @rule(label=labels, count=st.integers(1, 9), client=clients)
    def add(self, label, count, client):
        answer = self._ask(client, "POST", "/examples", {"label": label, "vectors": self._vectors(label, count)})
        assert not set(answer["ids"]) & (self.model.waiting.keys() | self.model.learner.keys())
        self.model.waiting |= dict.fromkeys(answer["ids"], label)
        assert answer["waiting"] == len(self.model.waiting)
        self._count("add")

    @rule(label=labels, other=labels)
    def add_at_once(self, label, other):
        """Two clients at the same moment."""
        bodies = [{"label": name, "vectors": self._vectors(name, 3)} for name in (label, other)]
        with ThreadPoolExecutor(2) as pool:
            asked = [
                pool.submit(self._ask, client, "POST", "/examples", body) for client, body in enumerate(bodies)
            ]
        found = [answer.result()["ids"] for answer in asked]
        assert not set(found[0]) & set(found[1])
        for ids, name in zip(found, (label, other), strict=True):
            self.model.waiting |= dict.fromkeys(ids, name)
        self._count("add, two at once")

    @precondition(lambda self: self.model.waiting)
    @rule(pick=numbers, label=st.none() | labels, client=clients)
    def correct_waiting(self, pick, label, client):
        number = sorted(self.model.waiting)[pick % len(self.model.waiting)]
        if label is None:
            self._ask(client, "DELETE", f"/examples/{number}")
            del self.model.waiting[number]
        else:
            self._ask(client, "PATCH", f"/examples/{number}", {"label": label})
            self.model.waiting[number] = label
        self._count("correct what waits")

    @precondition(lambda self: self.model.waiting)
    @rule(client=clients)
    def discard(self, client):
        assert self._ask(client, "DELETE", "/examples") == {"discarded": len(self.model.waiting)}
        self.model.waiting.clear()
        self._count("discard")

    def _large(self):
        """Examples of classes that keep others after one is gone."""
        used = self.model.used()
        return [n for n, label in sorted(self.model.now().items()) if used[label] > 1 or n in self.model.held]

    @precondition(lambda self: self.model.candidate is None and self._large())
    @rule(pick=numbers, label=st.none() | labels, client=clients)
    def correct(self, pick, label, client):
        """Relabel or delete an example that was learned: a new version."""
        of = self._large()
        number = of[pick % len(of)]
        if label == self.model.now()[number]:
            self._ask(client, "PATCH", f"/examples/{number}", {"label": label}, 409)
            return
        content = {**self.model.now(), number: label}
        if label is None:
            del content[number]
            made = self._ask(client, "DELETE", f"/examples/{number}")
        else:
            made = self._ask(client, "PATCH", f"/examples/{number}", {"label": label})
        self.model.version(made["version"], content)
        self._count("delete" if label is None else "relabel")

    @rule(pick=numbers, count=st.integers(1, 2), client=clients)
    def purge(self, pick, count, client):
        there = sorted({*self.model.waiting, *self.model.learner})
        ids = set((there[pick % len(there) :])[:count]) if there else set()
        if not ids or pick % 3:  # it undoes much
            return
        before = self.model.parents.keys() - {0}
        self.model.purge(ids)
        answer = self._ask(client, "POST", "/purge", {"ids": sorted(ids)})
        assert set(answer["versions"]) == before - self.model.parents.keys()
        assert (answer["current"], answer["waiting"]) == (self.model.current, len(self.model.waiting))
        self._count("purge")

    # What makes versions

    @precondition(lambda self: self.model.candidate is None and self.model.waiting)
    @rule(client=clients)
    def learn(self, client):
        self._learned(self._ask(client, "POST", "/learn"), dict(self.model.waiting))
        self._count("learn")

    def _learned(self, made, new):
        number = made["version"]
        assert made["candidate"] == (self.ask_first and self.model.current > 0)
        assert made["version"] not in self.model.parents
        self.model.learner |= dict.fromkeys(new, number)
        self.model.waiting = {n: label for n, label in self.model.waiting.items() if n not in new}
        with closing(Store(self.folder)) as store:
            self.model.held |= {example.id for example in store.held_back(number)}
        self.model.version(number, {**self.model.now(), **new}, made["candidate"])

    @precondition(lambda self: self.model.candidate is None and self.model.waiting)
    @rule(label=labels)
    def learn_while_another_adds(self, label):
        """What arrives meanwhile is learned, or waits, but not half of it."""
        body = {"label": label, "vectors": self._vectors(label, 3)}
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self._ask, 1, "POST", "/examples", body)
            made = self._ask(0, "POST", "/learn")
        ids = set(asked.result()["ids"])
        self.model.waiting |= dict.fromkeys(ids, label)
        with closing(Store(self.folder)) as store:
            waiting = {example.id for example in store.pending()}
        assert waiting & ids in (set(), ids)
        self._learned(made, {n: name for n, name in self.model.waiting.items() if n not in waiting})
        self._count("learn while another adds")

    def _free(self):
        """Classes of the head without waiting examples; a label that only held-out examples got is no class of it."""
        return sorted(self.model.used().keys() - set(self.model.waiting.values()))

    @precondition(lambda self: self.model.candidate is None and self._free())
    @rule(pick=numbers, client=clients)
    def rename(self, pick, client):
        old = self._free()[pick % len(self._free())]
        unused = sorted(set(LABELS) - set(self.model.now().values()))
        if not unused:
            return
        made = self._ask(client, "PATCH", f"/classes/{old}", {"label": unused[0]})
        content = {n: unused[0] if label == old else label for n, label in self.model.now().items()}
        self.model.version(made["version"], content)
        self._count("rename")

    @precondition(lambda self: self.model.candidate is None and self._free() and len(self.model.used()) > 1)
    @rule(pick=numbers, client=clients)
    def forget(self, pick, client):
        old = self._free()[pick % len(self._free())]
        made = self._ask(client, "DELETE", f"/classes/{old}")
        self.model.version(made["version"], {n: label for n, label in self.model.now().items() if label != old})
        self._count("forget")

    @precondition(lambda self: self.model.candidate is None and self.model.parents)
    @rule(pick=numbers, client=clients)
    def rollback(self, pick, client):
        versions = sorted(self.model.parents)
        self.model.current = versions[pick % len(versions)]
        assert self._ask(client, "POST", f"/rollback/{self.model.current}")["current"] == self.model.current
        self._count("rollback")

    @precondition(lambda self: self.model.candidate is not None)
    @rule(promoted=st.booleans(), client=clients)
    def decide(self, promoted, client):
        number = self.model.candidate
        if promoted:
            assert self._ask(client, "POST", "/versions/candidate/promote")["current"] == number
            self.model.current, self.model.candidate = number, None
        else:
            back = {n: label for n, label in self.model.taught[number].items() if self.model.learner[n] == number}
            self.model.waiting |= back
            for n in back:
                del self.model.learner[n]
                self.model.held.discard(n)
            self.model.drop({number})
            assert self._ask(client, "POST", "/versions/candidate/reject") == {"waiting": len(self.model.waiting)}
        self._count("promote" if promoted else "reject")

    # What changes nothing

    @rule(client=clients)
    def refused(self, client):
        self._ask(client, "PATCH", "/examples/999999", {"label": "a"}, 404)
        self._ask(client, "POST", "/purge", {"ids": [999999]}, 404)
        self._ask(client, "PATCH", "/classes/none", {"label": "a"}, 404)
        short = {"label": "a", "vectors": [[1.0, 2.0]]}
        if self.model.current or self.model.waiting:
            self._ask(client, "POST", "/examples", short, 422)
        else:  # an empty service takes vectors of any width, and then of this one
            self._ask(client, "POST", "/examples", short)
            self._ask(client, "POST", "/examples", {"label": "a", "vectors": self._vectors("a", 1)}, 422)
            for version in sorted(self.model.parents)[:1]:
                self._ask(client, "POST", f"/rollback/{version}", None, 409)
            self._ask(client, "DELETE", "/examples")
        self._ask(client, "POST", "/rollback/999999", None, 409 if self.model.candidate else 404)
        if self.model.candidate or not self.model.waiting:
            self._ask(client, "POST", "/learn", None, 409)
        self._count("refused")

    @rule()
    def restart(self):
        self._stop()
        self._serve()
        self._count("restart")

    @rule(label=labels, wait=st.floats(0, 0.02))
    def kill(self, label, wait):
        """While examples arrive: all of them are there, or none if that was not answered."""
        rows, answers = self._vectors(label, 2), []

        def add():
            with suppress(httpx.HTTPError):
                answers.append(self.clients[1].post("/examples", json={"label": label, "vectors": rows}))

        thread = threading.Thread(target=add)
        thread.start()
        time.sleep(wait)
        os.killpg(self.server.process.pid, signal.SIGKILL)
        thread.join()
        self._stop()
        self._serve()
        listed, _ = self._listed()
        new = {n: name for n, name in listed.items() if n not in self.model.waiting}
        assert Counter(new.values()) in (Counter(), Counter({label: 2}))
        for answer in answers:
            assert answer.json()["ids"] == sorted(new), answer.text
        self.model.waiting |= new
        self._count("kill")

    @precondition(lambda self: self.model.candidate is None and self.model.waiting)
    @rule(wait=st.floats(0, 0.1))
    def kill_while_it_learns(self, wait):
        """It has learned all that waited, or nothing."""
        made = {}

        def learn():
            with suppress(httpx.HTTPError):
                answer = self.clients[1].post("/learn")
                made.update(answer.json() if answer.status_code == 200 else {})

        thread = threading.Thread(target=learn)
        thread.start()
        time.sleep(wait)
        os.killpg(self.server.process.pid, signal.SIGKILL)
        thread.join()
        self._stop()
        self._serve()
        history = self._ask(0, "GET", "/history")["versions"]
        new = [one for one in history if one["version"] not in self.model.parents]
        assert len(new) == 1 or not made, made
        for one in new:
            self._learned(one, dict(self.model.waiting))
        self._count("kill while it learns, " + ("done" if new else "not done"))

    @rule()
    def back_up(self):
        """What a backup brings back is what was there."""
        with tempfile.TemporaryDirectory() as name:
            back_up(self.folder, Path(name) / "service.tar")
            with tarfile.open(Path(name) / "service.tar") as archive:
                archive.extractall(Path(name) / "again", filter="data")
            (folder,) = {path.parent for path in (Path(name) / "again").rglob("taer.db")}
            with closing(Service(folder)) as again:
                assert again.serving.version == self.model.current
                assert {example.id: example.label for example in again.store.pending()} == self.model.waiting
        self._count("backup")

    # What must hold

    def _listed(self):
        found = self._ask(0, "GET", "/examples?limit=1000")["examples"]
        waiting = {one["id"]: one["label"] for one in found if one["version"] is None}
        return waiting, {one["id"]: one["label"] for one in found if one["version"] is not None}

    @invariant()
    def agrees(self):
        if not hasattr(self, "server"):
            return
        waiting, taught = self._listed()
        assert waiting == self.model.waiting
        assert taught == self.model.now()
        history = self._ask(1, "GET", "/history")
        assert history["current"] == self.model.current
        assert {one["version"]: one["parent"] for one in history["versions"]} == self.model.parents
        assert [one["version"] for one in history["versions"] if one["candidate"]] == [
            number for number in [self.model.candidate] if number
        ]
        used = self.model.used()
        classes = self._ask(0, "GET", "/classes")["classes"]
        assert {row["label"]: row["examples"] for row in classes if row["examples"]} == used
        assert {row["label"]: row["waiting"] for row in classes if row["waiting"]} == Counter(waiting.values())
        if self.model.current:
            answer = self._ask(1, "POST", "/predict", {"vectors": vectors(0, 1)})
            assert answer["version"] == self.model.current
            assert answer["predictions"][0]["label"] in set(taught.values())

    def teardown(self):
        if hasattr(self, "server"):
            self._stop()
            with closing(Store(self.folder)) as store:
                for version, content in self.model.taught.items():
                    self._check_version(store, version, content)
        if hasattr(self, "work"):
            self.work.cleanup()

    def _check_version(self, store, version, content):
        """The database and the head of a version agree with the dictionaries."""
        assert {example.id: example.label for example in store.taught(version)} == content, version
        if version:
            head = store.load(version)
            learned = {name: head.densities_.counts[at] for at, (name, _) in enumerate(head.learning_order_)}
            used = Counter(label for n, label in content.items() if n not in self.model.held)
            assert learned == used, version


def tour(kind, ask):
    """Each rule at least once, because a short random run may leave some out."""
    machine = kind()
    machine.start(ask)
    steps = [
        lambda: machine.add("c", 8, 1),
        lambda: machine.correct_waiting(0, "a", 0),
        lambda: machine.learn(1),
        *(
            [lambda: machine.decide(False, 0), lambda: machine.learn(0), lambda: machine.decide(True, 1)]
            if ask
            else []
        ),
        machine.restart,
        machine.back_up,
        lambda: machine.add_at_once("a", "b"),
        lambda: machine.discard(0),
        lambda: machine.correct(0, None, 1),
        lambda: machine.correct(0, "d", 0),
        lambda: machine.forget(0, 0),
        lambda: machine.rename(0, 1),
        lambda: machine.rollback(0, 0),
        lambda: machine.kill("b", 0.01),
        lambda: machine.add("a", 3, 0),
        lambda: machine.purge(0, 1, 0),
        lambda: machine.refused(1),
        lambda: machine.add("b", 3, 0),
        lambda: machine.kill_while_it_learns(0.05),
        *([] if ask else [lambda: machine.add("a", 3, 0), lambda: machine.learn_while_another_adds("b")]),
    ]
    try:
        for step in steps:
            step()
            machine.agrees()
    finally:
        machine.teardown()


@pytest.mark.slow
def test_a_service_agrees_with_dictionaries(capsys, record_property):
    quiet = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=not LONG,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    Machine.done, machine = Counter(), Machine
    if LONG:  # other services each time
        number = int(os.environ.get("MACHINE_SEED", secrets.randbits(32)))
        machine = seed(number)(Machine)
        with capsys.disabled():
            print(f"\nMACHINE_SEED={number}")
    run_state_machine_as_test(machine, settings=quiet)
    for ask in (False, True):
        tour(Machine, ask)
    with capsys.disabled():
        print(f"\n{EXAMPLES} services, {Machine.done.total()} steps: {dict(Machine.done.most_common())}")
    record_property("operations of services beside dictionaries", Machine.done.total())
    assert Machine.done.keys() >= RULES
    assert any(name.startswith("kill while it learns") for name in Machine.done)
