"""The Open Inference Protocol, version 2, over HTTP: what clients of Triton and KServe speak.

A service is one model. Its name is that of its folder; a replica has the name of the service that it follows. Tensors
come and go as JSON or, with the binary tensor extension, as bytes behind the JSON. Errors are ``{"error": message}``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, NotRequired, TypedDict

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from taer import __version__
from taer.serve.api import Api
from taer.serve.bodies import JSON, Body
from taer.serve.gate import Counters
from taer.serve.inputs import (
    MAX_TEXT,
    MAX_TEXTS,
    MAX_VECTORS,
    MAX_WIDTH,
    BadInput,
    PredictRequest,
    vectors_to_matrix,
    with_sources,
)
from taer.serve.service import Service
from taer.serve.serving import Answers, Missing

BINARY = "application/octet-stream"
_HEADER = "Inference-Header-Content-Length"  # the length of the JSON before the bytes
_FLOATS = {"FP32": "<f4", "FP64": "<f8"}
_OUTPUTS = {"label": "BYTES", "probability": "FP64", "novelty": "FP64", "unknown": "BOOL"}
_NOT_OFFERED = ("shared_memory_region", "classification")
Name = Annotated[str, Meta(max_length=300)]
Size = Annotated[int, Meta(ge=0, le=MAX_VECTORS * MAX_WIDTH)]


class InferBody(Body):
    """The body of an inference; bytes behind its JSON take the place of a tensor's ``data``."""

    accepted = (JSON, BINARY)

    def media(self, request: Request) -> str:
        if "content-type" not in request.headers and "origin" not in request.headers:
            return BINARY  # Triton's client names none; a page of another origin always names its origin
        return super().media(request)

    async def parsed(self, request: Request, content: bytes) -> Any:
        length = request.headers.get(_HEADER, str(len(content)))
        if not (length.isascii() and length.isdigit() and int(length) <= len(content)):
            raise BadInput(f"{_HEADER}: expected the length of the JSON in the body, got {length[:20]}")
        found = await super().parsed(request, content[: int(length)])
        rest, (tensor,) = content[int(length) :], found.inputs
        size = tensor.parameters.get("binary_data_size", 0)
        if size != len(rest):
            raise BadInput(f"{tensor.name}: binary_data_size is {size}, and {len(rest)} bytes came behind the JSON")
        if rest and tensor.data is not UNSET:
            raise BadInput(f"{tensor.name}: has data in the JSON and behind it")
        if rest:
            msgspec.structs.force_setattr(tensor, "data", rest)
        return found


class Input(Struct):
    """A tensor: its values are in ``data``, flat or nested, or behind the JSON."""

    name: Name
    datatype: Name
    shape: Annotated[list[Size], Meta(min_length=1, max_length=2)]
    parameters: dict[str, Any] = {}
    data: list[Any] | UnsetType = UNSET


class Output(Struct):
    name: Name
    parameters: dict[str, Any] = {}


class InferRequest(Struct):
    """Samples as one tensor: ``vectors`` (FP32 or FP64) or ``texts`` (BYTES)."""

    reader: ClassVar[type[Body]] = InferBody
    inputs: Annotated[list[Input], Meta(min_length=1, max_length=1)]
    id: Annotated[Name | None, Meta(description="Comes back with the answer.")] = None
    parameters: dict[str, Any] = {}
    outputs: Annotated[list[Output], Meta(max_length=len(_OUTPUTS), description="Those that are wanted.")] = []


class Failure(TypedDict):
    """A description of the error."""

    error: str


class Live(TypedDict):
    live: bool


class Ready(TypedDict):
    name: NotRequired[str]
    ready: bool


class ServerMetadata(TypedDict):
    name: str
    version: str
    extensions: list[str]


class TensorMetadata(TypedDict):
    name: str
    datatype: str
    shape: Annotated[list[int], "-1 for any number."]


class ModelMetadata(TypedDict):
    name: str
    versions: Annotated[list[str], "The version that answers."]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class OutputTensor(TypedDict):
    name: str
    datatype: str
    shape: list[int]
    parameters: NotRequired[dict[str, int]]
    data: NotRequired[list[Any]]


class Inference(TypedDict):
    model_name: str
    model_version: str
    id: NotRequired[str]
    outputs: list[OutputTensor]


def server_metadata() -> ServerMetadata:
    """The name of the server, and the parts of the protocol that it has."""
    return {"name": "taer", "version": __version__, "extensions": ["binary_tensor_data"]}


def add_protocol(api: Api, service: Service, counters: Counters) -> None:
    def version_of(model: str, version: int | None = None) -> int:
        """The version that answers, if it is the one that is asked for."""
        current = service.serving.version
        if model != service.name:
            raise Missing(f"there is no model {model}; this service has {service.name}")
        if version is not None and version != current:
            raise Missing(f"version {version} of {model} does not answer; version {current} does")
        return current

    def live() -> Live:
        """Whether the service is up."""
        return {"live": True}

    def ready() -> Ready:
        """Whether the service can predict; 503 until something was learned."""
        return model_ready(service.name)

    def model_metadata(model: Name) -> ModelMetadata:
        """The tensors that the head takes and gives."""
        version_of(model)
        head, backbone = service.serving.head, service.backbone
        takes: TensorMetadata = {"name": "vectors", "datatype": "FP32", "shape": [-1, service.width or -1]}
        if backbone is not None and backbone.kind == "text":
            takes = {"name": "texts", "datatype": "BYTES", "shape": [-1]}
        return {
            "name": model,
            "versions": [str(service.serving.version)] if head is not None else [],
            "platform": "taer" if head is None else f"taer_{type(head).__name__}",
            "inputs": [takes],
            "outputs": [{"name": name, "datatype": kind, "shape": [-1]} for name, kind in _OUTPUTS.items()],
        }

    def metadata_of_version(model: Name, version: int) -> ModelMetadata:
        """The same, if this is the version that answers."""
        version_of(model, version)
        return model_metadata(model)

    def model_ready(model: Name) -> Ready:
        """Whether the head can predict; 503 until something was learned."""
        if not version_of(model):
            raise HTTPException(503, "nothing was learned yet: add examples, then learn")
        return {"name": model, "ready": True}

    def version_ready(model: Name, version: int) -> Ready:
        """Whether this version answers; 404 if another one does."""
        version_of(model, version)
        return model_ready(model)

    async def infer(model: Name, body: InferRequest) -> Inference:
        """Labels, probabilities and novelty of samples, as tensors: the answers of POST /predict."""
        version_of(model)
        return await inferred(model, body, None)

    async def infer_with_version(model: Name, version: int, body: InferRequest) -> Inference:
        """The same, if this is the version that answers; 404 if it is not."""
        version_of(model, version)
        return await inferred(model, body, version)

    async def inferred(model: str, body: InferRequest, version: int | None) -> Any:
        wanted = _wanted(body)
        (tensor,) = body.inputs
        small = tensor.name == "vectors" and tensor.shape[0] * (service.width or 0) * 100 < api.small
        found = _infer(service, body) if small else await run_in_threadpool(_infer, service, body)
        if version not in (None, found.version):  # it changed meanwhile
            version_of(model, version)
        counters.samples.inc(len(found.best))
        counters.unknown.inc(int(found.unknown.sum()))
        counters.automatic.inc(0 if found.automatic is None else int(found.automatic.sum()))
        return _answer(model, body, wanted, found)

    def add(method: str, path: str, function: Any, **options: Any) -> None:
        api.add(method, path, function, tag="protocol", problem=Failure, **options)

    path = "/v2/models/{model}"
    of_version = path + "/versions/{version}"
    add("GET", "/v2/health/live", live, token=False)
    add("GET", "/v2/health/ready", ready, token=False, problems=(503,))
    add("GET", "/v2", server_metadata)
    add("POST", f"{path}/infer", infer, problems=(404, 409, 415))
    add("POST", f"{of_version}/infer", infer_with_version, problems=(404, 409, 415))
    add("GET", f"{path}/ready", model_ready, problems=(404, 503))
    add("GET", f"{of_version}/ready", version_ready, problems=(404, 503))
    add("GET", path, model_metadata, problems=(404,))
    add("GET", of_version, metadata_of_version, problems=(404,))


# From tensors to samples


def _infer(service: Service, request: InferRequest) -> Answers:
    (tensor,) = request.inputs
    if any(name in tensor.parameters for name in _NOT_OFFERED):
        raise BadInput(f"{tensor.name}: shared memory is not offered; send the values")
    if tensor.name == "vectors":
        return service.predict(vectors_to_matrix(_vectors(tensor), service.width))
    if tensor.name == "texts":
        samples = PredictRequest(texts=_texts(tensor))
        return service.predict(*with_sources(samples, service.backbone, service.width))
    raise BadInput(f"inputs: expected vectors or texts, got {tensor.name}")


def _vectors(tensor: Input) -> np.ndarray:
    if tensor.datatype not in _FLOATS:
        raise BadInput(f"vectors: expected the datatype FP32 or FP64, got {tensor.datatype}")
    if len(tensor.shape) != 2 or not 1 <= tensor.shape[0] <= MAX_VECTORS or not 1 <= tensor.shape[1] <= MAX_WIDTH:
        raise BadInput(f"vectors: expected 1 to {MAX_VECTORS} rows of 1 to {MAX_WIDTH} numbers, got {tensor.shape}")
    raw = _raw(tensor)
    if raw is not None:
        kind = np.dtype(_FLOATS[tensor.datatype])
        _check_count(tensor, len(raw) / kind.itemsize)
        return np.frombuffer(raw, kind).reshape(tensor.shape)
    values = _flat(tensor)
    if not all(type(value) in (float, int) for value in values):
        raise BadInput("vectors: every value must be a number")
    try:
        return np.array(values, np.float64).reshape(tensor.shape)
    except OverflowError:
        raise BadInput("vectors: every number must be finite and fit in 32 bits") from None


def _texts(tensor: Input) -> list[str]:
    if tensor.datatype != "BYTES":
        raise BadInput(f"texts: expected the datatype BYTES, got {tensor.datatype}")
    if tensor.shape[1:] not in ([], [1]) or not 1 <= tensor.shape[0] <= MAX_TEXTS:
        raise BadInput(f"texts: expected the shape [n] or [n, 1] with 1 to {MAX_TEXTS} texts, got {tensor.shape}")
    raw = _raw(tensor)
    values = _flat(tensor) if raw is None else [*_elements(raw)]
    _check_count(tensor, len(values))
    if not all(isinstance(value, str) and 1 <= len(value) <= MAX_TEXT for value in values):
        raise BadInput(f"texts: every value must be a text of 1 to {MAX_TEXT} characters")
    return values


def _raw(tensor: Input) -> bytes | None:
    """The bytes that came behind the JSON, if they did."""
    values: Any = tensor.data
    return values if isinstance(values, bytes) else None


def _elements(raw: bytes) -> Iterator[str]:
    """Strings, each behind its length in four bytes."""
    place = 0
    while place < len(raw):
        size = int.from_bytes(raw[place : place + 4], "little")
        part = raw[place + 4 : place + 4 + size]
        if len(part) < size or len(raw) < place + 4:
            raise BadInput("texts: the bytes end before the last text does")
        try:
            yield part.decode()
        except UnicodeDecodeError:
            raise BadInput("texts: expected UTF-8") from None
        place += 4 + size


def _flat(tensor: Input) -> list[Any]:
    """The values in the JSON, whether they are nested or not."""
    if tensor.data is UNSET:
        raise BadInput(f"{tensor.name}: data is missing")
    values = tensor.data
    if values and all(isinstance(row, list) for row in values):
        values = [value for row in values for value in row]
    _check_count(tensor, len(values))
    return values


def _check_count(tensor: Input, count: float) -> None:
    expected = int(np.prod(tensor.shape))
    if count != expected:
        raise BadInput(f"{tensor.name}: a tensor of shape {tensor.shape} has {expected} values, got {count:g}")


# From answers to tensors


def _wanted(request: InferRequest) -> dict[str, bool]:
    """The outputs that are asked for, and whether each goes behind the JSON."""
    anyway = request.parameters.get("binary_data_output") is True
    if not request.outputs:
        return dict.fromkeys(_OUTPUTS, anyway)
    for output in request.outputs:
        if output.name not in _OUTPUTS:
            raise BadInput(f"outputs: expected some of {', '.join(_OUTPUTS)}; got {output.name}")
        if any(name in output.parameters for name in _NOT_OFFERED):
            raise BadInput(f"{output.name}: {' and '.join(_NOT_OFFERED)} are not offered")
    return {output.name: output.parameters.get("binary_data", anyway) is True for output in request.outputs}


def _answer(model: str, request: InferRequest, wanted: dict[str, bool], found: Answers) -> Inference | Response:
    values: dict[str, list[Any]] = {
        "label": found.classes[found.best].astype(str).tolist(),
        "probability": found.probabilities[np.arange(len(found.best)), found.best].tolist(),
        "novelty": found.novelty.tolist(),
        "unknown": found.unknown.tolist(),
    }
    behind = b""
    outputs: list[OutputTensor] = []
    for name, binary in wanted.items():
        tensor: OutputTensor = {"name": name, "datatype": _OUTPUTS[name], "shape": [len(found.best)]}
        if binary:
            part = _as_bytes(values[name], _OUTPUTS[name])
            behind += part
            tensor["parameters"] = {"binary_data_size": len(part)}
        else:
            tensor["data"] = values[name]
        outputs.append(tensor)
    answer: Inference = {"model_name": model, "model_version": str(found.version), "outputs": outputs}
    if request.id is not None:
        answer["id"] = request.id
    if not any(wanted.values()):
        return answer
    head = msgspec.json.encode(answer)
    return Response(head + behind, headers={_HEADER: str(len(head))}, media_type=BINARY)


def _as_bytes(values: list[Any], datatype: str) -> bytes:
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(part)) + part for part in (value.encode() for value in values))
    return np.array(values, {"FP64": "<f8", "BOOL": "?"}[datatype]).tobytes()
