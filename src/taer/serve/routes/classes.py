"""``/classes`` and ``/confusion``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from taer.serve import schemas
from taer.serve.bodies import body, described
from taer.serve.requests import LabelRequest
from taer.serve.routes.common import TOKEN, entry, problems
from taer.serve.service import Service


def router(service: Service, drawings: bool) -> APIRouter:
    router = APIRouter(tags=["use"], responses=problems())

    @router.get("/classes")
    def classes() -> schemas.Classes:
        """All classes in order of learning, and the number of waiting examples."""
        backbone = service.backbone
        return schemas.Classes(
            version=service.serving.version,
            width=service.width,
            backbone=schemas.BackboneEntry(
                name=backbone.name, kind=backbone.kind, drawings=drawings and backbone.kind == "image"
            )
            if backbone
            else None,
            learning=service.learner.busy,
            classes=[schemas.ClassEntry(**row) for row in service.classes()],
        )

    @router.patch(
        "/classes/{label:path}",
        tags=["correct"],
        responses=problems(404, 409, 415, 503),
        dependencies=TOKEN,
        openapi_extra=described(LabelRequest),
    )
    def rename(label: str, request: Annotated[LabelRequest, Depends(body(LabelRequest))]) -> schemas.VersionEntry:
        """Rename a class: a new version, in which nothing else changes."""
        return entry(service.rename(label, request.label))

    @router.delete("/classes/{label:path}", tags=["correct"], responses=problems(404, 409, 503), dependencies=TOKEN)
    def forget(label: str) -> schemas.VersionEntry:
        """Forget a class and its examples: a new version. A rollback to an earlier version restores it."""
        return entry(service.forget(label))

    @router.get("/confusion")
    def confusion() -> schemas.Confusion:
        """The confusion matrix of the current version on the held-out examples."""
        serving = service.serving
        order = [label for label, _ in serving.classes]
        cells = service.version(serving.version).report["confusion"] if serving.version else []
        return schemas.Confusion(
            version=serving.version,
            classes=order,
            cells=[schemas.Cell(truth=order[p], answer=order[q], count=n) for p, q, n in cells],
        )

    return router
