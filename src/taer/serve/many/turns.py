"""Turns on the event loop, which are fair between heads."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_RECENT = 1.0  # seconds


class Turns:
    """One request begins at a time, of each head in turn; how often a head is asked does not matter to others.

    A small request is answered as soon as it begins, so it takes its time from everybody. If others were asked in the last
    second, a head therefore waits after each of its turns for as long as that took: half of the time is for others, also
    for their threads, which need the interpreter.
    """

    def __init__(self) -> None:
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}  # those who had no turn for longest first
        self._inside: Counter[str] = Counter()  # requests that have begun
        self._asked: dict[str, float] = {}  # when each head had its last turn, the latest last
        self._next: asyncio.Handle | None = None  # the call that begins the next turn
        self._begun = 0.0

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        """Wait for a turn, inside which the request is answered."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._lines.setdefault(name, deque()).append(turn)
        if self._next is None or (isinstance(self._next, asyncio.TimerHandle) and name != self._last):
            self._call(loop, 0)
        await turn
        self._inside[name] += 1
        try:
            yield
        finally:
            self._inside[name] -= 1
            if not self._inside[name]:
                del self._inside[name]

    @property
    def _last(self) -> str:
        return next(reversed(self._asked), "")

    def _call(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = loop.call_later(seconds, self._begin, loop) if seconds else loop.call_soon(self._begin, loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        name = next((name for name in self._lines if name != self._last), self._last)
        line = self._lines.pop(name)
        while line and (turn := line.popleft()).done():  # who left while waiting
            pass
        if line:
            self._lines[name] = line
        self._begun = loop.time()
        self._asked.pop(name, None)
        self._asked[name] = self._begun
        if not turn.done():
            turn.set_result(None)
        self._next = loop.call_soon(self._end, loop)  # after what the request did at once

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        self._next, now = None, loop.time()
        while len(self._asked) > 1 and now - next(iter(self._asked.values())) > _RECENT:
            del self._asked[next(iter(self._asked))]
        if self._lines:
            rest = self._lines.keys() == {self._last} and (
                len(self._asked) > 1 or self._inside.keys() - self._lines.keys()
            )
            self._call(loop, now - self._begun if rest else 0)
