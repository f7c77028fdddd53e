"""The building blocks of a page."""

from __future__ import annotations

from dataclasses import dataclass, field

from taer.report.confusion import Confusion
from taer.report.figures import Picture
from taer.report.tables import Table


@dataclass(frozen=True)
class Confusions:
    """Confusion matrices: one image in files; on the page, matrices that show the classes under the pointer."""

    picture: Picture
    members: list[Confusion]


@dataclass(frozen=True)
class Listing:
    """Lines for the reader to copy."""

    title: str
    lines: list[str]


Block = Table | Picture | Confusions | Listing


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    text: str
    blocks: list[Block] = field(default_factory=list)
    folded: bool = False
