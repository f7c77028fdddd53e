"""``/examples`` and ``/purge``."""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query

from taer.serve import schemas
from taer.serve.bodies import body, described
from taer.serve.inputs import MAX_LABEL
from taer.serve.requests import ExamplesRequest, LabelRequest, PurgeRequest
from taer.serve.routes.common import TOKEN, problems
from taer.serve.samples import with_sources
from taer.serve.service import Service

Id = Annotated[int, Path(ge=1, le=2**63 - 1)]


def router(service: Service) -> APIRouter:
    router = APIRouter(tags=["teach"], responses=problems())
    writing: dict[str, Any] = {"dependencies": TOKEN, "responses": problems(404, 409, 415, 503)}

    @router.post("/examples", **writing, openapi_extra=described(ExamplesRequest))
    def add(request: Annotated[ExamplesRequest, Depends(body(ExamplesRequest))]) -> schemas.Added:
        """Add labeled examples of a class; they are on disk when this answers."""
        ids = service.add_examples(request.label, *with_sources(request, service.backbone, service.width))
        return schemas.Added(ids=ids, waiting=service.n_pending)

    @router.delete("/examples", **writing)
    def discard() -> schemas.Discarded:
        """Delete the waiting examples."""
        return schemas.Discarded(discarded=service.discard_pending())

    @router.get("/examples", dependencies=TOKEN)
    def listed(
        label: Annotated[str | None, Query(max_length=MAX_LABEL, description="Only those of this class.")] = None,
        after: Annotated[int, Query(ge=0, le=2**63 - 1, description="Only those with higher numbers.")] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> schemas.Examples:
        """The waiting examples, and those of the current version."""
        found = service.store.listed(service.serving.version, label, after, limit + 1)
        return schemas.Examples(
            examples=[schemas.ExampleEntry(**asdict(example)) for example in found[:limit]],
            next=found[limit - 1].id if len(found) > limit else None,
        )

    @router.get("/examples/{number}", dependencies=TOKEN, responses=problems(404))
    def one(number: Id) -> schemas.OneExample:
        """One example with its vector, and its text or a small copy of its image."""
        example = service.example(number)
        source = example.source
        return schemas.OneExample(
            id=example.id,
            label=example.label,
            version=example.version,
            held_back=example.held_back,
            kind="text" if isinstance(source, str) else "vector" if source is None else "image",
            text=source if isinstance(source, str) else None,
            vector=example.x.tolist(),
            image=base64.b64encode(source).decode() if isinstance(source, bytes) else None,
        )

    @router.patch("/examples/{number}", tags=["correct"], **writing, openapi_extra=described(LabelRequest))
    def relabel(number: Id, request: Annotated[LabelRequest, Depends(body(LabelRequest))]) -> schemas.Corrected:
        """Correct the label of an example.

        It is unlearned, and learned with the right label: a new version. Heads that cannot unlearn a sample refuse (409).
        """
        version = service.correct(number, request.label)
        return schemas.Corrected(version=version.version if version else None)

    @router.delete("/examples/{number}", tags=["correct"], **writing)
    def delete(number: Id) -> schemas.Corrected:
        """Remove an example: a new version that has not learned from it; earlier versions keep it."""
        version = service.correct(number, None)
        return schemas.Corrected(version=version.version if version else None)

    @router.post("/purge", tags=["correct"], **writing, openapi_extra=described(PurgeRequest))
    def purge(request: Annotated[PurgeRequest, Depends(body(PurgeRequest))]) -> schemas.Purged:
        """Delete examples permanently, with every version that was learned from them.

        Their other examples wait again, also those that a rollback had undone; POST /learn teaches them. Examples that
        had been deleted or forgotten before are gone with the last version that had them.
        """
        return schemas.Purged(**asdict(service.purge(request.ids)))

    return router
