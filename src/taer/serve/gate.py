"""The middleware of all requests: limits, counters, the token, and security headers."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from taer.serve.inputs import MAX_BODY
from taer.serve.uploads import CROWDED, TOO_LARGE, Upload, Uploads

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
_NO_TOKEN = "this needs the token that taer serve showed when it started: Authorization: Bearer TOKEN"
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


class Gate:
    """ASGI middleware around the application."""

    def __init__(
        self,
        app: ASGIApp,
        counters: Counters,
        token: str,
        is_open: Callable[[str, str], bool],
        hosts: Sequence[str] | None,
    ) -> None:
        self._app = app
        self._counters = counters
        self._token = token.encode()
        self._is_open = is_open  # whether a method at a path needs no token
        self._hosts = hosts  # a page of another origin cannot pass for ours by pointing its name at us
        self._uploads = Uploads()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status, started = 500, False
        upload = Upload(self._uploads)

        async def bounded() -> Message:
            message = await receive()
            upload.receive(len(message.get("body", b"")), not message.get("more_body", False))
            return message

        async def safe(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                started, status = True, message["status"]
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        headers = dict(scope["headers"])
        try:
            if self._hosts is not None and (name := _name(headers.get(b"host", b""))) not in self._hosts:
                await _refuse(safe, 400, _foreign(name, self._hosts[0]))
            elif not self._is_open(scope["method"], scope["path"]) and not self._has_token(headers):
                await _refuse(safe, 401, _NO_TOKEN, (b"www-authenticate", b"Bearer"))
            elif (
                headers.get(b"content-length", b"0").isdigit()
                and int(headers.get(b"content-length", b"0")) > MAX_BODY
            ):
                await _refuse(safe, 413, TOO_LARGE)
            else:
                await self._app(scope, bounded, safe)
        except asyncio.CancelledError:  # there is no room for it, or the server stops and has waited long enough
            if not started:
                ending = (b"connection", b"close"), (b"retry-after", b"1")
                await _refuse(safe, 503, CROWDED if upload.dropped else _STOPPING, *ending)
        finally:
            upload.close()
            path = getattr(scope.get("route"), "path", None) or "other"
            self._counters.count(
                scope["method"] if path != "other" else "", path, status, time.perf_counter() - start
            )

    def _has_token(self, headers: Mapping[bytes, bytes]) -> bool:
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        return kind.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token)


def _name(host: bytes) -> str:
    """A host without its port."""
    text = host.decode("latin-1").lower()
    return text.partition("]")[0] + "]" if text.startswith("[") else text.partition(":")[0].rstrip(".")


def _foreign(name: str, own: str) -> str:
    return (
        f"this service does not answer under the name {name[:100]!r}; open it at {own}, or, if a proxy forwards "
        "requests for that name, start it with --public-name"
    )


async def _refuse(send: Any, status: int, detail: str, *more: tuple[bytes, bytes]) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
