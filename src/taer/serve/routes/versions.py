"""``/learn``, ``/history`` and ``/rollback``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from taer.serve import schemas
from taer.serve.gate import Counters
from taer.serve.routes.common import TOKEN, entry, history, problems
from taer.serve.service import Service


def router(service: Service, counters: Counters) -> APIRouter:
    router = APIRouter(tags=["teach"], responses=problems())

    @router.post("/learn", responses=problems(409, 503), dependencies=TOKEN)
    def learn() -> schemas.VersionEntry:
        """Learn all waiting examples as one task: a new version, which becomes the current one.

        From eight examples of a class on, every fourth is held out to measure the accuracy. One task is learned at a
        time; another request meanwhile gets 409.
        """
        version = service.learn()
        counters.tasks.inc()
        return entry(version)

    @router.get("/history")
    def versions() -> schemas.History:
        """All versions: what each learned, its accuracy on held-out examples, and what it changed."""
        return history(service.serving.version, service.store.versions())

    @router.post("/rollback/{version}", responses=problems(404, 409, 503), dependencies=TOKEN)
    def rollback(version: Annotated[int, Path(ge=0, le=2**31)]) -> schemas.History:
        """Switch to another version, earlier or later; 0 is the empty one. Nothing is deleted."""
        return history(version, service.go_to(version))

    return router
