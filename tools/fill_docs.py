"""Put measured tables, and what the heads say of themselves, into the documentation.

    python benchmarks/fidelity.py --features DIR > fidelity.out.md
    python tools/fill_docs.py docs/fidelity.md fidelity.out.md

    taer report results/paper
    python tools/fill_docs.py docs/reproduction.md results/paper/report/report.md

A page marks a place with ``<!-- measured: SECTION -->`` and ``<!-- end -->``, or, for one titled block of a section,
``<!-- measured: SECTION / BLOCK -->``. A section is a heading of the measured file, a block begins with a title in bold;
both are named by how they begin. What lies between the marks is replaced. Pictures named ``images/NAME.svg`` that the
measured file has beside it in ``figures/`` are copied too. A mark that the measured file has nothing for is an error; with
``--some`` it keeps what it has.

    python tools/fill_docs.py cards

(or ``make docs``) writes what the heads say of themselves: the table of heads in the README and that of their depths in
CONTRIBUTING, between ``<!-- cards: NAME -->`` and ``<!-- end -->``, and in ``docs/choosing.md`` every column of a table of
heads that is titled like a fact of a card.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from taer.heads import HEADS, Head
from taer.heads.card import GROUPS

MARK = re.compile(r"(<!-- measured: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)
CARDS = re.compile(r"(<!-- cards: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)
TABLE = re.compile(r"^\| head \|.*\n(?:\|.*\n)+", re.MULTILINE)
ROOT = Path(__file__).parents[1]
IMAGE = re.compile(r"\(images/([\w-]+\.svg)\)")


class Lacking(SystemExit):
    """The measured file has no such section or block."""


def measured(text: str, name: str) -> str:
    """What a section, or a block of it, holds."""
    section, _, block = name.partition(" / ")
    found = re.search(rf"^##+ {re.escape(section)}[^\n]*\n(.*?)(?=^##+ |\Z)", text, re.DOTALL | re.MULTILINE)
    if not found:
        raise Lacking(f"no section begins with {section!r}")
    body = found[1].strip()
    if block:
        inside = re.search(rf"^\*\*{re.escape(block)}.*?(?=^\*\*|\Z)", body, re.DOTALL | re.MULTILINE)
        if not inside:
            raise Lacking(f"{section}: no block begins with {block!r}")
        body = inside[0].strip()
    return body


def filled(page: str, source: str, some: bool) -> str:
    """A page with what the source has for its marks; with ``some``, other marks keep what they have."""

    def fill(mark: re.Match[str]) -> str:
        try:
            return f"{mark[1]}{measured(source, mark[2])}\n{mark[3]}"
        except Lacking:
            if some:
                return mark[0]
            raise

    return MARK.sub(fill, page)


def heads_table(heads: Mapping[str, type[Head]]) -> str:
    """The heads by group, and which of them never move old scores."""
    rows = ["| heads | what they are | old scores never move |", "|---|---|---|"]
    for group, title in GROUPS.items():
        if not (names := [name for name, head in heads.items() if head.card.group == group]):
            continue
        frozen = [name for name in names if heads[name].card.frozen]
        which = {0: "", len(names): "all" if len(names) > 1 else "yes"}.get(len(frozen), quoted(frozen))
        rows.append(f"| {quoted(names)} | {title} | {which} |")
    return "\n".join(rows)


def depths_table(heads: Mapping[str, type[Head]]) -> str:
    """How many classes of ours a head is made of, from ``Head`` to the method."""
    lines: dict[str, list[str]] = {}
    for name, head in sorted(heads.items()):
        bases = [base.__name__ for base in reversed(head.__mro__[1:]) if issubclass(base, Head)]
        lines.setdefault(" → ".join(bases), []).append(name)
    rows = ["| classes | of these, then the method | heads |", "|---:|---|---|"]
    return "\n".join(
        [*rows, *(f"| {path.count('→') + 2} | {path} | {quoted(names)} |" for path, names in sorted(lines.items()))]
    )


def quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def with_facts(table: str, heads: Mapping[str, type[Head]]) -> str:
    """A table of heads whose columns that are titled like a fact of a card say what the cards say."""
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()]
    titles, _, *rows = lines
    for row in rows:
        facts = heads[row[0].strip("`")].card.facts()
        row[:] = [facts.get(title, cell) for title, cell in zip(titles, row, strict=True)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def from_cards() -> dict[Path, str]:
    """The pages that the cards decide, as they must be."""
    ours = {name: head for name, head in HEADS.items() if head.__module__.startswith("taer.")}
    tables = {"heads": heads_table(ours), "depths": depths_table(ours)}
    choosing = ROOT / "docs" / "choosing.md"
    return {
        **{
            page: CARDS.sub(lambda mark: f"{mark[1]}{tables[mark[2]]}\n{mark[3]}", page.read_text())
            for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md")
        },
        choosing: TABLE.sub(lambda found: with_facts(found[0], ours), choosing.read_text()),
    }


def main() -> None:
    if sys.argv[1:] == ["cards"]:
        for page, text in from_cards().items():
            page.write_text(text)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("measured", type=Path)
    parser.add_argument("--some", action="store_true", help="keep what the measured file has nothing for")
    options = parser.parse_args()
    text, source = options.page.read_text(), options.measured.read_text()
    options.page.write_text(filled(text, source, options.some))
    for name in IMAGE.findall(text):
        if (figure := options.measured.parent / "figures" / name).is_file():
            shutil.copy(figure, options.page.parent / "images" / name)


if __name__ == "__main__":
    main()
