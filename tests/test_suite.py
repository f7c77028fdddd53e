"""What the tests may not do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tools import counts


def test_no_test_reaches_the_network():
    with pytest.raises(AssertionError, match=r"connects to 192\.0\.2\.1"), socket.socket() as sock:
        sock.connect(("192.0.2.1", 80))  # an address for examples, which nobody has
    with pytest.raises(AssertionError, match="connects to"), socket.socket() as sock:
        sock.connect_ex(("192.0.2.1", 80))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass


def test_no_process_that_a_test_starts_reaches_the_network():
    ask = "from urllib.request import getproxies, urlopen; print(getproxies()); urlopen('http://192.0.2.1', timeout=5)"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    assert "'http': 'http://127.0.0.1:9'" in done.stdout
    assert "Connection refused" in done.stderr  # by the proxy, which is not there


def test_the_home_folder_is_not_the_user_s():
    assert Path.home() == Path(os.environ["HOME"])
    assert "pytest" in str(Path.home())


def test_counts_of_reports_and_of_mutants(tmp_path):
    """What tests recorded is added up, and a mutant that no test reaches was not run."""
    case = '<testcase classname="tests.serve.test_load" name="test_{}"><properties><property name="answers" value="{}"/>'
    (tmp_path / "one.xml").write_text(
        '<testsuites><testsuite timestamp="2026-11-19T10:00:00" time="90.5">'
        + "".join(case.format(name, count) + "</properties></testcase>" for name, count in (("a", 1200), ("b", 34)))
        + '<testcase classname="tests.test_files" name="c"><skipped/></testcase></testsuite></testsuites>'
    )
    told = counts.counts([tmp_path / "one.xml", tmp_path / "one.xml"])
    assert "2026-11-19" in told[0]
    assert "4 slow tests in 3 minutes" in told[0]
    assert told[-1] == "| answers | 2,468 | `tests/serve/test_load.py` |"
    (tmp_path / "src/taer").mkdir(parents=True)
    codes = dict(zip("abcdefg", (1, 1, 0, 33, None, -24, 1), strict=True))
    (tmp_path / "src/taer/files.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    (tmp_path / "src/taer/rows.py.meta").write_text(json.dumps({"exit_code_by_key": {}}))
    assert counts.mutants(tmp_path)[2:] == ["| `files.py` | 7 | 5 | 4 | 1 | 1 |"]
