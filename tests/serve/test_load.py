"""Fifty clients at once: nothing grows, no answer is lost, and a full disk in the middle costs only what it refuses."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pytest

from tests.conftest import wait_until
from tests.faults import KINDS, Faults
from tests.serve.conftest import AUTH, vectors

LONG = os.environ.get("TAER_TESTS") == "long"
SECONDS = 1800 if LONG else 30  # of each of the two tests
CLIENTS = 50
GROWTH = 40 << 20  # bytes of memory that caches of a busy server may take after a warm-up


@dataclass
class Seen:
    """What the clients were told."""

    latencies: list[float] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # additions while the disk was full
    wrong: list[str] = field(default_factory=list)  # anything that should not have been answered
    versions: list[int] = field(default_factory=list)
    last: dict[int, float] = field(default_factory=dict)  # when each client was last answered


def told_if_it_ends(work):
    """A client that ends with an exception says so; a thread alone would end in silence."""

    @wraps(work)
    def working(url, number, seen, stop):
        try:
            work(url, number, seen, stop)
        except Exception as error:
            seen.wrong.append(f"client {number}: {error!r}")

    return working


@told_if_it_ends
def client(url, number, seen, stop):
    """Ask and, every tenth time, add an example."""
    rng = np.random.default_rng(number)
    with httpx.Client(base_url=url, headers=AUTH, timeout=60) as http:
        while not stop.is_set():
            label = int(rng.integers(3))
            row = vectors(label, 1, seed=int(rng.integers(1000)))
            if rng.random() < 0.1:
                answer = http.post("/examples", json={"label": str(label), "vectors": row})
                seen.last[number] = time.perf_counter()
                if answer.status_code == 200:
                    seen.ids += answer.json()["ids"]
                elif answer.status_code == 503:
                    seen.refused.append(answer.json()["detail"])
                else:
                    seen.wrong.append(answer.text)
                continue
            start = time.perf_counter()
            answer = http.post("/predict", json={"vectors": row})
            seen.last[number] = time.perf_counter()
            seen.latencies.append(seen.last[number] - start)
            if answer.status_code != 200 or answer.json()["predictions"][0]["label"] != str(label):
                seen.wrong.append(answer.text)


@told_if_it_ends
def teacher(url, number, seen, stop):
    with httpx.Client(base_url=url, headers=AUTH, timeout=60) as http:
        while not stop.is_set():
            answer = http.post("/learn")
            if answer.status_code == 200:
                seen.versions.append(answer.json()["version"])
            elif answer.status_code not in (409, 503):  # nothing waits, or the disk is full
                seen.wrong.append(answer.text)
            time.sleep(0.2)


def size(server):
    """Resident bytes of the server and of the process that learns, and open files of the server."""
    own, pages = server.process.pid, 0
    processes = {str(own)}  # a child is listed by the thread that started it
    for children in Path(f"/proc/{own}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            processes.update(children.read_text().split())
    for process in processes:
        with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{process}/statm") as file:
            pages += int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{own}/fd"))


def largest(server, seconds):
    """Wait, and return the most memory and the most open files meanwhile."""
    sizes, end = [size(server)], time.perf_counter() + seconds
    while time.perf_counter() < end:
        time.sleep(min(0.2, seconds / 10))
        sizes.append(size(server))
    return tuple(map(max, zip(*sizes, strict=True)))


@pytest.fixture
def busy(serve, tmp_path):
    """A server that has learned three classes, with clients; the faults of its storage, and what they were told."""
    folder = tmp_path / "service"
    faults = Faults(tmp_path, folder)
    server = serve(folder, environment=faults.environment)
    for label in range(3):
        server.http.post("/examples", json={"label": str(label), "vectors": vectors(label, 8)})
    assert server.http.post("/learn").status_code == 200
    seen, stop = Seen(), threading.Event()
    threads = [threading.Thread(target=client, args=(server.url, n, seen, stop)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()

    def end():
        stop.set()
        for thread in threads:
            thread.join(70)
        threads.clear()

    yield server, faults, seen, stop, threads, end
    end()


def check(folder, seen, last_third, before, after):
    """Nothing was answered wrongly, what was acknowledged is there, once, beside nothing else, and nothing grew."""
    assert not seen.wrong, seen.wrong[:3]
    silent = [number for number in range(CLIENTS) if seen.last.get(number, 0) < last_third]
    assert not silent, f"clients without an answer in the last third: {silent}"
    assert after[0] - before[0] < GROWTH
    assert after[1] <= before[1] + 5
    assert np.percentile(seen.latencies, 99) < 5
    with closing(sqlite3.connect(folder / "taer.db")) as database:
        stored = [number for (number,) in database.execute("SELECT id FROM examples WHERE id > 24")]
        known = [number for (number,) in database.execute("SELECT version FROM versions")]
    assert sorted(seen.ids) == sorted(stored)
    assert set(seen.versions) <= set(known)


def told(seen, what, before, after, record_property):
    record_property("answers to fifty clients", len(seen.latencies))
    record_property("examples that they added", len(seen.ids))
    record_property("seconds of that load", SECONDS)
    p50, p99 = np.percentile(seen.latencies, [50, 99])
    print(
        f"{what}, {SECONDS} s: {len(seen.latencies)} answers (median {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms), "
        f"{len(seen.ids)} additions, {len(seen.refused)} refused, {len(seen.versions)} versions; "
        f"memory {before[0] >> 20} to {after[0] >> 20} MB, files {before[1]} to {after[1]}"
    )


@pytest.mark.slow
def test_fifty_clients(busy, tmp_path, record_property):
    server, _, seen, _, _, end = busy
    before = largest(server, SECONDS / 3)
    time.sleep(SECONDS / 3)
    last_third = time.perf_counter()
    after = largest(server, SECONDS / 3)
    end()
    told(seen, "fifty clients", before, after, record_property)
    check(tmp_path / "service", seen, last_third, before, after)
    assert not seen.refused
    assert seen.ids


@pytest.mark.slow
def test_fifty_clients_while_it_learns_and_the_disk_is_full_for_a_while(busy, tmp_path, record_property):
    server, faults, seen, stop, threads, end = busy
    threads.append(threading.Thread(target=teacher, args=(server.url, CLIENTS, seen, stop)))
    threads[-1].start()
    wait_until(lambda: seen.versions)
    before = largest(server, SECONDS / 3)
    with faults.failing(1, *(set(KINDS) - {"unlink"}), error=errno.ENOSPC, from_then_on=True):
        time.sleep(SECONDS / 3)
        answered = len(seen.latencies)
    learned = len(seen.versions)
    refused, added = len(seen.refused), len(seen.ids)
    last_third = time.perf_counter()
    after = largest(server, SECONDS / 3)
    wait_until(lambda: len(seen.versions) > learned)
    end()
    told(seen, "while it learns, with a full disk", before, after, record_property)
    check(tmp_path / "service", seen, last_third, before, after)
    assert refused
    assert all("nothing was changed" in detail for detail in seen.refused)
    assert len(seen.latencies) > answered
    assert len(seen.ids) > added  # and as soon as there is room again, it takes examples and learns
