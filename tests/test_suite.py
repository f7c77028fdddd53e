"""What the tests may not do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest


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
