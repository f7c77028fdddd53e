"""``POST /predict``."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np
from fastapi import APIRouter, Depends
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from taer.serve import schemas
from taer.serve.bodies import body, described
from taer.serve.gate import Counters
from taer.serve.requests import PredictRequest
from taer.serve.routes.common import problems
from taer.serve.samples import to_matrix
from taer.serve.service import Service

_SMALL = 1 << 22  # multiplications that are done at once; more would keep other requests waiting


def router(service: Service, counters: Counters) -> APIRouter:
    router = APIRouter(tags=["use"])

    @router.post(
        "/predict",
        response_model=schemas.Predictions,
        responses=problems(409, 415),
        openapi_extra=described(PredictRequest),
    )
    async def predict(request: Annotated[PredictRequest, Depends(body(PredictRequest))]) -> Response:
        """The likeliest classes of each sample, and whether it looks like none of them.

        Never waits for a task that is being learned. Vectors may come as an array in numpy's own format, too.
        """
        small = len(request.vectors) * (service.width or 0) * 100 < _SMALL and len(request.vectors) > 0
        answer = _predict(service, request) if small else await run_in_threadpool(_predict, service, request)
        counters.samples.inc(len(answer["predictions"]))
        counters.unknown.inc(sum(prediction["unknown"] for prediction in answer["predictions"]))
        return Response(msgspec.json.encode(answer), media_type="application/json")

    return router


def _predict(service: Service, request: PredictRequest) -> dict[str, Any]:
    answers = service.predict(to_matrix(request, service.backbone, service.width))
    ranks = -answers.probabilities
    ranks[
        np.arange(len(ranks)), answers.best
    ] = -np.inf  # where probabilities round to a tie, the scores still decide
    top = np.argsort(ranks, axis=1, kind="stable")[:, : request.top]
    names = [str(label) for label in answers.classes.tolist()]
    listed = zip(
        np.take_along_axis(answers.probabilities, top, axis=1).tolist(),
        top.tolist(),
        answers.novelty.tolist(),
        answers.unknown.tolist(),
        strict=True,
    )
    return {
        "version": answers.version,
        "threshold": answers.threshold,
        "predictions": [
            {
                "label": names[order[0]],
                "probabilities": [
                    {"label": names[i], "probability": share} for i, share in zip(order, shares, strict=True)
                ],
                "novelty": novelty,
                "unknown": unknown,
            }
            for shares, order, novelty, unknown in listed
        ],
    }
