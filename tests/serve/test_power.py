"""Loss of power: whatever a disk may hold then, nothing that was acknowledged is lost, and nothing else appears."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from taer.serve.service import Service
from tests.power import Disk, Recorder, crashes, lay
from tests.serve.conftest import vectors
from tests.serve.disk import stored, whole

LONG = os.environ.get("TAER_TESTS") == "long"
SOME = 100  # disks of each day that `make test-all` opens


@pytest.fixture(params=[(), ("--promote", "ask")], ids=["at once", "when asked"])
def day(serve, tmp_path, request):
    """A service that did one of each thing: the record of its calls, and what it had answered after each."""
    top = tmp_path / "disk"
    top.mkdir()
    folder = top / "service"
    record = Recorder(tmp_path, top)
    server = serve(folder, *request.param, environment=record.environment)
    states = [None]  # before it has answered anything, anything may be there

    def ask(method, path, body=None):
        answer = server.http.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
        states.append(stored(folder))
        record.mark(len(states) - 1)

    for label in range(3):
        ask("POST", "/examples", {"label": str(label), "vectors": vectors(label, 4)})
    ask("POST", "/learn")
    ask("POST", "/examples", {"label": "3", "vectors": vectors(3, 4)})
    if request.param:
        ask("POST", "/learn")
        ask("POST", "/versions/candidate/reject")
        ask("POST", "/learn")
        ask("POST", "/versions/candidate/promote")
    else:
        ask("PATCH", "/examples/1", {"label": "1"})
        ask("DELETE", "/examples/14")
        ask("POST", "/learn")
        ask("PATCH", "/classes/3", {"label": "three"})
        ask("POST", "/rollback/1")
        ask("DELETE", "/classes/2")
        ask("POST", "/purge", {"ids": [2]})
    server.kill()
    return top, record.calls(), states


def check(folder, top, found, allowed, where):
    """A service starts on what was found and is in one of the states that are allowed; None allows any."""
    lay(found, top, folder)
    service = Service(folder / "service")
    state = stored(folder / "service")
    assert None in allowed or state in allowed, where
    assert whole(folder / "service"), where
    assert service.serving.version == state["current"][0][0], where
    assert not any("cannot be loaded" in notice for notice in service.notices), (where, service.notices)
    if service.serving.version:
        service.serving.head.predict(vectors(0, 1))
    service.close()
    shutil.rmtree(folder)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_with_the_power(day, tmp_path, record_property):
    top, calls, states = day
    disk, actual = Disk(), {str(path): path for path in top.rglob("*")}
    for call in calls:
        disk.do(call)
    for path, data in disk.found(None).items():  # the record is whole
        if not path.endswith("-shm"):  # written through a mapping, and made anew from the log
            assert data == (actual[path].read_bytes() if actual[path].is_file() else None), path
    everything = list(crashes(calls, per_call=4 if LONG else 1))
    rng = np.random.default_rng(0)
    picks = range(len(everything)) if LONG else sorted(rng.choice(len(everything), SOME, replace=False))
    for pick in picks:
        number, last, found = everything[pick]
        where = f"after call {number} ({calls[number - 1][:3]})"
        check(tmp_path / "crashed", top, found, states[last : last + 2], where)
    before = sum(not everything[pick][1] for pick in picks)
    print(
        f"{len(calls)} calls, {len(everything)} different disks, {len(picks)} opened, {before} of them before an answer"
    )
    record_property("disks that a loss of power could leave, opened", len(picks))
    assert before
    assert len(picks) - before > 50
