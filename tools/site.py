"""Pages that ``mkdocs build`` adds to those in ``docs/``, generated from the code and from the repository's root.

- ``reference/``: a page for every head and every other public name, and one for every command
- ``notebooks/``: the scripts in ``docs/notebooks``, executed, with their output and figures
- ``contributing.md``, ``changelog.md``, ``policy.md``: the files of the root
"""

from __future__ import annotations

import inspect
import re
from html import unescape
from pathlib import Path
from typing import Any

import jupytext
import typer
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from traitlets.config import Config

import taer
from taer.cli import app
from taer.heads.card import GROUPS
from taer.heads.registry import CORE

ROOT = Path(__file__).parents[1]
FROM_ROOT = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md", "policy.md": "SECURITY.md"}
MATH = re.compile(r"\\([(\[])\n?(.*?)\n?\\[)\]]", re.DOTALL)  # the output of arithmatex
# The public names that are not heads, by page, and those that are found in a module of their own.
PAGES = {
    "Make, find and load heads": ("make_head", "from_linear", "load", "HEADS", "Card"),
    "Features": ("load_features", "features_from_arrays", "extract", "FeatureSet"),
    "From images and texts to labels": ("Extractor", "make_pipeline", "Pipeline"),
    "Several labels per sample": ("MultiLabel",),
    "Diagnosis": ("diagnose",),
    "Streams": ("class_stream", "sample_stream", "make_stream"),
    "Statistics": ("ClassStatistics",),
    "Metrics": ("metrics",),
    "Clusters": ("ray_cluster",),
}
MODULES = {
    "Memories": ("taer.memory", ("GreedyBalanced", "Reservoir", "Herding", "GradientBased")),
    "A running service": ("taer.client", ("Client", "AsyncClient", "ServiceError")),
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the generated pages to the navigation."""
    zoo = [
        {short[:1].upper() + short[1:]: [{name: f"reference/{head.__name__}.md"} for name, head in members]}
        for group, title in GROUPS.items()
        if (short := re.split("[,:]", title)[0])
        if (members := [(name, head) for name, head in our_heads("taer.zoo.").items() if head.card.group == group])
    ]
    shelves = {title: pages for shelf in config.nav for title, pages in shelf.items()}
    shelves["Guides"] += [
        {"Notebooks": [{title_of(script): f"notebooks/{script.stem}.md"} for script in scripts()]}
    ]
    shelves["Reference"][:0] = [
        "reference/index.md",
        {"Commands": "reference/commands.md"},
        {"What every head can do": "reference/Head.md"},
        *({title: f"reference/{slug(title)}.md"} for title in (*PAGES, *MODULES)),
        {"Heads": [{name: f"reference/{taer.HEADS[name].__name__}.md"} for name in CORE]},
        {"The zoo": zoo},
    ]
    config.nav += [
        {"Contributing": ["contributing.md", {"Changelog": "changelog.md"}, {"Security policy": "policy.md"}]},
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    pages: dict[str, str | bytes] = {**reference(), **commands(), **from_root()}
    for script in scripts():
        pages |= executed(script)
        files.remove(files.get_file_from_path(f"notebooks/{script.name}"))
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def our_heads(room: str = "taer.") -> dict[str, type[taer.heads.Head]]:
    return {name: head for name, head in taer.HEADS.items() if head.__module__.startswith(room)}


def slug(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower())


def reference() -> dict[str, str]:
    """A page for each head, one for the methods that all heads share, and one for each group of other names."""
    public = {name for name in dir(taer) if name not in ("__version__", "zoo")}
    heads = our_heads()
    listed = {name for names in PAGES.values() for name in names} | {taer.HEADS[name].__name__ for name in CORE}
    if public != listed:
        raise SystemExit(f"tools/site.py: public names without a page, or the other way round: {public ^ listed}")
    pages = {f"reference/{slug(title)}.md": page_of(title, names) for title, names in PAGES.items()}
    pages["reference/Head.md"] = "# What every head can do\n\n" + "\n".join(
        f"## {title}\n\n::: {cls}\n    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n"
        "      heading_level: 3\n      filters: ['!^_', '!^(name|card|fitted|weighs)$']\n"
        for title, cls in (
            ("Learn and correct", "taer.heads.base.Head"),
            ("Answer", "taer.heads.predictor.Predictor"),
        )
    )
    for title, (module, names) in MODULES.items():
        blocks = "\n".join(f"::: {module}.{name}\n" for name in names)
        pages[f"reference/{slug(title)}.md"] = f"# {title}\n\n{blocks}"
    for name, head in heads.items():
        own = [
            key for key in vars(head) if not key.startswith(("_", "set_")) and inspect.isfunction(vars(head)[key])
        ]
        facts = "".join(f"| {title} | {fact} |\n" for title, fact in head.card.facts().items())
        pages[f"reference/{head.__name__}.md"] = (
            f"::: {head.__module__}.{head.__name__}\n    options:\n      members: {own}\n      heading_level: 1\n\n"
            f"## Card\n\n| `{name}` | |\n|---|---|\n{facts}\n"
            "Its other methods are those of [every head](Head.md).\n"
        )
    rows = "".join(
        f"| [`taer.{name}`]({link}) | {summary} |\n"
        for name, link, summary in [
            *((n, f"{slug(t)}.md#{home(n)}", first_line(getattr(taer, n))) for t, ns in PAGES.items() for n in ns),
            *((public_name(h), f"{h.__name__}.md", first_line(h)) for h in sorted(heads.values(), key=in_zoo)),
        ]
    )
    pages["reference/index.md"] = f"# Reference\n\nEvery public name.\n\n| name | what it is |\n|---|---|\n{rows}"
    return pages


def in_zoo(head: type[taer.heads.Head]) -> bool:
    return head.__module__.startswith("taer.zoo.")


def public_name(head: type[taer.heads.Head]) -> str:
    return f"zoo.{head.__name__}" if in_zoo(head) else head.__name__


def home(name: str) -> str:
    value = getattr(taer, name)
    if inspect.ismodule(value):
        return value.__name__
    return f"{getattr(value, '__module__', 'taer.heads')}.{name}"


def first_line(value: Any) -> str:
    if isinstance(value, dict):
        return "The heads by name."
    return (inspect.getdoc(value) or "").split("\n")[0].replace("``", "`")


def page_of(title: str, names: tuple[str, ...]) -> str:
    blocks = [f"::: {home(name)}\n" for name in names]
    return f"# {title}\n\n" + "\n".join(blocks)


def commands() -> dict[str, str]:
    """Every command with its options, in the panels of ``taer --help``."""
    group: Any = typer.main.get_command(app)
    page = ["# Commands", "`taer --help` lists the commands, `taer fit --help` the options of one.", ""]
    described = []
    for panel, names in group.panels().items():
        page += [f"**{panel}**", ""]
        for name in names:
            command = group.commands[name]
            summary, _, more = inspect.cleandoc(command.help).partition("\n")
            page.append(f"- [`{name}`](#taer-{name}): {' '.join(summary.split())}")
            context = typer.Context(command, info_name=f"taer {name}")
            usage = " ".join([f"taer {name}", *command.collect_usage_pieces(context)])
            described += [f"## `taer {name}`", f"{summary}\n{more}", f"```text\n{usage}\n```"]
            for title, members in command.panels(context).items():
                rows = "".join(f"| `{option}` | {cell(text)} |\n" for option, text in members)
                described.append(f"| {title} | |\n|---|---|\n{rows}")
        page.append("")
    return {"reference/commands.md": "\n".join(page) + "\n" + "\n\n".join(described)}


def cell(text: str) -> str:
    """A text in a cell of a table: one line, and no sign of it is Markdown but code."""
    return re.sub(r"([][*|])", r"\\\1", " ".join(text.split()).replace("<", "&lt;"))


def from_root() -> dict[str, str]:
    """The files of the root, with their links adapted to the site."""
    return {page: (ROOT / file).read_text().replace("](docs/", "](") for page, file in FROM_ROOT.items()}


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links to ``../CONTRIBUTING.md``, which work in the repository, become links to a page of the site."""
    up = "../" * page.file.src_uri.count("/")
    for target, file in FROM_ROOT.items():
        markdown = markdown.replace(f"]({up}../{file}", f"]({up}{target}")
    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """Convert formulas to MathML, which needs no script, and ``::`` before a block in a docstring to one colon."""
    html = MATH.sub(lambda math: convert(unescape(math[2]), display="block" if math[1] == "[" else "inline"), html)
    return html.replace('::</p>\n<div class="highlight">', ':</p>\n<div class="highlight">')


def scripts() -> list[Path]:
    return sorted((ROOT / "docs" / "notebooks").glob("*.py"))


def title_of(script: Path) -> str:
    return re.search(r"^# # (.*)$", script.read_text(), re.MULTILINE)[1]


def executed(script: Path) -> dict[str, str | bytes]:
    """A script in percent format as a page, with the output and figures of each cell."""
    notebook = jupytext.read(script)
    local = Config({"KernelManager": {"transport": "ipc"}})
    NotebookClient(notebook, kernel_name="python3", config=local).execute()
    text, resources = MarkdownExporter().from_notebook_node(
        notebook, resources={"output_files_dir": f"{script.stem}_files"}
    )
    images = {f"notebooks/{name}": data for name, data in resources["outputs"].items()}
    return {f"notebooks/{script.stem}.md": text, **images}
