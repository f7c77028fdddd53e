"""One typed layer from a request to its answer.

An endpoint is a function. Its parameters that are in the path or the query are checked and converted by their types,
its parameter ``body`` is the request's body as a struct of msgspec, and what it returns is encoded as JSON. The same
types are the API's description: :meth:`Api.described`.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, get_type_hints

import msgspec
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from taer.answers import Problem
from taer.serve.bodies import JSON, NPY, Body, in_words
from taer.serve.database import StorageFailed
from taer.serve.gate import check_role, counted_examples, problem
from taer.serve.inputs import BadInput, ExamplesRequest, Items, NameOneRequest, NameRequest
from taer.serve.learner import Busy
from taer.serve.serving import Conflict, Missing, Unavailable
from taer.serve.tasks import Refused
from taer.serve.tokens import Role

_REFERENCE = "#/components/schemas/{name}"
_ALWAYS = (400, 401, 413, 422, 429)  # errors that any request can get
_STATUS: dict[type[Exception], int] = {BadInput: 422, Missing: 404, Conflict: 409, Refused: 409}
_PLAIN = {404: "there is nothing at this URL", 405: "this URL does not take this method"}
_SMALL = 1 << 22  # multiplications that are done on the event loop; more would keep other requests waiting
_OF_ROUTING = ("Not Found", "Method Not Allowed")
_log = logging.getLogger("taer.serve")


@dataclass(frozen=True)
class Lane:
    """The share of one head among many: how much of it is answered at the same time, so that others get their turn."""

    turn: AbstractAsyncContextManager[Any]  # of answers on the event loop
    threads: CapacityLimiter
    small: int  # multiplications that are done on the event loop; more would keep other heads waiting


class Api:
    """The endpoints. ``token`` is whether reading needs one, too; ``refusal`` is told to who wants to change something."""

    def __init__(self, token: bool, refusal: str | None = None, lane: Lane | None = None) -> None:
        self._token = token
        self._refusal = refusal
        self._turn = lane.turn if lane else nullcontext()
        self._threads = lane.threads if lane else None
        self.small = lane.small if lane else _SMALL
        self._endpoints: dict[str, dict[str, Endpoint]] = {}  # by path and method

    def add(
        self,
        method: str,
        path: str,
        function: Callable[..., Any],
        *,
        tag: str,
        problems: Sequence[int] = (),
        token: bool | None = None,
        role: Role | None = None,
        media: str = JSON,
        problem: type = Problem,
    ) -> None:
        """Add an endpoint; a coroutine function runs on the event loop, any other in a thread.

        ``problems`` are statuses of errors beside those of every request, and ``problem`` the type of their answer. An
        endpoint whose ``media`` is not JSON returns a response. With ``token`` it needs the role ``teach`` unless
        another is named; without, it is open to anyone; by default it needs the role ``read`` on a public address.
        """
        needs = self._token if token is None else token
        needed: Role | None = (role or ("teach" if token else "read")) if needs else None
        statuses = (*_ALWAYS, *((403,) if needs else ()), *problems)
        endpoint = Endpoint.of(function, path, tag, statuses, needed, media, problem)
        self._endpoints.setdefault(path, {})[method] = endpoint

    def check_changes(self, method: str, endpoint: Endpoint) -> None:
        """Raise HTTPException if the request would change something that is only read here."""
        if self._refusal and method != "GET" and endpoint.role in ("teach", "admin"):
            raise HTTPException(403, self._refusal)

    @property
    def routes(self) -> list[Route]:
        return [Route(path, _Address(self, methods)) for path, methods in self._endpoints.items()]

    async def answer(self, endpoint: Endpoint, request: Request) -> Response:
        values = endpoint.arguments(request)
        counted: AbstractContextManager[None] = nullcontext()
        if endpoint.body is not None:
            values["body"] = body = await endpoint.body.read(request)
            if isinstance(body, ExamplesRequest | NameRequest | NameOneRequest):
                counted = counted_examples(request.scope, body.count)
        with counted:
            if endpoint.direct:
                async with self._turn:
                    found = await endpoint.function(**values)
            else:
                found = await run_sync(partial(endpoint.function, **values), limiter=self._threads)
        return found if isinstance(found, Response) else as_json(found)

    def described(self, title: str, version: str, description: str) -> dict[str, Any]:
        """The description of all endpoints as OpenAPI."""
        every = [endpoint for methods in self._endpoints.values() for endpoint in methods.values()]
        bodies = {endpoint.body.kind for endpoint in every if endpoint.body}
        types = [*sorted(bodies, key=str), *(endpoint.answer for endpoint in every if endpoint.answer)]
        problems = {endpoint.problem for endpoint in every}
        _, schemas = msgspec.json.schema_components([*types, *sorted(problems, key=str)], ref_template=_REFERENCE)
        for kind in types:
            _add_words(schemas, kind)
        return {
            "openapi": "3.1.0",
            "info": {"title": title, "version": version, "description": description},
            "paths": {
                re.sub(r":\w+}", "}", path): {m.lower(): found.described() for m, found in methods.items()}
                for path, methods in self._endpoints.items()
            },
            "components": {
                "schemas": schemas,
                "securitySchemes": {
                    "token": {
                        "type": "http",
                        "scheme": "bearer",
                        "description": "The token that taer serve shows when it starts, or one that taer token made.",
                    }
                },
            },
        }


@dataclass(frozen=True)
class Endpoint:
    """A function and what its signature says."""

    function: Callable[..., Any]
    tag: str
    problems: Sequence[int]
    role: Role | None  # that a request must have; None if it needs no token
    media: str
    problem: type
    direct: bool  # a coroutine, which answers without a thread
    parameters: type[msgspec.Struct]
    in_path: frozenset[str]
    body: Body | None
    answer: Any  # the type of the answer; None if it is not JSON

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        path: str,
        tag: str,
        problems: Sequence[int],
        role: Role | None,
        media: str,
        problem: type,
    ) -> Endpoint:
        hints = get_type_hints(function, include_extras=True)
        answer, body = hints.pop("return"), hints.pop("body", None)
        signature = inspect.signature(function).parameters
        fields = [
            (name, hint)
            if (default := signature[name].default) is inspect.Parameter.empty
            else (name, hint, default)
            for name, hint in hints.items()
        ]
        return cls(
            function,
            tag,
            problems,
            role,
            media,
            problem,
            inspect.iscoroutinefunction(function),
            msgspec.defstruct("Parameters", fields, kw_only=True),
            frozenset(re.findall(r"{(\w+)", path)),
            getattr(body, "reader", Body)(body) if body else None,
            answer if media == JSON else None,
        )

    def arguments(self, request: Request) -> dict[str, Any]:
        """The parameters in the path and the query."""
        if not self.parameters.__struct_fields__:
            return {}
        given = {**request.query_params, **request.path_params}
        try:
            return msgspec.structs.asdict(msgspec.convert(given, self.parameters, strict=False))
        except msgspec.ValidationError as error:
            raise BadInput(in_words(error)) from None

    def described(self) -> dict[str, Any]:
        answer = {self.media: {} if self.answer is None else {"schema": _schema(self.answer)}}
        problem = {"content": {JSON: {"schema": _schema(self.problem)}}}
        found: dict[str, Any] = {
            "tags": [self.tag],
            "summary": self.function.__name__.replace("_", " ").capitalize(),
            "description": inspect.getdoc(self.function),
            "operationId": self.function.__name__,
            "parameters": [*self._parameters()],
            "responses": {"200": {"description": "OK", "content": answer}}
            | {str(code): {"description": HTTPStatus(code).phrase} | problem for code in self.problems},
        }
        if self.role:
            found["security"] = [{"token": [self.role]}]
        if self.body is not None:
            binary = {"schema": {"type": "string", "format": "binary"}}
            content = {JSON: {"schema": _schema(self.body.kind)}}
            content |= {media: binary for media in self.body.accepted if media != JSON}
            found["requestBody"] = {"required": True, "content": content}
        return found

    def _parameters(self) -> list[dict[str, Any]]:
        def one(name: str, place: str, schema: dict[str, Any], words: str = "") -> dict[str, Any]:
            about = schema.pop("description", words)
            return {"name": name, "in": place, "required": place == "path", "schema": schema} | (
                {"description": about} if about else {}
            )

        def properties(kind: type[msgspec.Struct]) -> dict[str, Any]:
            found: dict[str, Any] = msgspec.json.schema_components([kind])[1][kind.__name__]["properties"]
            return found

        listed = [
            one(name, "path" if name in self.in_path else "query", schema)
            for name, schema in properties(self.parameters).items()
        ]
        if self.body is not None and NPY in self.body.accepted:
            words = f"With {NPY} alone, which has no room for it."
            others = {name: part for name, part in properties(self.body.kind).items() if name in ("top", "label")}
            listed += [one(name, "query", part | {"description": words}) for name, part in others.items()]
        return listed


class _Address:
    """All methods of one path, as an ASGI application."""

    def __init__(self, api: Api, methods: dict[str, Endpoint]) -> None:
        self._api, self._methods = api, methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._methods.get(scope["method"])
        if endpoint is None:
            raise HTTPException(405, headers={"Allow": ", ".join(self._methods)})
        check_role(endpoint.role, scope)
        self._api.check_changes(scope["method"], endpoint)
        try:
            response = await self._api.answer(endpoint, Request(scope, receive))
        except ClientDisconnect:
            return  # in the middle of its body: nobody is left to answer
        await response(scope, receive, send)


def as_json(content: Any, status: int = 200, headers: Any = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, JSON)


async def in_a_sentence(request: Request, error: Exception) -> Response:
    """The answer to an error. It is a coroutine, so it never waits for a free thread."""
    if isinstance(error, HTTPException) and error.detail in _OF_ROUTING:
        try:
            check_role("read", request.scope)  # who has no token is not told what there is
        except HTTPException as refusal:
            error = refusal
    status, told, headers = _described(error)
    return as_json(problem(request.scope, told), status, headers)


def _described(error: Exception) -> tuple[int, str, Any]:
    match error:
        case HTTPException():
            known = _PLAIN.get(error.status_code) if error.detail in _OF_ROUTING else None
            return error.status_code, known or error.detail, error.headers
        case Busy():
            return 409, "a task is being learned; try again when it is done", {"Retry-After": "1"}
        case Unavailable():
            return 503, str(error), {"Retry-After": "1"}
        case StorageFailed():
            _log.error("storage failed: %s", error)
            return 503, str(error), None
        case _ if type(error) in _STATUS:
            return _STATUS[type(error)], str(error), None
    return 500, "something failed inside the service; its log says what", None


ERRORS: dict[Any, Any] = dict.fromkeys(
    [HTTPException, Busy, Unavailable, StorageFailed, *_STATUS, Exception], in_a_sentence
)


def _schema(kind: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.schema_components([kind], ref_template=_REFERENCE)[0][0]
    return found


def _add_words(schemas: dict[str, Any], kind: Any) -> None:
    """Add what types cannot say: descriptions of fields of answers, and that samples are of exactly one kind."""
    found = schemas[kind.__name__]
    if issubclass(kind, Items) and "oneOf" not in found:
        kinds = ("vectors", "images", "texts")
        for name in kinds:
            found["properties"][name]["minItems"] = 1
            del found["properties"][name]["default"]
        found["oneOf"] = [{"required": [name]} for name in kinds]
    elif not issubclass(kind, msgspec.Struct):
        for name, hint in get_type_hints(kind, include_extras=True).items():
            for words in getattr(hint, "__metadata__", ()):
                found["properties"][name]["description"] = words
            for inner in _parts(hint):
                _add_words(schemas, inner)


def _parts(hint: Any) -> list[Any]:
    """The types of answers inside the type of a field."""
    if isinstance(hint, type) and hasattr(hint, "__total__"):
        return [hint]
    return [found for part in getattr(hint, "__args__", ()) for found in _parts(part)]
