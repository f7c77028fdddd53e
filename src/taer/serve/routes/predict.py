"""``POST /predict``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from fastapi import FastAPI, Request
from fastapi.params import Depends
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.routing import request_response

from taer.serve import schemas
from taer.serve.bodies import body, described
from taer.serve.gate import Counters
from taer.serve.requests import PredictRequest
from taer.serve.routes.common import problems
from taer.serve.samples import to_matrix
from taer.serve.service import Service

_SMALL = 1 << 22  # multiplications that are done at once; more would keep other requests waiting


class _Direct(APIRoute):
    """An endpoint that reads its request itself: finding its arguments would take FastAPI longer than the answer."""

    def __init__(self, path: str, endpoint: Callable[[Request], Awaitable[Response]], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.app = request_response(endpoint)


def add_to(app: FastAPI, service: Service, counters: Counters, dependencies: Sequence[Depends]) -> None:
    """Add the endpoint to the application itself, because the routes of an included router are looked for twice."""
    read = body(PredictRequest)

    async def predict(http_request: Request) -> Response:
        """The likeliest classes of each sample, and whether it looks like none of them.

        Never waits for a task that is being learned. Vectors may come as an array in numpy's own format, too.
        """
        request = await read(http_request)
        small = len(request.vectors) * (service.width or 0) * 100 < _SMALL and len(request.vectors) > 0
        answer = _predict(service, request) if small else await run_in_threadpool(_predict, service, request)
        if not request.preview:
            counters.samples.inc(len(answer["predictions"]))
            counters.unknown.inc(sum(prediction["unknown"] for prediction in answer["predictions"]))
        return Response(msgspec.json.encode(answer), media_type="application/json")

    app.router.add_api_route(
        "/predict",
        predict,
        methods=["POST"],
        tags=["use"],
        dependencies=dependencies,
        response_model=schemas.Predictions,
        responses=problems(409, 415),
        openapi_extra=described(PredictRequest),
        route_class_override=_Direct,
    )


def _predict(service: Service, request: PredictRequest) -> dict[str, Any]:
    answers = service.predict(to_matrix(request, service.backbone, service.width), preview=request.preview)
    ranks, rows = -answers.probabilities, np.arange(len(answers.best))[:, None]
    ranks[rows, answers.best[:, None]] = -np.inf  # where probabilities round to a tie, the scores still decide
    top = np.argsort(ranks, axis=1, kind="stable")[:, : request.top]
    listed = zip(
        answers.probabilities[rows, top].tolist(),
        answers.classes[top].astype(str).tolist(),
        answers.novelty.tolist(),
        answers.unknown.tolist(),
        strict=True,
    )
    return {
        "version": answers.version,
        "threshold": answers.threshold,
        "predictions": [
            {
                "label": names[0],
                "probabilities": [
                    {"label": name, "probability": share} for name, share in zip(names, shares, strict=True)
                ],
                "novelty": novelty,
                "unknown": unknown,
            }
            for shares, names, novelty, unknown in listed
        ],
    }
