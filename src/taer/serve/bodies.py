"""From the bytes of a request to Python objects, without keeping other requests waiting."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
from anyio.to_thread import run_sync
from fastapi import Request
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.responses import Response

from taer.serve.inputs import MAX_TEXT, MAX_TEXTS, MAX_VECTORS

_SMALL = 1 << 17  # bytes that are parsed in about a millisecond
# Brackets cost most to parse. Each vector has one, and characters of texts may be brackets.
_MAX_BRACKETS = MAX_VECTORS + MAX_TEXTS * MAX_TEXT


class Body(Request):
    """A request that parses its body with pydantic's parser; a large one in a thread, one at a time."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            body = await self.body()
            self._json = _parsed(body) if len(body) < _SMALL else await run_sync(_parsed, body, limiter=self._turn)
        return self._json

    @property
    def _turn(self) -> anyio.CapacityLimiter:
        """One for the whole service: a parser keeps the interpreter to itself until it is done."""
        state = self.app.state
        if not hasattr(state, "parsing"):
            state.parsing = anyio.CapacityLimiter(1)
        turn: anyio.CapacityLimiter = state.parsing
        return turn


class BodyRoute(APIRoute):
    """A route whose requests are of that kind."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def with_body(request: Request) -> Response:
            return await handle(Body(request.scope, request.receive))

        return with_body


def _parsed(body: bytes) -> Any:
    if body.count(b"[") + body.count(b"{") > _MAX_BRACKETS:
        raise HTTPException(413, f"a request may have {_MAX_BRACKETS} brackets")
    try:
        return from_json(body)
    except ValueError as error:
        raise json.JSONDecodeError(str(error), "", 0) from None
