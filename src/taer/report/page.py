"""The report as one HTML page and as one Markdown file."""

from __future__ import annotations

from pathlib import Path

from taer import __version__
from taer.report.blocks import Block, Confusions, Listing, Section
from taer.report.figures import Picture
from taer.report.tables import Table, published_text, text


def html(title: str, sections: list[Section]) -> str:
    """A page without external files."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(text=text, measured=str, published=published_text)
    environment.tests["text"] = lambda value: isinstance(value, str)
    environment.tests["plain_number"] = lambda value: isinstance(value, int | float)
    environment.globals["kind"] = lambda block: type(block).__name__
    return environment.get_template("page.html").render(title=title, sections=sections, version=__version__)


def markdown(title: str, sections: list[Section]) -> str:
    parts = [f"# Results: {title}\n"]
    for section in sections:
        parts += [f"## {section.title}\n", *([f"{section.text}\n"] if section.text else [])]
        parts += [_markdown(block) for block in section.blocks]
    return "\n".join(parts)


def _markdown(block: Block) -> str:
    if isinstance(block, Table):
        return block.markdown()
    if isinstance(block, Listing):
        lines = "\n".join(block.lines)
        return f"**{block.title}.**\n\n```\n{lines}\n```\n"
    picture: Picture = block.picture if isinstance(block, Confusions) else block
    return f"**{picture.title}.** {picture.note}\n\n![{picture.title}](figures/{picture.name}.svg)\n"
