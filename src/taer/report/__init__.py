"""Reports: results on disk as one page, and as tables and figures for a paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from taer.experiment import Result, read_results
from taer.files import written_together
from taer.report.blocks import Block, Confusions, Section
from taer.report.collect import Setting, slug, sort_results
from taer.report.figures import Picture
from taer.report.tables import Table

_FOLDERS = ("figures", "tables", "confusion")


@dataclass(frozen=True)
class Publications:
    """What was published elsewhere and belongs into a report."""

    sections: Callable[[dict[str, list[Result]]], list[Section]]  # from the results of each directory
    number: Callable[[Result, str], float | None]  # beside the measured number of a run and a metric


NOTHING = Publications(lambda results: [], lambda result, metric: None)


def write_report(directories: Sequence[Path], out: Path, publications: Publications = NOTHING) -> Path:
    """Write ``index.html``, ``report.md``, and folders of figures, tables and confusion matrices.

    Two directories are compared. Returns the path of the page.
    """
    from taer.report.page import html, markdown

    sections = make_sections(directories, publications)
    title = " and ".join(directory.resolve().name for directory in directories)
    with written_together(out, (*_FOLDERS, "report.md", "index.html")) as partial:
        for folder in _FOLDERS:
            (partial / folder).mkdir()
        for section in sections:
            for block in section.blocks:
                _write_files(block, partial)
        (partial / "report.md").write_text(markdown(title, sections), encoding="utf-8")
        (partial / "index.html").write_text(html(title, sections), encoding="utf-8")
    return out / "index.html"


def make_sections(directories: Sequence[Path], publications: Publications = NOTHING) -> list[Section]:
    """The sections of the page: a comparison of two directories, published experiments, and every stream."""
    from taer.report.of_streams import stream_section

    names = [directory.resolve().name if len(directories) > 1 else "" for directory in directories]
    if len(set(names)) < len(names):
        names = [str(directory) for directory in directories]
    results = {name: read_results(directory) for name, directory in zip(names, directories, strict=True)}
    settings = sort_results(results)
    sections = _comparison(settings, names, publications) if len(names) > 1 else []
    sections += publications.sections(results)
    folded = len(settings) > 3
    return sections + [stream_section(setting, folded, publications.number) for setting in settings]


def _comparison(settings: list[Setting], names: list[str], publications: Publications) -> list[Section]:
    from taer.report.of_streams import comparison

    tables: list[Block] = [
        table for setting in settings if (table := comparison(setting, names, publications.number))
    ]
    text = "" if tables else "The two directories have no head in common on the same stream."
    return [Section("comparison", f"{names[0]} and {names[1]} compared", text, tables)]


def _write_files(block: Block, out: Path) -> None:
    if isinstance(block, Table):
        (out / "tables" / f"{block.name}.csv").write_text(block.csv(), encoding="utf-8")
        (out / "tables" / f"{block.name}.tex").write_text(block.latex(), encoding="utf-8")
    picture = block.picture if isinstance(block, Confusions) else block
    if isinstance(picture, Picture):
        (out / "figures" / f"{picture.name}.svg").write_text(picture.svg, encoding="utf-8")
        (out / "figures" / f"{picture.name}.pdf").write_bytes(picture.pdf)
    if isinstance(block, Confusions):
        for member in block.members:
            name = f"{block.picture.name}-{slug(member.label)}.csv"
            (out / "confusion" / name).write_text(member.csv(), encoding="utf-8")
