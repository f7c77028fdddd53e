"""Bodies of requests: JSON, or an array in numpy's own format, checked without blocking other requests."""

from __future__ import annotations

import io
import re
from typing import Any

import anyio
import msgspec
import numpy as np
from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException
from starlette.requests import Request

from taer.serve.inputs import MAX_TEXT, MAX_TEXTS, MAX_VECTORS, MAX_WIDTH, BadInput, Items

JSON, NPY = "application/json", "application/x-npy"
_SMALL = 1 << 17  # bytes that are parsed in about a millisecond
# Brackets are the slowest to parse. Each vector has one, and the characters of texts may be brackets.
_MAX_BRACKETS = MAX_VECTORS + MAX_TEXTS * MAX_TEXT


class Body:
    """How a body becomes a struct. Samples may also come as an array."""

    accepted: tuple[str, ...] = (JSON,)

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self.kind = kind
        if issubclass(kind, Items):
            self.accepted = (JSON, NPY)
        self._decoder = msgspec.json.Decoder(kind)

    def media(self, request: Request) -> str:
        """The type of a body, as the request names it."""
        return request.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def read(self, request: Request) -> Any:
        media = self.media(request)
        if media not in self.accepted:  # a page of another origin may send anything else without asking
            expected = " or ".join(self.accepted)
            raise HTTPException(415, f"Content-Type: expected {expected}, got {media[:100] or 'none'}")
        content = await request.body()
        found: Any
        if media == NPY:
            found = _from_array(self.kind, content, dict(request.query_params))
        else:
            found = await self.parsed(request, content)
        if isinstance(found, Items):
            found.check()
        return found

    async def parsed(self, request: Request, content: bytes) -> Any:
        if len(content) < _SMALL:
            return self._parse(content)
        return await run_sync(self._parse, content, limiter=_turn(request))

    def _parse(self, content: bytes) -> Any:
        if not content:
            raise BadInput("a body in JSON is required")
        if content.count(b"[") + content.count(b"{") > _MAX_BRACKETS:
            raise HTTPException(413, f"a request may have {_MAX_BRACKETS} brackets")
        try:
            return self._decoder.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:  # also of what is not as described
            raise BadInput(in_words(error)) from None
        except RecursionError:
            raise BadInput("the body is not JSON of the expected form: it is nested too deeply") from None


def _turn(request: Request) -> anyio.CapacityLimiter:
    """One lock for the whole service, because a parser blocks the interpreter until it is done."""
    state = request.app.state
    if not hasattr(state, "parsing"):
        state.parsing = anyio.CapacityLimiter(1)
    turn: anyio.CapacityLimiter = state.parsing
    return turn


def _from_array(kind: type[msgspec.Struct], content: bytes, options: dict[str, str]) -> Any:
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
        raise BadInput(in_words(error)) from None
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


def in_words(error: Exception) -> str:
    """An error of msgspec as a readable message: ``vectors.0.3: expected a number, got a string``."""
    told, _, place = str(error).partition(" - at `$")
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
