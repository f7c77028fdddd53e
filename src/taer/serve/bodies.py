"""Parsing of request bodies, without blocking other requests."""

from __future__ import annotations

import io
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import msgspec
import numpy as np
from anyio.to_thread import run_sync
from fastapi import Request
from starlette.exceptions import HTTPException

from taer.serve.inputs import MAX_TEXT, MAX_TEXTS, MAX_VECTORS, MAX_WIDTH, BadInput
from taer.serve.requests import Items, schema

JSON, NPY = "application/json", "application/x-npy"
_SMALL = 1 << 17  # bytes that are parsed in about a millisecond
# Brackets are the slowest to parse. Each vector has one, and the characters of texts may be brackets.
_MAX_BRACKETS = MAX_VECTORS + MAX_TEXTS * MAX_TEXT

Kind = TypeVar("Kind", bound=msgspec.Struct)


def body(kind: type[Kind]) -> Callable[[Request], Awaitable[Kind]]:
    """A dependency that reads the body of a request: JSON, or for vectors an array in numpy's own format."""
    decoder = msgspec.json.Decoder(kind)

    def parse(content: bytes) -> Kind:
        if not content:
            raise BadInput("a body in JSON is required")
        if content.count(b"[") + content.count(b"{") > _MAX_BRACKETS:
            raise HTTPException(413, f"a request may have {_MAX_BRACKETS} brackets")
        try:
            return decoder.decode(content)
        except msgspec.DecodeError as error:  # also of what is not as described
            raise BadInput(_sentence(str(error))) from None
        except RecursionError:
            raise BadInput("the body is not JSON of the expected form: it is nested too deeply") from None

    async def read(request: Request) -> Kind:
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        accepted = (JSON, NPY) if issubclass(kind, Items) else (JSON,)
        if media not in accepted:  # a page of another origin may send anything else without asking
            raise HTTPException(415, f"Content-Type: expected {' or '.join(accepted)}, got {media[:100] or 'none'}")
        content = await request.body()
        found: Any
        if media == NPY:
            found = _from_array(kind, content, dict(request.query_params))
        else:
            found = (
                parse(content) if len(content) < _SMALL else await run_sync(parse, content, limiter=_turn(request))
            )
        if isinstance(found, Items):
            found.check()
        read_as: Kind = found
        return read_as

    return read


def described(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The description of the body for OpenAPI."""
    content: dict[str, Any] = {JSON: {"schema": schema(kind)}}
    extra: dict[str, Any] = {"requestBody": {"required": True, "content": content}}
    if issubclass(kind, Items):
        content[NPY] = {"schema": {"type": "string", "format": "binary"}}
        others = {
            name: part for name, part in content[JSON]["schema"]["properties"].items() if name in ("top", "label")
        }
        extra["parameters"] = [
            {
                "name": name,
                "in": "query",
                "schema": part,
                "description": f"With {NPY} alone, which has no room for it.",
            }
            for name, part in others.items()
        ]
    return extra


def _turn(request: Request) -> anyio.CapacityLimiter:
    """One lock for the whole service, because a parser blocks the interpreter until it is done."""
    state = request.app.state
    if not hasattr(state, "parsing"):
        state.parsing = anyio.CapacityLimiter(1)
    turn: anyio.CapacityLimiter = state.parsing
    return turn


def _from_array(kind: type[Kind], content: bytes, options: dict[str, str]) -> Kind:
    """Vectors in the format of ``numpy.save``; the other fields are in the query."""
    try:
        array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except Exception:  # headers are Python literals, and damaged ones raise anything
        raise BadInput("the body is not an array as numpy.save writes it") from None
    if array.ndim != 2 or array.dtype.kind not in "fiu" or not 1 <= array.shape[1] <= MAX_WIDTH:
        raise BadInput(
            f"vectors: expected rows of 1 to {MAX_WIDTH} numbers, got {array.dtype} of shape {array.shape}"
        )
    if len(array) > MAX_VECTORS:
        raise BadInput(f"vectors: {len(array)} were sent, and at most {MAX_VECTORS} are taken at once")
    try:
        found = msgspec.convert(options, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(_sentence(str(error))) from None
    msgspec.structs.force_setattr(found, "vectors", array)
    return found


_WORDS = {
    "str": "a string", "float": "a number", "int": "a whole number", "array": "a list", "object": "an object",
    "null": "null", "bool": "true or false",
}  # fmt: skip
_MESSAGES = [
    (r"Expected `array` of length <= (\d+)", r"at most \1 are taken at once"),
    (r"Expected `array` of length >= (\d+)", r"at least \1 is needed"),
    (r"Expected `str` of length <= (\d+)", r"at most \1 characters are taken"),
    (r"Expected `str` of length >= (\d+)", r"must not be empty"),
    (r"Expected `int` >= (-?\d+)", r"expected a whole number, \1 or more"),
    (r"Expected `int` <= (-?\d+)", r"expected a whole number, \1 or less"),
    (r"Object missing required field `(\w+)`", r"\1 is missing"),
    (r"Object contains unknown field `(.*)`", r"there is no field \1"),
]


def _sentence(message: str) -> str:
    """An error of msgspec as a readable message: ``vectors.0.3: expected a number, got a string``."""
    told, _, place = message.partition(" - at `$")
    where = re.sub(r"\[(\d+|\.\.\.)\]", r".\1", place.rstrip("`")).strip(".")
    for pattern, words in _MESSAGES:
        if found := re.fullmatch(pattern, told):
            told = found.expand(words)
            break
    else:
        if types := re.fullmatch(r"Expected (.*), got `(\w+)`", told):
            wanted = " or ".join(_WORDS.get(word, word) for word in re.findall(r"\w+", types[1]))
            told = f"expected {wanted}, got {_WORDS.get(types[2], types[2])}"
        else:
            told = f"the body is not JSON: {told}"
    return f"{where}: {told}"[:300] if where else told[:300]
