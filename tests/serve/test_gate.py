"""The middleware without a service behind it: tokens, limits, bodies, counters and headers, one request at a time."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest
from starlette.exceptions import HTTPException

from taer.serve import gate, tokens
from taer.serve.gate import Counters, Gate, Upload, Uploads, check_role, counted_examples
from taer.serve.tokens import Tokens

SAFE = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; "
    b"base-uri 'none'; form-action 'none'",
}


async def answering(scope, receive, send):
    """An application that reads the whole body."""
    while (await receive()).get("more_body", False):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
    await send({"type": "http.response.body", "body": b"done"})


class Asked:
    """What a request led to."""

    def __init__(self, sent):
        start, *rest = sent
        assert [start["type"], *{message["type"] for message in rest}] == [
            "http.response.start",
            "http.response.body",
        ]
        self.status, self.header_list = start["status"], start["headers"]
        self.headers = dict(start["headers"])
        self.body = b"".join(message["body"] for message in rest)

    def refused(self, status):
        """The text of a refusal, which must be one in form."""
        assert self.status == status
        assert self.headers[b"content-type"] == b"application/json"
        assert self.headers[b"content-length"] == str(len(self.body)).encode()
        assert SAFE.items() <= self.headers.items()
        ((self.key, told),) = json.loads(self.body).items()
        return told


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where tokens are; their limits are measured by a clock that stands still."""
    monkeypatch.setattr(tokens, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    return tmp_path


@pytest.fixture
def make(folder):
    """A gate in front of an application, and its counters."""

    def made(app=answering, hosts=None, **options):
        counters = Counters()
        made.counters = counters
        return Gate(app, counters, Tokens(folder, "secret"), hosts, **options)

    return made


def scope_of(method="POST", path="/predict", headers=(), **more):
    return {"type": "http", "method": method, "path": path, "headers": list(headers), **more}


async def ask_now(gate, scope, pieces=(b"",)):
    sent = []
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    del messages[-1]["more_body"]  # which is false if it is left out

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    await gate(scope, receive, send)
    return sent


def ask(gate, *pieces, bearer=None, **scope):
    headers = [*scope.pop("headers", ()), *([(b"authorization", bearer)] if bearer else [])]
    return Asked(asyncio.run(ask_now(gate, scope_of(headers=headers, **scope), pieces or (b"",))))


def counted(counters, name, **labels):
    return counters.registry.get_sample_value(name, labels)


def test_an_answer_gets_security_headers_beside_its_own(make):
    answer = ask(make())
    assert (answer.status, answer.body) == (200, b"done")
    assert answer.header_list[0] == (b"x-own", b"1")
    assert dict(answer.header_list[1:]) == SAFE


def test_what_is_no_request_passes_as_it_is(make):
    seen = []

    async def app(*arguments):
        seen.append(arguments)

    asked = ({"type": "lifespan"}, object(), object())
    asyncio.run(make(app)(*asked))
    assert seen == [asked]


@pytest.mark.parametrize(
    ("host", "name"),
    [
        (b"taer.example.org", None),
        (b"TAER.example.org:8000", None),
        (b"taer.example.org.", None),
        (b"[::1]:80", None),
        (b"[::1]", None),
        (b"[::1]:80]", None),
        (b"evil.example:80", "evil.example"),
        (b"[::2]:80", "[::2]"),
        (b"\xe9", "é"),
        (b"", ""),
        (b"x" * 101, "x" * 100),
    ],
)
def test_a_service_answers_under_its_names(make, host, name):
    answer = ask(make(hosts=["taer.example.org", "[::1]"]), headers=[(b"host", host)])
    if name is None:
        assert answer.status == 200
    else:
        assert answer.refused(400) == (
            f"this service does not answer under the name {name!r}; open it at taer.example.org, or, if a proxy "
            "forwards requests for that name, start it with --public-name"
        )
    assert ask(make(), headers=[(b"host", host)]).status == 200


def test_a_request_without_a_host_is_refused_by_a_service_that_has_names(make):
    assert "under the name ''" in ask(make(hosts=["a"])).refused(400)


def test_an_announced_body_that_is_too_large_is_refused_unread(make):
    async def never(scope, receive, send):
        raise AssertionError

    announced = [(b"content-length", str(gate.MAX_BODY + 1).encode())]
    told = "a request may have 16 MiB; send less at once, or smaller images"
    assert ask(make(never), headers=announced).refused(413) == told
    for length in (str(gate.MAX_BODY).encode(), b"many", b"-1"):
        assert ask(make(), headers=[(b"content-length", length)]).status == 200
    assert ask(make()).status == 200


def test_a_body_that_grows_too_large_is_refused(make, monkeypatch):
    monkeypatch.setattr(gate, "MAX_BODY", 10)
    assert ask(make(), b"12345", b"67890").status == 200
    assert "16 MiB" in ask(make(), b"12345", b"67890", b"1").refused(413)
    assert counted(make.counters, "taer_requests_total", method="", path="other", status="413") == 1


def test_refusals_have_the_form_of_the_routes_of_a_path(make):
    refusing = make(hosts=["a"])
    for path, key in {"/v2/models": "error", "/v2": "error", "/v2x": "detail", "/predict": "detail"}.items():
        answer = ask(refusing, path=path)
        answer.refused(400)
        assert answer.key == key
        answer = ask(refusing, path=f"/root{path}", root_path="/root")
        answer.refused(400)
        assert answer.key == key


def needing(role):
    async def app(scope, receive, send):
        check_role(role, scope)
        await answering(scope, receive, send)

    return app


def test_a_token_may_what_its_role_may(make, folder):
    secret = tokens.add(folder, "anna", "teach", {}).encode()
    assert ask(make(needing(None))).status == 200
    for given in (b"Bearer " + secret, b"bearer  " + secret + b" ", b"BEARER secret"):
        assert ask(make(needing("read")), bearer=given).status == 200
        assert ask(make(needing("teach")), bearer=given).status == 200
    assert ask(make(needing("admin")), bearer=b"Bearer secret").status == 200
    answer = ask(make(needing("admin")), bearer=b"Bearer " + secret)
    assert answer.refused(403) == "this needs a token with the role admin, and anna may teach"
    for given in (None, secret, b"Basic " + secret, b"Bearer", b"Bearer other", b"Bearer" + secret):
        answer = ask(make(needing("read")), bearer=given)
        assert answer.refused(401) == (
            "this needs a token, that of the start of taer serve or one made with taer token: "
            "Authorization: Bearer TOKEN"
        )
        assert answer.headers[b"www-authenticate"] == b"Bearer"


def test_a_token_has_its_requests_per_minute(make, folder):
    bearer = b"Bearer " + tokens.add(folder, "anna", "teach", {"requests": 2}).encode()
    hasty = make()
    assert [ask(hasty, bearer=bearer).status for _ in range(2)] == [200, 200]
    answer = ask(hasty, bearer=bearer)
    assert answer.refused(429) == "the token anna may send 2 requests per minute; try again in 60 seconds"
    assert answer.headers[b"retry-after"] == b"60"
    assert ask(hasty).status == 200
    assert ask(hasty, bearer=b"Bearer secret").status == 200
    once = b"Bearer " + tokens.add(folder, "once", "teach", {"requests": 1}).encode()
    assert [ask(hasty, bearer=once).status for _ in range(2)] == [200, 429]


def test_a_token_has_its_bytes_per_day(make, folder):
    bearer = b"Bearer " + tokens.add(folder, "anna", "teach", {"bytes": 10}).encode()
    limited = make()
    assert ask(limited, b"1234", bearer=bearer).status == 200
    told = "the token anna may send 10 bytes per day"
    assert (
        ask(limited, b"1234", b"567890", b"1", bearer=bearer).refused(429) == f"{told}; try again in 86400 seconds"
    )
    assert ask(limited, b"1234", b"56", bearer=bearer).status == 429  # four more were taken before the refusal
    assert ask(make(), b"1234", b"567890", bearer=bearer).status == 200
    assert ask(make(), b"12345678901", bearer=bearer).refused(413) == f"{told}; send at most 10 at once"
    assert ask(make(), b"1234", b"5678901", bearer=bearer).refused(413) == f"{told}; send at most 10 at once"


def test_examples_that_are_refused_do_not_count(folder):
    tokens.add(folder, "anna", "teach", {"examples": 5})
    known = Tokens(folder, "secret")
    (grant,) = known._known.values()
    scope = {gate._GRANT: grant}

    def add(count, error=None):
        with counted_examples(scope, count):
            if error:
                raise error

    add(3)
    with pytest.raises(KeyError):
        add(2, KeyError())
    with pytest.raises(HTTPException, match=r"may send 5 examples per day; try again in 86400 seconds") as refused:
        add(3)
    assert (refused.value.status_code, refused.value.headers) == (429, {"Retry-After": "86400"})
    with pytest.raises(HTTPException, match=r"the token anna may send 5 examples per day; send at most 5 at once"):
        add(6)
    with pytest.raises(KeyboardInterrupt):
        add(1, KeyboardInterrupt())  # it may have been stored
    add(1)
    with pytest.raises(HTTPException):
        add(1)
    scope[gate._GRANT] = None
    add(99)
    with pytest.raises(KeyError):
        add(1, KeyError())


def test_requests_are_counted_by_route_and_status(make):
    async def routed(scope, receive, send):
        scope["route"] = SimpleNamespace(path="/classes/{label}")
        if scope["path"] == "/fails":
            raise RuntimeError("broken")
        await answering(scope, receive, send)

    one = make(routed)
    assert [ask(one, method=method).status for method in ("GET", "GET", "PATCH")] == [200] * 3
    with pytest.raises(RuntimeError, match="broken"):
        ask(one, method="GET", path="/fails")
    counters = make.counters
    route = {"path": "/classes/{label}"}
    assert counted(counters, "taer_requests_total", method="GET", status="200", **route) == 2
    assert counted(counters, "taer_requests_total", method="PATCH", status="200", **route) == 1
    assert counted(counters, "taer_requests_total", method="GET", status="500", **route) == 1
    assert counted(counters, "taer_request_seconds_count", **route) == 4
    assert 0 < counted(counters, "taer_request_seconds_sum", **route) < 60
    assert ask(make()).status == 200  # of a path that nobody knows
    assert counted(make.counters, "taer_requests_total", method="", path="other", status="200") == 1
    assert ask(make(), route=SimpleNamespace()).status == 200
    assert counted(make.counters, "taer_requests_total", method="", path="other", status="200") == 1


def test_the_counters_say_what_they_are():
    counters = Counters()
    counters.samples.inc(3)
    counters.unknown.inc()
    counters.automatic.inc(2)
    counters.tasks.inc()
    counters.count("GET", "/health", 200, 0.003)
    counters.watch("taer_version", "The version that answers.", lambda: 7)
    told = generate_latest(counters.registry).decode()
    for line in (
        "# HELP taer_requests_total Requests answered.",
        'taer_requests_total{method="GET",path="/health",status="200"} 1.0',
        "# HELP taer_request_seconds Time to answer.",
        'taer_request_seconds_bucket{le="0.0025",path="/health"} 0.0',
        'taer_request_seconds_bucket{le="0.005",path="/health"} 1.0',
        "# HELP taer_predicted_samples_total Samples predicted.",
        "taer_predicted_samples_total 3.0",
        "# HELP taer_unknown_samples_total Samples that looked like no class.",
        "taer_unknown_samples_total 1.0",
        "# HELP taer_automatic_samples_total Answers that need no person.",
        "taer_automatic_samples_total 2.0",
        "# HELP taer_learned_tasks_total Tasks learned.",
        "taer_learned_tasks_total 1.0",
        "# HELP taer_version The version that answers.",
        "taer_version 7.0",
    ):
        assert line in told.splitlines()
    found = [line.split('"')[1] for line in told.splitlines() if line.startswith("taer_request_seconds_bucket")]
    seconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0]
    assert [float(le) for le in found] == [*seconds, float("inf")]


def test_a_request_has_a_span_with_its_status(make, monkeypatch):
    seen = []

    @contextmanager
    def request(scope, headers):
        seen.append((scope["path"], headers))
        yield "span"

    monkeypatch.setattr(gate.traces, "request", request)
    monkeypatch.setattr(gate.traces, "answered", lambda *told: seen.append(told))
    traced = make()
    assert ask(traced, headers=[(b"traceparent", b"x")]).status == 200
    (path, headers), (span, scope, status) = seen
    assert (path, headers[b"traceparent"], span, scope["path"], status) == (
        "/predict",
        b"x",
        "span",
        "/predict",
        200,
    )


class Task:
    """Stands for the task of a request."""

    canceled = False

    def cancel(self):
        self.canceled = True


@pytest.fixture
def arriving(monkeypatch):
    monkeypatch.setattr(gate, "MAX_BODY", 60)
    monkeypatch.setattr(gate, "MAX_IN_FLIGHT", 100)
    uploads = Uploads()

    def begin(size=0, complete=False):
        task = Task()
        monkeypatch.setattr(gate.asyncio, "current_task", lambda: task)
        made = Upload(uploads)
        made.task = task
        if size:
            made.receive(size, complete)
        return made

    begin.uploads = uploads
    return begin


def test_bodies_together_have_a_budget_and_the_oldest_makes_room(arriving):
    first, second = arriving(40), arriving(40)
    assert arriving.uploads.size == 80
    third = arriving(20)
    assert arriving.uploads.size == 100  # all of it
    assert not first.dropped
    third.receive(1, False)
    assert (first.dropped, first.task.canceled) == (True, True)
    assert (second.dropped, third.dropped) == (False, False)
    assert arriving.uploads.size == 61
    first.close()  # as the request that ends does
    assert arriving.uploads.size == 61
    second.close()
    assert arriving.uploads.size == 21


def test_a_body_that_has_arrived_is_not_dropped(arriving):
    first, second = arriving(50, complete=True), arriving(40)
    third = arriving(20)
    assert (first.dropped, second.dropped, third.dropped) == (False, True, False)
    assert arriving.uploads.size == 70
    arriving(40)  # the third makes room, too
    assert third.dropped
    with pytest.raises(
        HTTPException, match="too many large requests arrive at once; try again in a moment"
    ) as told:
        arriving(60, complete=True)  # beside the first there is no room for it
    assert (told.value.status_code, told.value.headers) == (503, {"Retry-After": "1"})


def test_the_last_one_is_refused_if_all_others_are_being_answered(arriving):
    held = [arriving(50, complete=True), arriving(50, complete=True)]
    with pytest.raises(HTTPException) as told:
        arriving(1, complete=True)
    assert (told.value.status_code, told.value.detail) == (503, gate.CROWDED)
    assert arriving.uploads.size == 100
    assert not any(one.dropped for one in held)


def test_a_body_without_bytes_takes_no_part(arriving):
    arriving(50, complete=True)
    arriving(50, complete=True)
    empty = arriving()
    assert not empty.complete
    empty.receive(0, True)
    assert empty.complete
    assert arriving.uploads.size == 100


def test_a_body_that_is_too_large_alone_is_refused(arriving):
    upload = arriving(60)
    with pytest.raises(HTTPException) as told:
        upload.receive(1, True)
    assert (told.value.status_code, told.value.detail) == (413, gate.TOO_LARGE)


def test_an_upload_outside_of_a_task_is_only_marked(arriving, monkeypatch):
    monkeypatch.setattr(gate.asyncio, "current_task", lambda: None)
    upload = Upload(arriving.uploads)
    upload.drop()
    assert upload.dropped


async def until_canceled(started):
    async def app(scope, receive, send):
        if started:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await receive()

    return app


def cancel(make, started=False, size=60, **options):
    """A request that waits for the rest of its body until it is canceled; returns what was sent."""

    async def run():
        uploads, sent = Uploads(), []
        waits = make(await until_canceled(started), uploads=uploads, **options)
        pieces = [{"type": "http.request", "body": b"x" * size, "more_body": True}]

        async def receive():
            return pieces.pop() if pieces else await asyncio.Event().wait()

        async def send(message):
            sent.append(message)

        task = asyncio.create_task(waits(scope_of(), receive, send))
        while uploads.size != size and not task.done():
            await asyncio.sleep(0)
        if size == 60:  # another body needs its room
            other = Upload(uploads)
            other.receive(60, True)
            other.close()
        else:
            task.cancel()
        await task
        assert uploads.size == 0
        return sent

    return asyncio.run(run())


def test_a_request_that_is_dropped_is_told_so(make, monkeypatch):
    monkeypatch.setattr(gate, "MAX_IN_FLIGHT", 100)
    answer = Asked(cancel(make))
    assert answer.refused(503) == gate.CROWDED
    assert (answer.headers[b"connection"], answer.headers[b"retry-after"]) == (b"close", b"1")
    assert counted(make.counters, "taer_requests_total", method="", path="other", status="503") == 1


def test_a_request_that_the_end_of_the_server_cancels_is_told_so(make):
    answer = Asked(cancel(make, size=10))
    assert answer.refused(503) == "the service is stopping; try again when it is back"
    assert (answer.headers[b"connection"], answer.headers[b"retry-after"]) == (b"close", b"1")


def test_an_answer_that_has_begun_is_not_begun_again(make):
    (start,) = cancel(make, started=True, size=10)
    assert start["status"] == 200


def test_a_request_makes_room_for_others_when_it_is_answered(make):
    uploads, seen = Uploads(), []

    async def app(scope, receive, send):
        more = True
        while more:
            more = (await receive()).get("more_body", False)
            seen.extend((one.size, one.complete) for one in uploads._all)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    assert ask(make(app, uploads=uploads), b"12345", b"6", b"78").status == 200
    assert seen == [(5, False), (6, False), (8, True)]
    assert uploads.size == 0
