"""The endpoints: what can be asked of a service over HTTP."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from taer import answers
from taer.serve.api import Api
from taer.serve.export import Snapshot, as_csv
from taer.serve.gate import Counters
from taer.serve.inputs import (
    MAX_LABEL,
    DescribeRequest,
    DismissRequest,
    ExamplesRequest,
    Id,
    LabelRequest,
    NameOneRequest,
    PredictRequest,
    PurgeRequest,
    with_sources,
)
from taer.serve.service import Service
from taer.serve.serving import Missing
from taer.serve.store import Version

Short = Annotated[str, Meta(max_length=MAX_LABEL)]
_CHANGING = (404, 409, 415, 503)


def add_predict(api: Api, service: Service, counters: Counters) -> None:
    async def predict(body: PredictRequest) -> answers.Predictions:
        """The likeliest classes of each sample, and whether it looks like none of them.

        Never waits for a task that is being learned. Vectors may come as an array in numpy's own format, too.
        """
        small = (
            len(body.vectors) * (service.width or 0) * 100 < api.small and len(body.vectors) > 0 and not body.why
        )
        found = _predict(service, body) if small else await run_in_threadpool(_predict, service, body)
        if not body.preview:
            counters.samples.inc(len(found["predictions"]))
            counters.unknown.inc(sum(prediction["unknown"] for prediction in found["predictions"]))
            counters.automatic.inc(sum(prediction.get("automatic", False) for prediction in found["predictions"]))
        return found

    api.add("POST", "/predict", predict, tag="use", problems=(409, 415))


def _predict(service: Service, request: PredictRequest) -> answers.Predictions:
    keeps = service.inbox is not None and not request.preview
    X, sources = with_sources(request, service.backbone, service.width, keep=keeps)
    found = service.predict(X, sources, preview=request.preview, why=request.why)
    ranks, rows = -found.probabilities, np.arange(len(found.best))[:, None]
    ranks[rows, found.best[:, None]] = -np.inf  # where probabilities round to a tie, the scores still decide
    top = np.argsort(ranks, axis=1, kind="stable")[:, : request.top]
    listed = zip(
        found.probabilities[rows, top].tolist(),
        found.classes[top].astype(str).tolist(),
        found.novelty.tolist(),
        found.unknown.tolist(),
        strict=True,
    )
    predictions: list[answers.Prediction] = [
        {
            "label": names[0],
            "probabilities": [
                {"label": name, "probability": share} for name, share in zip(names, shares, strict=True)
            ],
            "novelty": novelty,
            "unknown": unknown,
        }
        for shares, names, novelty, unknown in listed
    ]
    for prediction, alone in zip(predictions, () if found.automatic is None else found.automatic, strict=False):
        prediction["automatic"] = bool(alone)
    for prediction, why in zip(predictions, found.why or (), strict=False):
        prediction["why"] = why
    return {"version": found.version, "threshold": found.threshold, "predictions": predictions}


def add_examples(api: Api, service: Service) -> None:
    def add(body: ExamplesRequest) -> answers.Added:
        """Add labeled examples of a class; they are on disk when this answers."""
        ids = service.add_examples(body.label, *with_sources(body, service.backbone, service.width))
        return {"ids": ids, "waiting": service.n_pending}

    def discard() -> answers.Discarded:
        """Delete the waiting examples."""
        return {"discarded": service.discard_pending()}

    def examples(
        label: Annotated[Short | None, Meta(description="Only those of this class.")] = None,
        after: Annotated[int, Meta(ge=0, le=2**63 - 1, description="Only those with higher numbers.")] = 0,
        limit: Annotated[int, Meta(ge=1, le=1000)] = 100,
    ) -> answers.Examples:
        """The waiting examples, and those of the current version."""
        found = service.store.listed(service.serving.version, label, after, limit + 1)
        return {"examples": found[:limit], "next": found[limit - 1]["id"] if len(found) > limit else None}

    def example(number: Id) -> answers.OneExample:
        """One example with its vector, and its text or a small copy of its image."""
        found = service.example(number)
        source = found.source
        return {
            "id": found.id,
            "label": found.label,
            "version": found.version,
            "held_back": found.held_back,
            "added": found.added,
            "kind": "text" if isinstance(source, str) else "vector" if source is None else "image",
            "text": source if isinstance(source, str) else None,
            "vector": found.x.tolist(),
            "image": base64.b64encode(source).decode() if isinstance(source, bytes) else None,
        }

    def relabel(number: Id, body: LabelRequest) -> answers.Corrected:
        """Correct the label of an example.

        It is unlearned, and learned with the right label: a new version. Heads that cannot unlearn a sample refuse (409).
        """
        version = service.correct(number, body.label)
        return {"version": version.version if version else None}

    def delete(number: Id) -> answers.Corrected:
        """Remove an example: a new version that has not learned from it; earlier versions keep it."""
        version = service.correct(number, None)
        return {"version": version.version if version else None}

    def purge(body: PurgeRequest) -> answers.Purged:
        """Delete examples permanently, with every version that was learned from them.

        Their other examples wait again, also those that a rollback had undone; POST /learn teaches them. Examples that
        had been deleted or forgotten before are gone with the last version that had them.
        """
        return service.purge(body.ids)

    def table() -> Response:
        """All examples as CSV: those that wait and those of the current version, without their vectors.

        The column image has the address of an image, relative to the table.
        """
        snapshot = Snapshot(service.store.folder)

        def lines() -> Iterator[str]:
            with closing(snapshot):
                yield from as_csv(snapshot.rows("examples/{}"))

        headers = {"Content-Disposition": 'attachment; filename="examples.csv"'}
        return StreamingResponse(lines(), headers=headers, media_type="text/csv")

    writing: dict[str, Any] = {"token": True, "problems": _CHANGING}
    api.add("POST", "/examples", add, tag="teach", **writing)
    api.add("DELETE", "/examples", discard, tag="teach", **writing)
    api.add("GET", "/examples", examples, tag="teach", token=True)
    api.add("GET", "/examples.csv", table, tag="teach", token=True, problems=(503,), media="text/csv")
    api.add("GET", "/examples/{number}", example, tag="teach", token=True, problems=(404,))
    api.add("PATCH", "/examples/{number}", relabel, tag="correct", **writing)
    api.add("DELETE", "/examples/{number}", delete, tag="correct", **writing)
    api.add("POST", "/purge", purge, tag="correct", role="admin", **writing)


def add_versions(api: Api, service: Service, counters: Counters) -> None:
    def learn() -> answers.VersionEntry:
        """Learn all waiting examples as one task: a new version, which becomes the current one or, with --promote, waits.

        From eight examples of a class on, every fourth is held out to measure the accuracy. One task is learned at a
        time; another request meanwhile gets 409.
        """
        version = service.learn()
        counters.tasks.inc()
        return entry(version, version.version if service.has_candidate else None)

    def history() -> answers.History:
        """All versions: what each learned, its accuracy on held-out examples, and what it changed."""
        return _history(service, service.serving.version, service.store.versions())

    def rollback(version: Annotated[int, Meta(ge=0, le=2**31)]) -> answers.History:
        """Switch to another version, earlier or later; 0 is the empty one. Nothing is deleted."""
        return _history(service, version, service.go_to(version))

    def candidate() -> answers.Candidate:
        """What promoting the version that waits would change, on held-out examples, and on requests since."""
        return service.candidate().described()

    def promote() -> answers.History:
        """Let the candidate answer from now on."""
        versions = service.promote()
        return _history(service, service.serving.version, versions)

    def reject() -> answers.Rejected:
        """Delete the candidate. Its examples wait again, to be corrected, discarded or learned."""
        return {"waiting": service.reject()}

    waiting = "/versions/candidate"
    api.add("GET", waiting, candidate, tag="stage", token=True, problems=(404, 503))
    api.add("POST", f"{waiting}/promote", promote, tag="stage", token=True, role="admin", problems=(404, 409, 503))
    api.add("POST", f"{waiting}/reject", reject, tag="stage", token=True, role="admin", problems=(404, 409, 503))
    api.add("POST", "/learn", learn, tag="teach", token=True, problems=(409, 503))
    api.add("GET", "/history", history, tag="teach")
    api.add(
        "POST", "/rollback/{version}", rollback, tag="teach", token=True, role="admin", problems=(404, 409, 503)
    )


def _history(service: Service, current: int, versions: list[Version]) -> answers.History:
    candidate = service.store.candidate()
    return {"current": current, "versions": [entry(known, candidate) for known in versions]}


def entry(version: Version, candidate: int | None = None) -> answers.VersionEntry:
    report = {key: value for key, value in version.report.items() if key != "confusion"}
    known = {"version": version.version, "parent": version.parent, "created": version.created}
    found: Any = {
        **known,
        "edit": None,
        "backbone": None,
        "warnings": [],
        "candidate": version.version == candidate,
        **report,
    }
    made: answers.VersionEntry = found
    return made


def add_classes(api: Api, service: Service, drawings: bool) -> None:
    def classes() -> answers.Classes:
        """All classes in order of learning, and the number of waiting examples."""
        known = service.backbone
        backbone: answers.BackboneEntry | None = None
        if known is not None:
            shown = drawings and known.kind == "image"
            backbone = {"name": known.name, "kind": known.kind, "drawings": shown}
        return {
            "version": service.serving.version,
            "width": service.width,
            "backbone": backbone,
            "learning": service.learner.busy,
            "inbox": service.inbox is not None,
            "automation": service.serving.promise is not None,
            "several_labels": service.several_labels,
            "classes": service.classes(),
        }

    def describe(body: DescribeRequest) -> answers.VersionEntry:
        """Add classes by descriptions, without examples: a new version.

        A known class among them is not changed: its description shows how much descriptions count. Not with every head.
        """
        X, _ = with_sources(body, service.backbone, service.width, keep=False)
        version = service.describe(body.labels, X)
        return entry(version, version.version if service.has_candidate else None)

    def rename(label: str, body: LabelRequest) -> answers.VersionEntry:
        """Rename a class: a new version, in which nothing else changes."""
        return entry(service.rename(label, body.label))

    def forget(label: str) -> answers.VersionEntry:
        """Forget a class and its examples: a new version. A rollback to an earlier version restores it."""
        return entry(service.forget(label))

    def confusion() -> answers.Confusion:
        """The confusion matrix of the current version on the held-out examples."""
        serving = service.serving
        order = [label for label, _ in serving.classes]
        cells = service.version(serving.version).report["confusion"] if serving.version else []
        return {
            "version": serving.version,
            "classes": order,
            "cells": [{"truth": order[p], "answer": order[q], "count": n} for p, q, n in cells],
        }

    api.add("GET", "/classes", classes, tag="use")
    api.add("POST", "/classes", describe, tag="teach", token=True, problems=(409, 415, 503))
    api.add("PATCH", "/classes/{label:path}", rename, tag="correct", token=True, role="admin", problems=_CHANGING)
    api.add(
        "DELETE", "/classes/{label:path}", forget, tag="correct", token=True, role="admin", problems=(404, 409, 503)
    )
    api.add("GET", "/confusion", confusion, tag="use")


def add_watch(api: Api, service: Service, counters: Counters) -> None:
    def metrics() -> Response:
        """Counters in the text format of Prometheus."""
        return Response(generate_latest(counters.registry), media_type=CONTENT_TYPE_LATEST)

    def health() -> answers.Health:
        """Whether the service is up; open to anyone who can reach it."""
        return {"status": "ok", "version": service.serving.version, "learning": service.learner.busy}

    api.add("GET", "/metrics", metrics, tag="watch", media="text/plain")
    api.add("GET", "/health", health, tag="watch", token=False)


def add_inbox(api: Api, service: Service) -> None:
    def inbox(limit: Annotated[int, Meta(ge=1, le=1000)] = 100) -> answers.InboxList:
        """Inputs that were unknown or uncertain, those that look least like any class first."""
        return service.opened_inbox.listed(limit)

    def one_input(number: Id) -> answers.OneInput:
        """One input with its vector, and its text or a small copy of its image."""
        found = service.opened_inbox.one(number)
        if found is None:
            raise Missing(f"there is no input {number} in the inbox")
        return found

    def name_input(number: Id, body: NameOneRequest) -> answers.Added:
        """Say of which class an input is: it leaves the inbox, and waits as an example."""
        return {"ids": service.name_inputs([number], body.label), "waiting": service.n_pending}

    def dismiss(number: Id) -> answers.Discarded:
        """Delete an input for good."""
        return {"discarded": service.opened_inbox.dismiss([number])}

    def dismiss_inputs(body: DismissRequest) -> answers.Discarded:
        """Delete some inputs for good, such as those of a group. All or none."""
        return {"discarded": service.opened_inbox.dismiss(body.ids)}

    def dismiss_all() -> answers.Discarded:
        """Delete all inputs for good."""
        return {"discarded": service.opened_inbox.dismiss_all()}

    api.add("GET", "/inbox", inbox, tag="inbox", token=True, problems=(404, 503))
    api.add("DELETE", "/inbox", dismiss_all, tag="inbox", token=True, problems=(404, 503))
    # Before /inbox/{number}, which is any path below /inbox.
    api.add("POST", "/inbox/dismiss", dismiss_inputs, tag="inbox", token=True, problems=(404, 415, 503))
    api.add("GET", "/inbox/{number}", one_input, tag="inbox", token=True, problems=(404, 503))
    api.add("POST", "/inbox/{number}", name_input, tag="inbox", token=True, problems=_CHANGING)
    api.add("DELETE", "/inbox/{number}", dismiss, tag="inbox", token=True, problems=(404, 503))
