"""Every write of a command fails once: its files are the old ones or the new ones, and the cause is told."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys

import pytest

import taer
from taer.experiment.results import read_result
from taer.features import save_features
from taer.serve.tokens import stored
from tests.conftest import small_features
from tests.faults import KINDS, Faults

LONG = os.environ.get("TAER_TESTS") == "long"
TEXTS = "text,label,split\n" + "".join(
    f"{letter * 3} {number},{letter},{'test' if number == 3 else 'train'}\n"
    for letter in "abcd"
    for number in range(4)
)
EXTRACT = ("extract", "texts.csv", "--backbone", "letters", "--split-column", "split", "--out", "texts.safetensors")
RUN = ("run", "set.safetensors", "--methods", "ncm,bayes", "--tasks", "2", "--seeds", "1", "--jobs", "1")
FIT = ("fit", "set.safetensors", "--classes", "0:4", "--out", "head.safetensors")

WRITTEN = "the new file is there"
PROBES = small_features().test_x
GROW = ()  # not a command: the table gets another row

# The command that is tested, after those that make its inputs and what it replaces.
COMMANDS = {
    "extract": ([], EXTRACT),
    "extract --append": ([EXTRACT, GROW], (*EXTRACT, "--append")),
    "run": ([], RUN),
    "run more": ([RUN], (*RUN, "--seeds", "2")),
    "fit": ([], FIT),
    "fit again": ([FIT], (*FIT, "--classes", "0:5")),
    "learn": ([FIT], ("learn", "head.safetensors", "set.safetensors", "--classes", "4:6")),
    "forget": ([FIT], ("forget", "head.safetensors", "class1")),
    "predict": ([FIT], ("predict", "head.safetensors", "set.safetensors", "--out", "answers.csv")),
    "report": ([RUN], ("report", "results")),
    "report again": ([RUN, ("report", "results"), (*RUN, "--tasks", "5")], ("report", "results")),
    "token add": ([], ("token", "service", "add", "anna", "--role", "teach")),
    "token revoke": ([("token", "service", "add", "anna")], ("token", "service", "revoke", "anna")),
}
ONCE = ("learn", "forget", "token add", "token revoke")  # done again, they would do more, or refuse


class Commands:
    """Commands in a folder below ``work`` in which calls fail."""

    def __init__(self, work):
        self.folder = work / "files"
        self.faults = Faults(work, self.folder)
        settings = {"MPLCONFIGDIR": str(work), "SOURCE_DATE_EPOCH": "0"}  # so that figures have no date
        environment = {**os.environ, **self.faults.environment, **settings}
        self.folder.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.shaky"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def run(self, arguments):
        named = [str(self.folder / word) if _is_file(word) else word for word in arguments]
        if arguments[0] == "run":
            named += ["--out", str(self.folder / "results")]
        print(json.dumps(named), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def prepared(self, before):
        """A copy of a folder with its inputs and what earlier commands wrote."""
        (self.folder / "service").mkdir()
        (self.folder / "texts.csv").write_text(TEXTS)
        save_features(small_features(), self.folder / "set.safetensors")
        for arguments in before:
            if arguments == GROW:
                (self.folder / "texts.csv").write_text(TEXTS + "hh,d,train\n")
            else:
                answer = self.run(arguments)
                assert answer["code"] == 0, answer
        return shutil.copytree(self.folder, self.folder.with_name("prepared"))

    def restore(self, prepared):
        shutil.rmtree(self.folder)
        shutil.copytree(prepared, self.folder)

    def found(self):
        """What each file has."""
        return {
            str(path.relative_to(self.folder)): _content(path)
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and path.suffix != ".lock"
        }

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


def _is_file(word):
    return word in ("results", "service") or word.endswith((".csv", ".safetensors"))


def _content(path):
    """The bytes of a file; of a head and of a result, what does not change from one run to the next."""
    if path.name == "head.safetensors":
        head = taer.load(path)
        return head.n_tasks_, head.classes_.tolist(), head.scores(PROBES).tobytes()
    if path.suffix == ".json" and (result := read_result(path)):
        return {name: value for name, value in result.items() if name not in ("seconds", "created")}
    if path.name == "tokens.json":
        return [(token.name, token.role) for token in stored(path.parent)]
    return path.read_bytes()


@pytest.fixture
def commands(tmp_path):
    running = Commands(tmp_path)
    yield running
    running.close()


def in_steps(found):
    """Files that a command finishes one after the other and keeps: results, chunks of an extraction, answers so far."""
    return {name for name in found if (name.startswith("results/") and name.endswith(".json")) or ".parts" in name}


def share(name, count):
    """How many calls fail; of a report, which takes long, fewer."""
    return None if LONG else count // 3 if name.startswith("report") else count


def check(commands, old, new, answer, error):
    """After a call that failed: all files of before or all of after, nothing else, and the cause."""
    now = commands.found()
    if answer["code"] == 0:
        assert {name for name in now.keys() - new.keys() if ".partial/" not in name} == set()
        assert new.items() <= now.items()
        return
    assert answer["code"] == 2, answer
    assert os.strerror(error) in answer["told"], answer
    assert "\n" not in answer["told"].strip(), answer
    kept = in_steps(now)
    for name in kept & old.keys() & new.keys():
        assert now[name] in (old[name], new[name]), name
    whole = {name: content for name, content in now.items() if name not in kept}
    assert whole in [
        {name: it for name, it in state.items() if name not in in_steps(state)} for state in (old, new)
    ]


def sweep(commands, name, count, *kinds, error=errno.EIO, **how):
    """Let calls of a command fail, one per run: ``count`` of them, drawn with a seed, or all."""
    before, arguments = COMMANDS[name]
    prepared = commands.prepared(before)
    old = commands.found()
    with commands.faults.failing(0, *kinds) as seen:
        assert commands.run(arguments)["code"] == 0
    new, calls = commands.found(), range(1, seen.calls + 1)
    assert old != new
    assert len(calls) > 0
    chosen = calls if count is None else sorted(random.Random(0).sample(calls, min(count, len(calls))))
    codes = []
    for nth in chosen:
        commands.restore(prepared)
        with commands.faults.failing(nth, *kinds, error=error, **how) as seen:
            answer = commands.run(arguments)
        assert seen.failed, nth
        check(commands, old, new, answer, error)
        codes.append(answer["code"])
        if WRITTEN in answer["told"]:
            assert commands.found() == new
        if name in ONCE and (answer["code"] == 0 or WRITTEN in answer["told"]):
            continue
        again = commands.run(arguments)
        assert again["code"] == 0, (nth, again)
        assert commands.found() == new, nth
    print(
        f"{name}: {len(codes)} of {len(calls)} calls failed, {codes.count(2)} were told and the rest made no difference"
    )
    return codes


@pytest.mark.system
@pytest.mark.parametrize("name", ["learn", "extract"])
def test_a_call_that_fails_is_told_and_leaves_the_old_files_or_the_new_ones(commands, name):
    assert 2 in sweep(commands, name, 6, error=errno.ENOSPC)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_every_call_of_every_command_fails_once(commands, name, error, record_property):
    codes = sweep(commands, name, share(name, 9), error=error)
    record_property("calls of commands that failed once", len(codes))
    assert 2 in codes


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_every_write_of_every_command_is_cut_short_once(commands, name, record_property):
    codes = sweep(commands, name, share(name, 3), "write", short=True)
    record_property("writes of commands that were cut short", len(codes))
    assert set(codes) == {0}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_the_disk_is_full_from_any_call_on(commands, name, record_property):
    kinds = set(KINDS) - {"unlink"}
    codes = sweep(commands, name, share(name, 3), *kinds, error=errno.ENOSPC, from_then_on=True)
    record_property("moments at which a command's disk became full", len(codes))
    assert 2 in codes
