"""The HTTP application of the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse
from starlette.concurrency import run_in_threadpool
from starlette.staticfiles import StaticFiles

from taer import __version__
from taer.serve.access import LOCAL_NAMES
from taer.serve.errors import answer_in_sentences
from taer.serve.gate import Counters, Gate
from taer.serve.routes import classes, examples, predict, versions, watch
from taer.serve.routes.common import TOKEN
from taer.serve.service import Service

PAGE = Path(__file__).parent / "page"
_READING = ("GET", "HEAD", "OPTIONS")
_OPEN_PATHS = {"/", "/health", "/docs", "/openapi.json", *(f"/{file.name}" for file in PAGE.iterdir())}
_FACTS = {"/classes", "/history", "/confusion", "/drift", "/metrics"}
_SAVE_SECONDS = 60  # between two writes of the counts of answers to disk


def create_app(
    service: Service,
    token: str,
    public: bool = False,
    hosts: Sequence[str] | None = LOCAL_NAMES,
    drawings: bool = False,
) -> FastAPI:
    """The application.

    Parameters
    ----------
    token : str
        Required to change something and to read samples or, if ``public``, for every request.
    public : bool
        Whether the service can be reached from other machines, directly or through a proxy.
    hosts : sequence of str, optional
        Host names to answer under; None for any.
    drawings : bool
        Whether the page of a service for images offers a sheet to draw on.
    """
    counters = Counters()
    counters.watch("taer_version", "The version that answers.", lambda: service.serving.version)
    counters.watch("taer_waiting_examples", "Examples that wait to be learned.", lambda: service.n_pending)
    counters.watch("taer_learning", "1 while a task is being learned.", lambda: service.learner.busy)
    counters.watch("taer_classes", "Classes known.", lambda: len(service.serving.classes))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        saving = asyncio.create_task(_save_counts(service))
        yield
        saving.cancel()
        service.close()

    app = FastAPI(
        title="taer serve",
        version=__version__,
        description="A classifier whose classes grow: predict, add examples, learn them as one task, correct, go back.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load scripts from other hosts
        redoc_url=None,
    )
    app.add_middleware(
        Gate,
        counters=counters,
        token=token,
        is_open=_open_to_anyone if public else _open_on_this_machine,
        hosts=hosts,
    )
    answer_in_sentences(app)
    predict.add_to(app, service, counters, TOKEN if public else [])
    for router in (
        examples.router(service),
        versions.router(service, counters),
        classes.router(service, drawings),
        watch.router(service, counters),
    ):
        app.include_router(router, dependencies=TOKEN if public else [])
    app.include_router(watch.health(service))

    @app.get("/docs", include_in_schema=False)
    def docs() -> FileResponse:
        return FileResponse(PAGE / "docs.html")

    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return app


async def _save_counts(service: Service) -> None:
    while True:
        await asyncio.sleep(_SAVE_SECONDS)
        await run_in_threadpool(service.drift.save)


def _open_to_anyone(method: str, path: str) -> bool:
    """Requests without a token on a public address: the page's own files, the API description, and the health check."""
    return method in _READING and path in _OPEN_PATHS


def _open_on_this_machine(method: str, path: str) -> bool:
    """Requests without a token on a local address: predictions, and what contains no sample."""
    return path == "/predict" or (method in _READING and path in _OPEN_PATHS | _FACTS)
