"""The building blocks of a page."""

from __future__ import annotations

from dataclasses import dataclass, field

from taer.experiment import Result
from taer.report.confusion import Confusion
from taer.report.figures import Picture, matrices
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


def confusion_block(name: str, title: str, members: list[tuple[str, Result]]) -> Confusions:
    """Confusion matrices, each of one run."""
    made = [Confusion.of(label, run) for label, run in members]
    note = (
        f"Run with seed {members[0][1]['seed']}. Rows are true classes, columns predicted ones, both in the order "
        "of learning; brightness is the square root of the fraction of the row."
    )
    drawn = {one.label: one.ratios for one in made}
    return Confusions(matrices(name, title, note, drawn, ("predicted", "true"), gamma=0.5), made)
