"""Clients that connect and say nothing, or too little, or too slowly."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from taer.serve import connection, gate
from taer.serve.app import create_app
from taer.serve.run import listen, server
from taer.serve.service import Service
from tests.serve.conftest import TOKEN

UPLOAD = (
    b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
)


def address(server):
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return host, int(port)


@pytest.fixture
def impatient(tmp_path, monkeypatch):
    """The address of a server in this process that waits half a second for headers and one for a body."""
    monkeypatch.setattr(connection, "HEADER_SECONDS", 0.5)
    monkeypatch.setattr(connection, "BODY_SECONDS", 1.0)
    running, listener = server(create_app(Service(tmp_path / "service"), TOKEN)), listen("127.0.0.1", 0)
    where = listener.getsockname()
    thread = threading.Thread(target=running.run, args=([listener],))
    thread.start()
    yield where
    running.should_exit = True
    thread.join(20)


def seconds_to_close(client, pieces=()):
    """How long a connection is kept, and what it was told, while pieces are sent every tenth of a second."""
    start, told, pieces = time.perf_counter(), b"", iter(pieces)
    client.settimeout(0.1)
    while time.perf_counter() - start < 8:
        try:
            received = client.recv(65536)
            if not received:
                break
            told += received
        except TimeoutError:
            with contextlib.suppress(OSError):
                client.sendall(next(pieces, b""))
        except OSError:
            break
    return time.perf_counter() - start, told


@pytest.mark.parametrize("first", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_headers_must_arrive_in_time(impatient, first):
    with socket.create_connection(impatient) as client:
        client.sendall(first)
        pieces = [b"a"] * 100 if first else []
        assert seconds_to_close(client, pieces)[0] < 7


def test_a_body_must_arrive_in_time_and_who_is_late_is_told_so(impatient):
    with socket.create_connection(impatient) as client:
        client.sendall(UPLOAD)
        seconds, told = seconds_to_close(client, [b" "] * 100)
    assert 0.9 < seconds < 7
    assert told.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive within 1 seconds" in told


def test_the_rest_of_a_request_that_was_refused_is_not_read_for_ever(impatient):
    with socket.create_connection(impatient) as client:
        client.sendall(UPLOAD.replace(b"1000", b"100000000"))
        seconds, told = seconds_to_close(client, [b" "] * 100)
    assert told.startswith(b"HTTP/1.1 413 ")
    assert seconds < 7


def test_a_connection_that_is_used_stays(impatient, monkeypatch):
    monkeypatch.setattr(connection, "HEADER_SECONDS", 3)
    with socket.create_connection(impatient) as client:
        client.settimeout(60)
        for pause in (3.5, 0):  # longer than headers may take
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while b'"learning"' not in answer:  # headers and body may come apart
                answer += client.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200 ")
            time.sleep(pause)


@pytest.mark.parametrize("first", [b"", UPLOAD], ids=["silent", "unfinished"])
def test_idle_connections_make_room(serve, first):
    server = serve()
    with contextlib.ExitStack() as clients:
        for _ in range(connection.MAX_CONNECTIONS + 100):
            client = clients.enter_context(socket.create_connection(address(server)))
            client.sendall(first)
        start = time.perf_counter()
        assert server.http.get("/health").status_code == 200
        assert time.perf_counter() - start < connection.HEADER_SECONDS / 2


@pytest.mark.parametrize("first", [b"", b"GET /", UPLOAD], ids=["silent", "headers", "body"])
def test_an_unfinished_request_does_not_keep_the_server_from_stopping(serve, first):
    server = serve()
    with socket.create_connection(address(server)) as client:
        client.sendall(first)
        assert server.http.get("/health").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(20 if first == UPLOAD else connection.HEADER_SECONDS - 1)


def answered(client):
    client.settimeout(60)
    told = b""
    while b'"detail"' not in told:  # headers and body may come apart
        told += client.recv(65536)
    return told


def upload(length):
    """A request whose last byte is still to come."""
    head = UPLOAD[:-1].replace(b"1000", str(length).encode())
    return head + b'{"texts": ["' + b"a" * (length - 13)


def test_bodies_of_all_requests_together_have_a_budget(impatient, monkeypatch):
    monkeypatch.setattr(gate, "MAX_IN_FLIGHT", 4_000_000)
    for clock in ("HEADER_SECONDS", "BODY_SECONDS"):
        monkeypatch.setattr(connection, clock, 20)  # a pause of this machine is not a late client
    with contextlib.ExitStack() as clients:
        held = [clients.enter_context(socket.create_connection(impatient)) for _ in range(6)]
        for client in held:
            client.sendall(upload(900_000))
            time.sleep(0.05)
        for client in held[:2]:  # the oldest made room for the others
            told = answered(client)
            assert told.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1" in told
            assert b"too many large requests" in told
        for client in held[2:]:
            client.sendall(b" ")  # they are read to the end, and then no longer count
            assert answered(client).startswith(b"HTTP/1.1 422 ")
        for client in held[2:]:
            client.sendall(upload(900_000) + b" ")
            assert answered(client).startswith(b"HTTP/1.1 422 ")


@pytest.mark.slow
def test_memory_does_not_follow_the_number_of_bodies_that_are_held(serve):
    server = serve()
    memory = Path(f"/proc/{server.process.pid}/statm")
    if not memory.exists():
        pytest.skip("needs /proc")
    before = int(memory.read_text().split()[1])
    with contextlib.ExitStack() as clients:
        for _ in range(60):
            client = clients.enter_context(socket.create_connection(address(server)))
            with contextlib.suppress(OSError):
                client.sendall(upload(15 << 20))
        assert server.http.get("/health").status_code == 200
        after = int(memory.read_text().split()[1])
    assert (after - before) * resource.getpagesize() < 300e6  # 60 bodies have 940 MB
