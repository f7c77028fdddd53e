"""Reports: results on disk as one page, and as tables and figures for a paper."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from taer.experiment import read_results
from taer.report.blocks import Block, Confusions, Section
from taer.report.collect import Setting, slug, sort_results
from taer.report.figures import Picture
from taer.report.tables import Table

_OWN = ("figures", "tables", "confusion")  # folders of a report that are written again


def write_report(directories: Sequence[Path], out: Path) -> Path:
    """Write ``index.html``, ``report.md``, and folders of figures, tables and confusion matrices.

    Two directories are compared. Returns the path of the page.
    """
    from taer.report.page import html, markdown

    sections = make_sections(directories)
    title = " and ".join(directory.resolve().name for directory in directories)
    for folder in _OWN:
        shutil.rmtree(out / folder, ignore_errors=True)
        (out / folder).mkdir(parents=True)
    for section in sections:
        for block in section.blocks:
            _write_files(block, out)
    (out / "report.md").write_text(markdown(title, sections), encoding="utf-8")
    page = out / "index.html"
    page.write_text(html(title, sections), encoding="utf-8")
    return page


def make_sections(directories: Sequence[Path]) -> list[Section]:
    """The sections of the page: the paper if it was run, a comparison of two directories, and every stream."""
    from taer.report.of_paper import paper_sections, statements_section
    from taer.report.of_streams import stream_section

    names = [directory.resolve().name if len(directories) > 1 else "" for directory in directories]
    if len(set(names)) < len(names):
        names = [str(directory) for directory in directories]
    results = {name: read_results(directory) for name, directory in zip(names, directories, strict=True)}
    settings = sort_results(results)
    sections = _comparison(settings, names) if len(names) > 1 else []
    for name in names:
        sections += paper_sections(name, results[name])
    sections += statements_section(results)
    return sections + [stream_section(setting, folded=len(settings) > 3) for setting in settings]


def _comparison(settings: list[Setting], names: list[str]) -> list[Section]:
    from taer.report.of_streams import comparison

    tables: list[Block] = [table for setting in settings if (table := comparison(setting, names))]
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
