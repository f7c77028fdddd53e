"""A service on a temporary folder, in this process and as a real server."""

from __future__ import annotations

import base64
import io
import os
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette")
import httpx2 as httpx
from starlette.testclient import TestClient

from taer.serve.app import create_app
from taer.serve.learner import Learner
from taer.serve.service import Service
from tests.conftest import blobs, wait_until

TOKEN = "secret"
AUTH = {"Authorization": f"Bearer {TOKEN}"}


def vectors(label: int, count: int = 8, seed: int = 0) -> list[list[float]]:
    """Samples of one of five well separated classes."""
    X, y = blobs(5, 60, seed=0)
    rows = np.flatnonzero(y == label)
    return X[np.random.default_rng(seed).choice(rows, count, replace=False)].tolist()


def png(image: Any, format: str = "PNG") -> str:
    buffer = io.BytesIO()
    image.save(buffer, format)
    return base64.b64encode(buffer.getvalue()).decode()


class Shared(Learner):
    """Learns in one process for all services that tests open here, as for the heads of one server: it starts once."""

    _process_of_all = Learner(None)
    _one_at_a_time = threading.Lock()

    def start(self) -> None:
        self._process_of_all.start()

    def stop(self) -> None:
        pass

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        with self._one_at_a_time:
            return self._process_of_all.ask({"folder": str(self._folder), **order})


@pytest.fixture
def open_service(tmp_path):
    """A client of a service in this process, which has the token; closed at the end of the test.

    With ``learner=None`` it starts a learning process of its own.
    """
    with ExitStack() as everything:

        def start(**options):
            folder = tmp_path / "service"
            service = Service(folder, **{"learner": Shared(folder), **options})
            client = TestClient(
                create_app(service, TOKEN),
                base_url="http://127.0.0.1",
                headers=AUTH,
                raise_server_exceptions=False,
            )
            running = everything.enter_context(ExitStack())
            running.enter_context(client)
            client.service, client.stop = service, running.close
            return client

        yield start


@pytest.fixture
def client(open_service):
    return open_service()


def on_free_port(start: Callable[[int], subprocess.Popen]) -> tuple[subprocess.Popen, int]:
    """Start a program that is told its port, and wait until it listens; if another one was faster, on another port.

    Ports that the system gives away by itself, to other tests, are higher.
    """
    for _ in range(5):
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                continue
        process = start(port)

        def listens(process=process, port=port) -> bool:
            with socket.socket() as trial:
                return process.poll() is not None or trial.connect_ex(("127.0.0.1", port)) == 0

        wait_until(listens)
        if process.poll() is None:
            return process, port
    raise AssertionError(f"the program ended with {process.returncode}")


class Server:
    """A real ``taer serve`` process."""

    def __init__(
        self,
        folder,
        *options: str,
        program: Sequence[str] = ("-m", "taer", "serve"),
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        command = [python, *program, str(folder), "--port", "0", "--token", TOKEN, *options]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        too_late = threading.Timer(300, self.process.kill)  # which ends the line, too
        too_late.start()
        line = self.process.stdout.readline()
        too_late.cancel()
        found = re.search(r"(http://\S+?)/#token=", line)
        assert found, line
        self.url = found[1]
        self.http = httpx.Client(base_url=self.url, headers=AUTH, timeout=60)

    def kill(self) -> None:
        """``kill -9``."""
        self.process.kill()
        self.close()

    def close(self) -> None:
        self.http.close()
        self.process.terminate()
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture
def serve(tmp_path):
    """Start real servers; stopped at the end of the test."""
    servers = []

    def start(folder=tmp_path / "service", *options, **more):
        servers.append(Server(folder, *options, **more))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
