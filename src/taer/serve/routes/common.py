"""Code that the endpoints share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Depends
from fastapi.security import HTTPBearer

from taer.serve import schemas
from taer.serve.store import Version

# Only for the API description; the gate checks the token before the body is read.
TOKEN = [Depends(HTTPBearer(auto_error=False, description="The token that taer serve shows when it starts."))]


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Descriptions of error responses."""
    return {code: {"model": schemas.Problem} for code in (400, 401, 413, 422, *codes)}


def entry(version: Version) -> schemas.VersionEntry:
    report = {key: value for key, value in version.report.items() if key != "confusion"}
    return schemas.VersionEntry(version=version.version, parent=version.parent, created=version.created, **report)


def history(current: int, versions: Sequence[Version]) -> schemas.History:
    return schemas.History(current=current, versions=[entry(known) for known in versions])
