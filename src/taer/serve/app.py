"""The service as HTTP."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path as FilePath
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, FastAPI, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from taer import __version__
from taer.serve import schemas
from taer.serve.bodies import BodyRoute
from taer.serve.gate import Counters, Gate
from taer.serve.inputs import BadInput, images_to_matrix, texts_to_matrix, vectors_to_matrix
from taer.serve.learner import Busy, Refused
from taer.serve.service import Conflict, Service
from taer.serve.store import Version

PAGE = FilePath(__file__).parent / "page"
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
_READING = ("GET", "HEAD", "OPTIONS")
_OPEN_PATHS = {"/", "/health", "/docs", "/openapi.json", *(f"/{file.name}" for file in PAGE.iterdir())}
_SMALL = 1 << 22  # multiplications that are done at once; more would keep other requests waiting
_log = logging.getLogger("taer.serve")

_BEARER = HTTPBearer(auto_error=False, description="The token that taer serve shows when it starts.")


def create_app(service: Service, token: str, public: bool = False) -> FastAPI:
    """The application.

    Parameters
    ----------
    token : str
        Asked for by everything that changes the service; by everything at all if ``public``.
    public : bool
        Whether the service can be reached from other machines.
    """
    counters = Counters()
    counters.watch("taer_version", "The version that answers.", lambda: service.serving.version)
    counters.watch("taer_waiting_examples", "Examples that wait to be learned.", lambda: service.n_pending)
    counters.watch("taer_learning", "1 while a task is being learned.", lambda: service.learner.busy)
    counters.watch("taer_classes", "Classes known.", lambda: len(service.serving.classes))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="taer serve",
        version=__version__,
        description="A classifier whose classes grow: predict, add examples, learn them as one task, go back.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
    )
    app.add_middleware(
        Gate,
        counters=counters,
        token=token,
        is_open=_open_to_anyone if public else _open_on_this_machine,
        hosts=None if public else LOCAL_NAMES,
    )
    _answer_in_sentences(app)
    guarded = [Depends(_BEARER)]  # for the description; the gate looks at the token before anything is read
    app.include_router(_readers(service, counters), dependencies=guarded if public else [])
    app.include_router(_writers(service, counters), dependencies=guarded)

    @app.get("/health", tags=["watch"])
    def health() -> schemas.Health:
        """Whether the service is up; open to anyone who can reach it."""
        return schemas.Health(status="ok", version=service.serving.version, learning=service.learner.busy)

    @app.get("/docs", include_in_schema=False)
    def docs() -> FileResponse:
        return FileResponse(PAGE / "docs.html")

    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return app


def _open_to_anyone(method: str, path: str) -> bool:
    """What needs no token at a public address: the page's own files, the description, and whether it is up."""
    return method in _READING and path in _OPEN_PATHS


def _open_on_this_machine(method: str, path: str) -> bool:
    """What needs no token here: everything that changes nothing."""
    return method in _READING or path == "/predict"


def _problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: {"model": schemas.Problem} for code in (400, 401, 413, 422, *codes)}


def _readers(service: Service, counters: Counters) -> APIRouter:
    """Endpoints that change nothing."""
    router = APIRouter(responses=_problems(), route_class=BodyRoute)

    @router.post("/predict", tags=["use"], response_model=schemas.Predictions, responses=_problems(409))
    async def predict(request: schemas.PredictRequest) -> Response:
        """The likeliest classes of each sample; never waits for a task that is being learned."""
        small = len(request.vectors) * (service.width or 0) * 100 < _SMALL and bool(request.vectors)
        answer = _predict(service, request) if small else await run_in_threadpool(_predict, service, request)
        counters.samples.inc(len(answer["predictions"]))
        return Response(json.dumps(answer), media_type="application/json")

    @router.get("/classes", tags=["use"])
    def classes() -> schemas.Classes:
        """All classes in the order they were learned, and what waits to be learned."""
        backbone = service.backbone
        return schemas.Classes(
            version=service.serving.version,
            width=service.width,
            backbone=schemas.BackboneEntry(name=backbone.name, kind=backbone.kind) if backbone else None,
            learning=service.learner.busy,
            classes=[schemas.ClassEntry(**row) for row in service.classes()],
        )

    @router.get("/history", tags=["teach"])
    def history() -> schemas.History:
        """Every version: what it learned, how well it does on examples held back, what it changed."""
        return schemas.History(
            current=service.serving.version, versions=[_entry(version) for version in service.store.versions()]
        )

    @router.get("/confusion", tags=["teach"])
    def confusion() -> schemas.Confusion:
        """Which class is taken for which, on the examples held back, for the version that answers."""
        serving = service.serving
        order = [label for label, _ in serving.classes]
        versions = {version.version: version.report for version in service.store.versions()}
        cells = versions[serving.version]["confusion"] if serving.version else []
        return schemas.Confusion(
            version=serving.version,
            classes=order,
            cells=[schemas.Cell(truth=order[p], answer=order[q], count=n) for p, q, n in cells],
        )

    @router.get(
        "/metrics", tags=["watch"], response_class=Response, responses={200: {"content": {"text/plain": {}}}}
    )
    def metrics() -> Response:
        """Counters in Prometheus' text format."""
        return Response(generate_latest(counters.registry), media_type=CONTENT_TYPE_LATEST)

    return router


def _writers(service: Service, counters: Counters) -> APIRouter:
    """Endpoints that change what is on disk; each wants the token."""
    router = APIRouter(tags=["teach"], responses=_problems(409, 503), route_class=BodyRoute)

    @router.post("/examples")
    def add(request: schemas.ExamplesRequest) -> schemas.Added:
        """Add labelled examples of a class; they are on disk when this answers."""
        ids = service.add_examples(request.label, _matrix(service, request))
        return schemas.Added(ids=ids, waiting=service.n_pending)

    @router.delete("/examples")
    def discard() -> schemas.Discarded:
        """Forget the examples that wait to be learned."""
        return schemas.Discarded(discarded=service.discard_pending())

    @router.post("/learn")
    def learn() -> schemas.VersionEntry:
        """Learn all waiting examples as one task: a new version, which answers from then on.

        Every fourth example of a class is held back to measure on. One task is learned at a time; a second request
        meanwhile is told so (409).
        """
        version = service.learn()
        counters.tasks.inc()
        return _entry(version)

    @router.post("/rollback/{version}", responses=_problems(404))
    def rollback(version: Annotated[int, Path(ge=0, le=2**31)]) -> schemas.History:
        """Answer from another version, earlier or later; 0 is the empty one. Nothing is deleted."""
        try:
            service.go_to(version)
        except KeyError:
            raise HTTPException(404, f"there is no version {version}") from None
        return schemas.History(
            current=service.serving.version, versions=[_entry(known) for known in service.store.versions()]
        )

    return router


def _matrix(service: Service, items: schemas.Items) -> np.ndarray:
    if items.images:
        return images_to_matrix(items.images, service.backbone, service.width)
    if items.texts:
        return texts_to_matrix(items.texts, service.backbone, service.width)
    return vectors_to_matrix(items.vectors, service.width)


def _predict(service: Service, request: schemas.PredictRequest) -> dict[str, Any]:
    version, head, labels, probabilities = service.predict(_matrix(service, request))
    ranks = -probabilities
    best = np.searchsorted(head.classes_, labels)
    ranks[np.arange(len(best)), best] = -np.inf  # where probabilities round to a tie, the scores still decide
    top = np.argsort(ranks, axis=1, kind="stable")[:, : request.top]
    names = [str(label) for label in head.classes_.tolist()]
    return {
        "version": version,
        "predictions": [
            {
                "label": names[order[0]],
                "probabilities": [{"label": names[i], "probability": row[i]} for i in order],
            }
            for row, order in zip(probabilities.tolist(), top.tolist(), strict=True)
        ],
    }


def _entry(version: Version) -> schemas.VersionEntry:
    report = {key: value for key, value in version.report.items() if key != "confusion"}
    return schemas.VersionEntry(version=version.version, parent=version.parent, created=version.created, **report)


def _answer_in_sentences(app: FastAPI) -> None:
    """Every failure is ``{"detail": a sentence}`` and nothing else; written at once, without a thread."""

    def sentence(status: int, detail: str, headers: Any = None) -> JSONResponse:
        return JSONResponse({"detail": detail}, status, headers)

    @app.exception_handler(RequestValidationError)
    async def not_as_described(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        message = first["msg"].removeprefix("Value error, ")
        return sentence(422, f"{where}: {message}"[:300] if where else message[:300])

    @app.exception_handler(HTTPException)
    async def as_raised(_: Request, error: HTTPException) -> JSONResponse:
        plain = {404: "there is nothing at this URL", 405: "this URL does not take this method"}
        known = (
            error.detail if error.detail not in ("Not Found", "Method Not Allowed") else plain[error.status_code]
        )
        return sentence(error.status_code, known, error.headers)

    @app.exception_handler(BadInput)
    async def bad_input(_: Request, error: BadInput) -> JSONResponse:
        return sentence(422, str(error))

    @app.exception_handler(Conflict)
    @app.exception_handler(Refused)
    async def conflict(_: Request, error: Exception) -> JSONResponse:
        return sentence(409, str(error))

    @app.exception_handler(Busy)
    async def busy(_: Request, error: Busy) -> JSONResponse:
        return sentence(409, "a task is being learned; try again when it is done", {"Retry-After": "1"})

    @app.exception_handler(sqlite3.DatabaseError)
    async def disk(_: Request, error: sqlite3.DatabaseError) -> JSONResponse:
        _log.error("the database failed: %s", error)
        return sentence(503, "the service cannot use its database; its log says why")

    @app.exception_handler(Exception)
    async def unforeseen(_: Request, error: Exception) -> JSONResponse:
        return sentence(500, "something failed inside the service; its log says what")
