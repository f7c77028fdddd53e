"""The application of many heads: a request below ``/heads/NAME/`` goes to the application of that head.

Which is the same as that of a service with one head, made when the head is loaded. Nothing in it knows of other heads.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from anyio import CapacityLimiter
from msgspec import Meta
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from taer import __version__
from taer.answers import Deleted, HeadEntry, HeadList, ManyHealth
from taer.files import make_folder
from taer.serve import traces
from taer.serve.api import ERRORS, Api, Lane, as_json
from taer.serve.app import LOCAL_NAMES, PAGE, endpoints, keep_saving
from taer.serve.gate import Counters, Gate, Upload, Uploads, check_role
from taer.serve.many.folder import NAME
from taer.serve.many.heads import Heads, used_memory
from taer.serve.many.turns import Turns
from taer.serve.protocol import Failure, Live, Ready, server_metadata
from taer.serve.service import Service
from taer.serve.serving import Missing, Unavailable
from taer.serve.tokens import Tokens

_ABOUT = (
    "Many classifiers whose classes grow, behind one server: everything below /heads/{name} is about one of them."
)
_OF_A_HEAD = re.compile(r"(/heads/([^/]*))(/.*)")
_OF_A_MODEL = re.compile(r"/v2/models/([^/]*)(/.*)?")
_PROBLEM = "taer.problem"  # in a scope: why no head answers
_AT_ONCE = 1  # requests of a head that are predicted at the same time
_THREADS = 4  # of a head, for everything else
_SMALL = 1 << 19  # multiplications that a head does on the event loop: 13 vectors of 384 features
_SWITCH_SECONDS = 0.0005  # after which a thread lets another one go on; by default ten times as long
HeadName = Annotated[str, Meta(pattern=f"^{NAME.pattern}$", description="Name of a head.")]


class NewHead(msgspec.Struct, forbid_unknown_fields=True):
    """A head to make; with ``copy_of`` it has the examples and versions of another."""

    name: Annotated[str, Meta(max_length=64, min_length=1)]
    copy_of: Annotated[str, Meta(max_length=64)] | None = None


def create_many(
    folder: Path,
    token: str,
    open_head: Any,
    memory: int | None = None,
    public: bool = False,
    hosts: Sequence[str] | None = LOCAL_NAMES,
    drawings: bool = False,
) -> Many:
    """The application; ``open_head`` makes a service from a folder and a learner. See :func:`taer.serve.app.create_app`."""
    uploads, parsing = Uploads(), CapacityLimiter(1)

    def make_app(service: Service, tokens: Tokens) -> Starlette:
        counters, arriving = Counters(), set[Upload]()
        lane = Lane(asyncio.Semaphore(_AT_ONCE), CapacityLimiter(_THREADS), _SMALL)
        api = endpoints(service, counters, public, drawings, lane)
        gate = Middleware(Gate, counters=counters, tokens=tokens, hosts=hosts, uploads=uploads, arriving=arriving)
        app = Starlette(routes=api.routes, middleware=[gate], exception_handlers=ERRORS)
        app.state.parsing, app.state.arriving = parsing, arriving
        return app

    make_folder(folder)
    tokens = Tokens(folder, token)
    heads = Heads(folder, tokens, open_head, make_app, memory)
    counters = Counters()
    gate = Middleware(Gate, counters=counters, tokens=tokens, hosts=hosts, uploads=uploads)
    return Many(heads, _outside(heads, counters, gate, public, drawings), public)


class Many:
    """Sends each request to its head, or to what is outside of all heads."""

    def __init__(self, heads: Heads, outside: Starlette, public: bool) -> None:
        self.heads = heads
        self._outside, self._public = outside, public
        self._turns = Turns()
        self._page = {f"/{path.name}" for path in PAGE.iterdir()} | {"/", "/docs", "/openapi.json"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[traces.ARRIVED] = time.time_ns()  # loading a head and waiting for its turn are a part of the request
        name, inner = self._head_of(scope)
        if name is None:
            await self._outside(scope, receive, send)
            return
        try:
            if not NAME.fullmatch(name):
                raise Missing(f"there is no head {name[:100]}")
            if self._public and not _has_token(scope, self.heads.tokens(name)):
                raise HTTPException(401)  # before a head is loaded for anybody
            async with self.heads.lease(name) as head, self._turns.of(name):
                await head.app(inner, receive, send)
        except (Missing, Unavailable, HTTPException) as error:
            await self._outside({**scope, _PROBLEM: error}, receive, send)

    def _head_of(self, scope: Scope) -> tuple[str | None, Scope]:
        """The head that is asked, and the request as it sees it."""
        path = scope.get("path", "")
        if scope["type"] != "http":
            return None, scope
        if (found := _OF_A_HEAD.fullmatch(path)) and found[3] not in self._page:
            return found[2], {**scope, "root_path": scope.get("root_path", "") + found[1]}
        if found := _OF_A_MODEL.fullmatch(path):
            return found[1], dict(scope)
        return None, scope


def _has_token(scope: Scope, tokens: Tokens) -> bool:
    kind, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
    return kind.lower() == b"bearer" and tokens.find(given.strip()) is not None


def _outside(heads: Heads, counters: Counters, gate: Middleware, public: bool, drawings: bool) -> Starlette:
    counters.watch("taer_loaded_heads", "Heads in memory.", lambda: heads.n_loaded)
    counters.watch("taer_learning_heads", "Heads that learn or wait to learn.", lambda: len(heads.queue))
    counters.watch("taer_memory_bytes", "Resident memory of the server.", used_memory)
    api = Api(token=public)
    _add_heads(api, heads)
    _add_watch(api, heads, counters)
    own = api.described("taer serve --many", __version__, _ABOUT)
    nobody = cast("Service", None)  # a description asks no service
    of_a_head = endpoints(nobody, Counters(), public, drawings).described("taer serve", __version__, _ABOUT)
    described = as_json(_joined(own, of_a_head, public)).body
    described_head = as_json(of_a_head).body

    async def description(request: Request) -> Response:
        inner = "name" in request.path_params
        return Response(described_head if inner else described, media_type="application/json")

    async def docs(_: Request) -> Response:
        return FileResponse(PAGE / "docs.html")

    async def page(_: Request) -> Response:
        return FileResponse(PAGE / "heads.html")

    async def no_head(request: Request) -> Response:
        check_role("read" if public else None, request.scope)
        raise request.scope.get(_PROBLEM) or HTTPException(404)

    async def to_page(request: Request) -> Response:
        if not NAME.fullmatch(name := request.path_params["name"]):  # never to another host
            raise HTTPException(404)
        return RedirectResponse(f"{name}/")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        usual = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)  # so that a long answer of one head does not keep others waiting
        saving = asyncio.create_task(keep_saving(heads.save))
        yield
        saving.cancel()
        heads.close()
        sys.setswitchinterval(usual)

    def is_there(name: str) -> bool:
        """Whether a head has a page; on a public address any name has one, so that strangers learn no names."""
        return name in heads.folder or (public and bool(NAME.fullmatch(name)))

    files = StaticFiles(directory=PAGE, html=True)
    return Starlette(
        routes=[
            Route("/heads/{name}", to_page, methods=["GET"]),  # before those of the API, which take other methods
            *api.routes,
            Route("/", page),
            Route("/openapi.json", description),
            Route("/docs", docs),
            Route("/heads/{name}/openapi.json", description),
            Route("/heads/{name}/docs", docs),
            Route("/v2/models/{name:path}", no_head, methods=["GET", "POST"]),
            Mount("/heads/{name}", _Page(files, no_head, is_there)),
            Mount("/", files),
        ],
        middleware=[gate],
        exception_handlers=ERRORS,
        lifespan=lifespan,
    )


class _Page:
    """The page of a head, and the reason why it does not answer anything else."""

    def __init__(self, files: ASGIApp, otherwise: Any, is_there: Callable[[str], bool]) -> None:
        self._files, self._otherwise, self._is_there = files, otherwise, is_there

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _PROBLEM in scope:
            await self._otherwise(Request(scope))
        if not self._is_there(name := scope["path_params"]["name"]):
            raise Missing(f"there is no head {name[:100]}")
        await self._files(scope, receive, send)


def _add_heads(api: Api, heads: Heads) -> None:
    def listed(
        after: Annotated[str, Meta(max_length=64, description="Only those whose names come later.")] = "",
        limit: Annotated[int, Meta(ge=1, le=1000)] = 100,
    ) -> HeadList:
        """The heads by name. None is loaded for it."""
        found = heads.listed(after, limit + 1)
        return {"heads": found[:limit], "next": found[limit - 1]["name"] if len(found) > limit else None}

    async def make(body: NewHead) -> HeadEntry:
        """Make a head, empty or as a copy of another; its inbox and its tokens are not copied."""
        await heads.make(body.name, body.copy_of)
        return heads.folder.entry(body.name)

    async def delete(name: HeadName) -> Deleted:
        """Delete a head with everything in it, for good. What it is learning is given up."""
        await heads.delete(name)
        return {"deleted": name}

    api.add("GET", "/heads", listed, tag="heads")
    changing: dict[str, Any] = {"tag": "heads", "token": True, "role": "admin"}
    api.add("POST", "/heads", make, problems=(404, 409, 415, 503), **changing)
    api.add("DELETE", "/heads/{name}", delete, problems=(404, 409, 503), **changing)


def _add_watch(api: Api, heads: Heads, counters: Counters) -> None:
    def health() -> ManyHealth:
        """Whether the service is up; open to anyone who can reach it."""
        names = heads.folder.names()
        return {"status": "ok", "heads": len(names), "loaded": heads.n_loaded, "learning": len(heads.queue)}

    def metrics() -> Response:
        """Counters of all heads together, in the text format of Prometheus; each head has its own."""
        return Response(generate_latest(counters.registry), media_type=CONTENT_TYPE_LATEST)

    def live() -> Live:
        """Whether the service is up."""
        return {"live": True}

    def ready() -> Ready:
        """Whether the service takes requests; whether a head can predict is asked of its model."""
        return {"ready": True}

    api.add("GET", "/health", health, tag="watch", token=False)
    api.add("GET", "/metrics", metrics, tag="watch", media="text/plain")
    protocol: dict[str, Any] = {"tag": "protocol", "problem": Failure}
    api.add("GET", "/v2/health/live", live, token=False, **protocol)
    api.add("GET", "/v2/health/ready", ready, token=False, **protocol)
    api.add("GET", "/v2", server_metadata, **protocol)


def _joined(own: dict[str, Any], of_a_head: dict[str, Any], public: bool) -> dict[str, Any]:
    """One description: what is outside of all heads, and what each head has."""
    name = {
        "name": "name",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": f"^{NAME.pattern}$"},
        "description": "Name of a head.",
    }
    for path, methods in of_a_head["paths"].items():
        inner = {method: _inside(found, name, public) for method, found in methods.items()}
        own["paths"][f"/heads/{{name}}{path}"] = inner
        if path.startswith("/v2/models/"):
            own["paths"][path] = {
                method: {**_inside(found, None, public), "operationId": f"{found['operationId']}_by_model"}
                for method, found in methods.items()
            }
    own["components"]["schemas"] = of_a_head["components"]["schemas"] | own["components"]["schemas"]
    return own


def _inside(found: dict[str, Any], name: dict[str, Any] | None, public: bool) -> dict[str, Any]:
    """An endpoint of a head as it is among many: on a public address a head is not loaded without a token."""
    needed = {"security": found.get("security") or [{"token": ["read"]}]} if public else {}
    missing = {code: found["responses"]["422"] | {"description": told} for code, told in _NO_HEAD.items()}
    operation = {"operationId": f"{found['operationId']}_of_head"} if name else {}
    return {
        **found,
        **operation,
        **needed,
        "parameters": [*([name] if name else []), *found["parameters"]],
        "responses": missing | found["responses"],
    }


_NO_HEAD = {"404": "Not Found", "503": "Service Unavailable"}
