"""The HTTP application of the service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from taer import __version__
from taer.serve import routes
from taer.serve.api import ERRORS, Api, Lane, as_json
from taer.serve.gate import Counters, Gate
from taer.serve.groups import add_groups
from taer.serve.labels import LabelService, add_labels
from taer.serve.protocol import add_protocol
from taer.serve.replica import REFUSAL, Replica, add_replica
from taer.serve.service import Service
from taer.serve.tokens import Tokens
from taer.serve.watch import add_trust

LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
PAGE = Path(__file__).parent / "page"
_ABOUT = "A classifier whose classes grow: predict, add examples, learn them as one task, correct, go back."
_SAVE_SECONDS = 60  # between two writes of the counts of answers to disk
_log = logging.getLogger("taer.serve")


def create_app(
    service: Service,
    token: str,
    public: bool = False,
    hosts: Sequence[str] | None = LOCAL_NAMES,
    drawings: bool = False,
    extend: Callable[[Api], None] | None = None,
) -> Starlette:
    """The application.

    Parameters
    ----------
    token : str
        That of an administrator. A token is required to change something and to read samples or, if ``public``, for
        every request; :mod:`taer.serve.tokens` has more of them.
    public : bool
        Whether the service can be reached from other machines, directly or through a proxy.
    hosts : sequence of str, optional
        Host names to answer under; None for any.
    drawings : bool
        Whether the page of a service for images offers a sheet to draw on.
    extend : callable, optional
        Adds more endpoints, such as those for a labeling tool.
    """
    counters = Counters()
    api = endpoints(service, counters, public, drawings)
    if extend is not None:
        extend(api)
    described = as_json(api.described("taer serve", __version__, _ABOUT)).body

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        saving = asyncio.create_task(keep_saving(lambda: run_in_threadpool(service.save)))
        if isinstance(service, Replica):
            service.start()
        yield
        saving.cancel()
        service.close()

    async def description(_: Request) -> Response:
        return Response(described, media_type="application/json")

    async def docs(_: Request) -> Response:
        return FileResponse(PAGE / "docs.html")

    gate = Middleware(Gate, counters=counters, tokens=Tokens(service.store.folder, token), hosts=hosts)
    return Starlette(
        routes=[
            *api.routes,
            Route("/openapi.json", description),
            Route("/docs", docs),
            Mount("/", StaticFiles(directory=PAGE, html=True)),
        ],
        middleware=[gate],
        exception_handlers=ERRORS,
        lifespan=lifespan,
    )


def endpoints(
    service: Service, counters: Counters, public: bool, drawings: bool = False, lane: Lane | None = None
) -> Api:
    """All that can be asked of a head."""
    counters.watch("taer_version", "The version that answers.", lambda: service.serving.version)
    counters.watch("taer_waiting_examples", "Examples that wait to be learned.", lambda: service.n_pending)
    counters.watch("taer_learning", "1 while a task is being learned.", lambda: service.learner.busy)
    counters.watch("taer_classes", "Classes known.", lambda: len(service.serving.classes))
    api = Api(public, REFUSAL if isinstance(service, Replica) else None, lane)
    routes.add_predict(api, service, counters)
    routes.add_examples(api, service)
    routes.add_versions(api, service, counters)
    routes.add_classes(api, service, drawings)
    routes.add_watch(api, service, counters)
    if isinstance(service, LabelService):
        add_labels(api, service, counters)
        return api
    add_trust(api, service, counters)
    add_groups(api, service)
    routes.add_inbox(api, service)
    add_protocol(api, service, counters)
    if isinstance(service, Replica):
        add_replica(api, service, counters)
    return api


async def keep_saving(save: Callable[[], Awaitable[None]]) -> None:
    """Save every minute, until canceled. A save that fails is logged, and does not end the others."""
    while True:
        await asyncio.sleep(_SAVE_SECONDS)
        try:
            await save()
        except Exception:
            _log.exception("not everything was saved; the next try is in %d seconds", _SAVE_SECONDS)
