"""Connections with timeouts: requests must arrive in time, and idle connections are closed to make room for others.

This builds on internals of uvicorn, because no server for Python has these limits as options (looked at in November
2026). hypercorn limits the time of a single read, so a client that sends a byte now and then holds a connection for ever,
and it does not limit their number. granian bounds the requests that are answered at the same time and makes others wait,
so silent clients keep everyone out; it has no deadline for a body, and runs the application in a process of its own, away
from the lock on the folder. Behind a proxy that has limits this module hardly ever acts; without one it is what keeps the
service reachable. ``tests/serve/test_connection.py`` notices if uvicorn changes.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 512
HEADER_SECONDS = 10.0  # from the first byte, or from connecting, to the end of the headers
BODY_SECONDS = 60.0  # from then to the end of the body
READ_SECONDS = 60.0  # for a client to continue reading an answer


class Connection(H11Protocol):
    """uvicorn's protocol with time limits; uvicorn itself waits without limit once a connection is open."""

    _all: ClassVar[dict[Connection, None]] = {}  # the oldest first

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._phase: Any = None  # what the clock below runs for
        self._arriving: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._all[self] = None
        if len(self._all) >= MAX_CONNECTIONS:
            self._make_room()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.pop(self, None)
        for clock in (self._arriving, self._reading):
            if clock is not None:
                clock.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:  # of a request that was refused early, or sent with the last one
            self._watch()

    def shutdown(self) -> None:
        """When the server stops, incomplete requests are dropped, and those being answered may finish."""
        if self.is_answering:
            super().shutdown()
        else:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()

    @property
    def is_answering(self) -> bool:
        """Whether a request is complete and its answer is not."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _make_room(self) -> None:
        """Close the oldest connection that is not being answered."""
        for other in self._all:
            if not other.is_answering and other is not self:
                del self._all[other]
                self.connections.discard(other)
                other.transport.abort()
                return

    def _watch(self) -> None:
        """Start a timer when a request or its body begins to arrive; stop it when the request is complete."""
        phase = self.conn.their_state
        if phase is self._phase:
            return
        if self._arriving is not None:
            self._arriving.cancel()
        seconds = {h11.IDLE: HEADER_SECONDS, h11.SEND_BODY: BODY_SECONDS}.get(phase)
        self._phase = phase
        self._arriving = self.loop.call_later(seconds, self._too_slow) if seconds is not None else None

    def _too_slow(self) -> None:
        if self._phase is h11.SEND_BODY and self.conn.our_state is h11.SEND_RESPONSE:
            body = json.dumps({"detail": f"the request did not arrive within {BODY_SECONDS:g} seconds"}).encode()
            headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
            for event in (
                h11.Response(status_code=408, headers=[*headers, ("connection", "close")]),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
