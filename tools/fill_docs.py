"""Insert measured tables, and tables generated from the cards of the heads, into the documentation.

    python -m benchmarks.pages.fidelity --features DIR > fidelity.out.md
    python tools/fill_docs.py docs/evidence/fidelity.md fidelity.out.md

    taer report results/paper
    python tools/fill_docs.py docs/evidence/reproduction.md results/paper/report/report.md

A page marks a place with ``<!-- measured: SECTION -->`` and ``<!-- end -->``, or, for one titled block of a section,
``<!-- measured: SECTION / BLOCK -->``. A section is a heading of the measured file, a block begins with a bold title;
the beginning of the heading or title is enough. The text between the marks is replaced. Figures named ``images/NAME.svg``
are copied from ``figures/`` beside the measured file. A mark without a section or block in the measured file is an error;
with ``--some`` its text is kept. With ``--rows``, so are rows of a table that the measured table lacks.

    python tools/fill_docs.py cards

(or ``make docs``) writes the tables that come from the cards: the heads in the README and their depths in CONTRIBUTING,
between ``<!-- cards: NAME -->`` and ``<!-- end -->``, and in ``docs/guides/choosing.md`` every column whose title is
that of a fact on the cards.

    python tools/fill_docs.py figures

(or ``make docs``) writes the measured figures of the README and the guides, which ``docs/figures.toml`` lists.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taer.heads import HEADS, Head
from taer.heads.registry import CORE

MARK = re.compile(r"(<!-- measured: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)
CARDS = re.compile(r"(<!-- cards: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)
TABLE = re.compile(r"^\| head \|.*\n(?:\|.*\n)+", re.MULTILINE)
ROWS = re.compile(r"(?:^\|.*\n?)+", re.MULTILINE)
FIGURE = re.compile(r"(<!-- figure: ([\w-]+) -->).*?(<!-- / -->)", re.DOTALL)
BANKING77 = re.compile(r"(<!-- figures: banking77 -->\n).*?(<!-- end -->)", re.DOTALL)
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
STORED = {
    "finetune": "nothing",
    "er": "200 examples",
    "taer": "200 examples",
    "bayes": "statistics",
    "joint": "all examples",
}
WHAT = {
    "finetune": "trains on the new classes alone",
    "er": "replays stored examples",
    "taer": "replays them, but trains only new classes",
    "bayes": "the recommended head",
    "joint": "trains on everything again",
}
IMAGE = re.compile(r"\(images/([\w-]+\.svg)\)")


class Lacking(SystemExit):
    """The measured file has no such section or block."""


def measured(text: str, name: str) -> str:
    """The text of a section, or of a block of it."""
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


def filled(page: str, source: str, some: bool, rows: bool = False) -> str:
    """A page with its marked places replaced; with ``some``, those that the source lacks are kept.

    With ``rows``, rows that its tables lack are kept, too.
    """

    def fill(mark: re.Match[str]) -> str:
        try:
            found = measured(source, mark[2])
        except Lacking:
            if some or rows:
                return mark[0]
            raise
        before = mark[0].removeprefix(mark[1]).removesuffix(mark[3])
        return f"{mark[1]}{with_rows(before, found) if rows else found}\n{mark[3]}"

    return MARK.sub(fill, page)


def with_rows(before: str, found: str) -> str:
    """Tables with the rows that were found again, and new ones; everything else as before."""
    tables = iter(ROWS.findall(found))

    def merge(table: re.Match[str]) -> str:
        header, line, *rows = table[0].splitlines()
        new_header, _, *new = next(tables, "").splitlines() or ["", ""]
        if header != new_header:
            raise SystemExit(f"--rows: the measured table has other columns: {new_header}")
        names = [row.split("|")[1] for row in rows]
        for place, row in enumerate(new):
            if (name := row.split("|")[1]) in names:
                rows[names.index(name)] = row
            else:
                rows.insert(place, row)
                names.insert(place, name)
        return "".join(f"{line}\n" for line in (header, line, *rows))

    return ROWS.sub(merge, before).rstrip("\n")


def heads_table(heads: Mapping[str, type[Head]]) -> str:
    """The heads to choose from, with those whose old scores never move, and how many more there are."""
    rows = ["| head | what it is | old scores never move |", "|---|---|---|"]
    for name in CORE:
        what = (heads[name].__doc__ or "").strip().splitlines()[0].rstrip(".").replace("``", "`")
        rows.append(f"| `{name}` | {what} | {'yes' if heads[name].card.frozen else ''} |")
    zoo = [head for name, head in heads.items() if name not in CORE]
    frozen = sum(head.card.frozen for head in zoo)
    rows.append(f"| the zoo | {len(zoo)} more, published or experiments, to compare with | {frozen} of them |")
    return "\n".join(rows)


def depths_table(heads: Mapping[str, type[Head]]) -> str:
    """The number of classes from ``Head`` to the method, for each head."""
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
    """A table of heads, with the columns that are facts of the cards filled from the cards."""
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()]
    titles, _, *rows = lines
    for row in rows:
        facts = heads[row[0].strip("`")].card.facts()
        row[:] = [facts.get(title, cell) for title, cell in zip(titles, row, strict=True)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def from_cards() -> dict[Path, str]:
    """The pages with tables from the cards, up to date."""
    ours = {name: head for name, head in HEADS.items() if head.__module__.startswith("taer.")}
    tables = {"heads": heads_table(ours), "depths": depths_table(ours)}
    choosing = ROOT / "docs" / "guides" / "choosing.md"
    return {
        **{
            page: CARDS.sub(lambda mark: f"{mark[1]}{tables[mark[2]]}\n{mark[3]}", page.read_text())
            for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md")
        },
        choosing: TABLE.sub(lambda found: with_facts(found[0], ours), choosing.read_text()),
    }


def table_below(page: str, heading: str) -> list[dict[tuple[str, int], str]]:
    """The rows of the first table below a heading: cells by the name of the column and its place among equal names."""
    text = (DOCS / page).read_text()
    at = re.search(rf"^##+ {re.escape(heading)}\n", text, re.MULTILINE)
    lines = re.search(r"(?:^\|.*\n)+", text[at.end() :] if at else "", re.MULTILINE)
    if not lines:
        raise SystemExit(f"{page}: no table below {heading!r}")
    header, _, *rows = ([cell.strip() for cell in line.strip("| \n").split("|")] for line in lines[0].splitlines())
    names = [(name, header[: place + 1].count(name)) for place, name in enumerate(header)]
    return [dict(zip(names, row, strict=False)) for row in rows]


def number_in(cell: str) -> float:
    return float(cell.strip("*").split(" ")[0].replace(",", ""))


def figure(entry: Mapping[str, Any]) -> str:
    """A figure of ``docs/figures.toml``, from the table that it names."""
    rows = table_below(entry["page"], entry["heading"])
    starts = entry.get("rows")
    chosen = rows if starts is None else [_row(rows, start) for start in starts]
    if "columns" in entry:
        first, second = chosen
        found = [number_in(first[name, 1]) - number_in(second[name, 1]) for name in entry["columns"]]
    else:
        place = entry.get("place", 1)
        less = [number_in(row[entry["minus"], place]) if "minus" in entry else 0.0 for row in chosen]
        found = [number_in(row[entry["column"], 1]) - minus for row, minus in zip(chosen, less, strict=True)]
    return str(entry["show"].format(found[0], least=min(found), most=max(found)))


def _row(rows: list[dict[tuple[str, int], str]], start: str) -> dict[tuple[str, int], str]:
    found = [row for row in rows if f"{' | '.join(row.values())} ".startswith(start)]
    if not found:
        raise SystemExit(f"no row begins with {start!r}")
    return found[0]


def banking77_table(files: Mapping[str, str]) -> str:
    """The table at the top of the README."""
    all_, five = (json.loads((DOCS / files[name]).read_text())["rows"] for name in ("all", "five"))
    lines = [
        "| head | stores | scores of old classes | all examples | five per new class |",
        "|---|---|---|---:|---:|",
    ]
    for name, what in WHAT.items():
        cells = [
            f"{row[metric]['mean']:.1f} ± {row[metric]['std']:.1f}"
            for rows, metric in ((all_, "A_T"), (five, "last"))
            for row in rows
            if row["method"] == name
        ]
        bold = "**" if name == "bayes" else ""
        moves = "**never move**" if HEADS[name].card.frozen else "move"
        cells = [f"{bold}{cell}{bold}" for cell in cells]
        lines.append(f"| {bold}`{name}`: {what}{bold} | {STORED[name]} | {moves} | {' | '.join(cells)} |")
    return "\n".join(lines)


def with_figures() -> dict[Path, str]:
    """The pages with measured figures, up to date."""
    listed = tomllib.loads((DOCS / "figures.toml").read_text())
    table = banking77_table(listed.pop("banking77"))

    def write(mark: re.Match[str]) -> str:
        return f"{mark[1]}{figure(listed[mark[2]])}{mark[3]}"

    pages = [ROOT / "README.md", *sorted((DOCS / "guides").glob("*.md"))]
    texts = {page: BANKING77.sub(rf"\g<1>{table}\n\g<2>", page.read_text()) for page in pages}
    return {page: FIGURE.sub(write, text) for page, text in texts.items()}


def main() -> None:
    if sys.argv[1:] in (["cards"], ["figures"]):
        for page, text in (from_cards() if sys.argv[1] == "cards" else with_figures()).items():
            page.write_text(text)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("measured", type=Path)
    parser.add_argument("--some", action="store_true", help="keep places that the measured file lacks")
    parser.add_argument("--rows", action="store_true", help="the same, and rows that a measured table lacks")
    options = parser.parse_args()
    text, source = options.page.read_text(), options.measured.read_text()
    options.page.write_text(filled(text, source, options.some, options.rows))
    for name in IMAGE.findall(text):
        if (figure := options.measured.parent / "figures" / name).is_file():
            shutil.copy(figure, options.page.parent / "images" / name)


if __name__ == "__main__":
    main()
