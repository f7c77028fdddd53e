"""Errors: every error response is ``{"detail": message}``."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from taer.serve.failures import StorageFailed
from taer.serve.inputs import BadInput
from taer.serve.learner import Busy
from taer.serve.service import Missing
from taer.serve.serving import Conflict
from taer.serve.tasks import Refused

_log = logging.getLogger("taer.serve")
_STATUS: dict[type[Exception], int] = {BadInput: 422, Missing: 404, Conflict: 409, Refused: 409}


def answer_in_sentences(app: FastAPI) -> None:
    """Answer errors with one sentence. Handlers are coroutines, so an answer never waits for a free thread."""

    def sentence(status: int, detail: str, headers: Any = None) -> JSONResponse:
        return JSONResponse({"detail": detail}, status, headers)

    @app.exception_handler(RequestValidationError)
    async def not_as_described(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return sentence(422, f"{where}: {first['msg']}"[:300])

    @app.exception_handler(HTTPException)
    async def as_raised(_: Request, error: HTTPException) -> JSONResponse:
        plain = {404: "there is nothing at this URL", 405: "this URL does not take this method"}
        known = (
            error.detail if error.detail not in ("Not Found", "Method Not Allowed") else plain[error.status_code]
        )
        return sentence(error.status_code, known, error.headers)

    for kind, status in _STATUS.items():

        @app.exception_handler(kind)
        async def told(_: Request, error: Exception, status: int = status) -> JSONResponse:
            return sentence(status, str(error))

    @app.exception_handler(Busy)
    async def busy(_: Request, error: Busy) -> JSONResponse:
        return sentence(409, "a task is being learned; try again when it is done", {"Retry-After": "1"})

    @app.exception_handler(StorageFailed)
    async def storage(_: Request, error: StorageFailed) -> JSONResponse:
        _log.error("storage failed: %s", error)
        return sentence(503, str(error))

    @app.exception_handler(Exception)
    async def unforeseen(_: Request, error: Exception) -> JSONResponse:
        return sentence(500, "something failed inside the service; its log says what")
