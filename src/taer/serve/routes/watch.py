"""``/drift``, ``/metrics`` and ``/health``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from taer.serve import schemas
from taer.serve.gate import Counters
from taer.serve.routes.common import problems
from taer.serve.service import Service
from taer.serve.serving import FALSE_ALARMS


def router(service: Service, counters: Counters) -> APIRouter:
    router = APIRouter(tags=["watch"], responses=problems())

    @router.get("/drift")
    def drift(hours: Annotated[int, Query(ge=1, le=24 * 366)] = 24) -> schemas.Drift:
        """The number of unknown answers in each of the last hours."""
        found = service.drift.hours(hours)
        answered, unknown = sum(hour.answered for hour in found), sum(hour.unknown for hour in found)
        return schemas.Drift(
            answered=answered,
            unknown=unknown,
            fraction=unknown / answered if answered else None,
            expected=FALSE_ALARMS,
            hours=[schemas.Hour(**asdict(hour)) for hour in found],
        )

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    def metrics() -> Response:
        """Counters in the text format of Prometheus."""
        return Response(generate_latest(counters.registry), media_type=CONTENT_TYPE_LATEST)

    return router


def health(service: Service) -> APIRouter:
    """Open to anyone who can reach the service."""
    router = APIRouter(tags=["watch"])

    @router.get("/health")
    def up() -> schemas.Health:
        """Whether the service is up; open to anyone who can reach it."""
        return schemas.Health(status="ok", version=service.serving.version, learning=service.learner.busy)

    return router
