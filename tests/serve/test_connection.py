"""Clients that connect and say nothing, or too little, or too slowly."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time

import pytest

from taer.serve import connection
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
        assert seconds_to_close(client, pieces)[0] < 3


def test_a_body_must_arrive_in_time_and_who_is_late_is_told_so(impatient):
    with socket.create_connection(impatient) as client:
        client.sendall(UPLOAD)
        seconds, told = seconds_to_close(client, [b" "] * 100)
    assert 0.9 < seconds < 4
    assert told.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive within 1 seconds" in told


def test_the_rest_of_a_request_that_was_refused_is_not_read_for_ever(impatient):
    with socket.create_connection(impatient) as client:
        client.sendall(UPLOAD.replace(b"1000", b"100000000"))
        seconds, told = seconds_to_close(client, [b" "] * 100)
    assert told.startswith(b"HTTP/1.1 413 ")
    assert seconds < 4


def test_a_connection_that_is_used_stays(impatient):
    with socket.create_connection(impatient) as client:
        client.settimeout(5)
        for _ in range(3):
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while b'"learning"' not in answer:  # headers and body may come apart
                answer += client.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200 ")
            time.sleep(0.7)  # longer than headers may take


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
        server.process.wait(5)
