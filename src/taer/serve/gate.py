"""The middleware of all requests: tokens, limits on bodies, counters, and security headers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.exceptions import HTTPException

from taer.serve import traces
from taer.serve.inputs import MAX_BODY
from taer.serve.tokens import NAMED, SECONDS, Grant, Limit, Role, Tokens

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_IN_FLIGHT = 8 * MAX_BODY  # bytes of bodies that are received or being answered
TOO_LARGE = f"a request may have {MAX_BODY >> 20} MiB; send less at once, or smaller images"
CROWDED = "too many large requests arrive at once; try again in a moment"
RETRY = {"Retry-After": "1"}
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data: blob:; "
        b"frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
]
_GRANT = "taer.grant"  # in a scope: the token that came with the request, or None
_NO_TOKEN = (
    "this needs a token, that of the start of taer serve or one made with taer token: Authorization: Bearer TOKEN"
)
_STOPPING = "the service is stopping; try again when it is back"


class Counters:
    """The counters of ``GET /metrics``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._kept: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self.requests = Counter(
            "taer_requests", "Requests answered.", ["method", "path", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "taer_request_seconds",
            "Time to answer.",
            ["path"],
            registry=self.registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
        )
        self.samples = Counter("taer_predicted_samples", "Samples predicted.", registry=self.registry)
        self.unknown = Counter("taer_unknown_samples", "Samples that looked like no class.", registry=self.registry)
        self.automatic = Counter("taer_automatic_samples", "Answers that need no person.", registry=self.registry)
        self.tasks = Counter("taer_learned_tasks", "Tasks learned.", registry=self.registry)

    def count(self, method: str, path: str, status: int, seconds: float) -> None:
        """A request that was answered."""
        key = method, path, status
        if key not in self._kept:  # looking them up by their labels takes longer than counting
            self._kept[key] = self.requests.labels(*key), self.seconds.labels(path)
        requests, time_to_answer = self._kept[key]
        requests.inc()
        time_to_answer.observe(seconds)

    def watch(self, name: str, help: str, value: Callable[[], float]) -> None:
        """Add a gauge that is computed when it is read."""
        Gauge(name, help, registry=self.registry).set_function(value)


class Uploads:
    """A budget for the bodies of all requests together: each is limited, and so is their sum. The oldest comes first."""

    def __init__(self) -> None:
        self._all: dict[Upload, None] = {}

    @property
    def size(self) -> int:
        return sum(upload.size for upload in self._all)

    def add(self, upload: Upload) -> None:
        """Count a body. If there is no room, the oldest that is still arriving is dropped.

        A client that holds back the end of its body cannot keep others out.
        """
        self._all[upload] = None
        while self.size > MAX_IN_FLIGHT:
            oldest = next((other for other in self._all if not other.complete), upload)
            self.remove(oldest)
            if oldest is upload:
                raise HTTPException(503, CROWDED, RETRY)
            oldest.drop()

    def remove(self, upload: Upload) -> None:
        self._all.pop(upload, None)


class Upload:
    """The body of one request."""

    def __init__(self, uploads: Uploads) -> None:
        self.size, self.complete = 0, False
        self.dropped = ""  # why
        self._uploads = uploads
        self._task = asyncio.current_task()

    def receive(self, size: int, complete: bool) -> None:
        """Count bytes that arrived; raises HTTPException if they are too many."""
        self.size, self.complete = self.size + size, complete
        if self.size > MAX_BODY:
            raise HTTPException(413, TOO_LARGE)
        if size:
            self._uploads.add(self)

    def drop(self, why: str = CROWDED) -> None:
        """End the request, which waits for the rest of its body."""
        self.dropped = why
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        self._uploads.remove(self)


class Gate:
    """ASGI middleware around the application."""

    def __init__(
        self,
        app: ASGIApp,
        counters: Counters,
        tokens: Tokens,
        hosts: Sequence[str] | None,
        uploads: Uploads | None = None,
        arriving: set[Upload] | None = None,
    ) -> None:
        self._app = app
        self._counters = counters
        self._tokens = tokens
        self._hosts = hosts  # a page of another origin cannot pass for ours by pointing its name at us
        self._uploads = uploads or Uploads()
        # Those whose requests wait for more of their bodies.
        self._arriving = set() if arriving is None else arriving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status, started = 500, False
        upload = Upload(self._uploads)

        async def bounded() -> Message:
            if not upload.complete:
                self._arriving.add(upload)
            try:
                message = await receive()
            finally:
                self._arriving.discard(upload)
            size = len(message.get("body", b""))
            _take(scope, "bytes", size, upload.size + size)
            upload.receive(size, not message.get("more_body", False))
            return message

        async def safe(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                started, status = True, message["status"]
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        headers = dict(scope["headers"])
        refuse = partial(_refuse, scope, safe)
        scope[_GRANT] = self._grant(headers.get(b"authorization", b""))
        with traces.request(scope, headers) as span:
            try:
                _take(scope, "requests", 1, 1)
                if self._hosts is not None and (name := _name(headers.get(b"host", b""))) not in self._hosts:
                    await refuse(400, _foreign(name, self._hosts[0]))
                elif (
                    headers.get(b"content-length", b"0").isdigit()
                    and int(headers.get(b"content-length", b"0")) > MAX_BODY
                ):
                    await refuse(413, TOO_LARGE)
                else:
                    await self._app(scope, bounded, safe)
            except HTTPException as error:  # of the limits of the token
                await refuse(error.status_code, error.detail, *_as_bytes(error.headers))
            except asyncio.CancelledError:
                # There is no room for it, or the server stops and has waited long enough.
                if not started:
                    ending = (b"connection", b"close"), (b"retry-after", b"1")
                    await refuse(503, upload.dropped or _STOPPING, *ending)
            finally:
                upload.close()
                path = getattr(scope.get("route"), "path", None) or "other"
                known = path != "other" and scope["method"] in traces.METHODS  # anyone can make up more of them
                self._counters.count(scope["method"] if known else "", path, status, time.perf_counter() - start)
                if span is not None:
                    traces.answered(span, scope, status)

    def _grant(self, header: bytes) -> Grant | None:
        kind, _, given = header.partition(b" ")
        return self._tokens.find(given.strip()) if kind.lower() == b"bearer" else None


def check_role(role: Role | None, scope: MutableMapping[str, Any]) -> None:
    """Raise HTTPException unless the request may do what needs this role; None is open to anyone."""
    grant: Grant | None = scope[_GRANT]
    if role is None:
        return
    if grant is None:
        raise HTTPException(401, _NO_TOKEN, {"WWW-Authenticate": "Bearer"})
    if not grant.may(role):
        raise HTTPException(
            403, f"this needs a token with the role {role}, and {grant.token.name} may {grant.token.role}"
        )


@contextmanager
def counted_examples(scope: MutableMapping[str, Any], count: int) -> Iterator[None]:
    """Count examples that are added inside; those that are refused do not count."""
    _take(scope, "examples", count, count)
    try:
        yield
    except Exception:
        grant: Grant | None = scope[_GRANT]
        if grant is not None:
            grant.meter.give_back("examples", count)
        raise


def _take(scope: MutableMapping[str, Any], limit: Limit, count: int, whole: int) -> None:
    """Count what a request sends, of which ``whole`` is known so far. Raises HTTPException beyond the limit."""
    grant: Grant | None = scope[_GRANT]
    if grant is None or (most := grant.most(limit)) is None:
        return
    may = f"the token {grant.token.name} may send {most} {limit} per {NAMED[SECONDS[limit]]}"
    if whole > most:  # waiting would not help
        raise HTTPException(413, f"{may}; send at most {most} at once")
    if seconds := grant.take(limit, count):
        raise HTTPException(429, f"{may}; try again in {seconds} seconds", {"Retry-After": str(seconds)})


def problem(scope: MutableMapping[str, Any], told: str) -> dict[str, str]:
    """An error as the routes of a path describe it."""
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return {"error" if f"{path}/".startswith("/v2/") else "detail": told}


def _name(host: bytes) -> str:
    """A host without its port."""
    text = host.decode("latin-1").lower()
    return text.partition("]")[0] + "]" if text.startswith("[") else text.partition(":")[0].rstrip(".")


def _foreign(name: str, own: str) -> str:
    return (
        f"this service does not answer under the name {name[:100]!r}; open it at {own}, or, if a proxy forwards "
        "requests for that name, start it with --public-name"
    )


def _as_bytes(headers: Any) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]


async def _refuse(
    scope: MutableMapping[str, Any], send: Any, status: int, detail: str, *more: tuple[bytes, bytes]
) -> None:
    body = json.dumps(problem(scope, detail)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
