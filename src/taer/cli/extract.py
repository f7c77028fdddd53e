"""``taer extract`` and ``taer backbones``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taer.cli.app import DATA, app
from taer.cli.examples import LabelColumn, SplitColumn, TestFraction, TextColumn, Weights
from taer.cli.parameters import with_options
from taer.cli.progress import counting
from taer.cli.workers import AddressOption, Engine, EngineOption, where, workers_alive

if TYPE_CHECKING:
    from taer.features import FeatureSet


@app.command(rich_help_panel=DATA)
def extract(
    source: Annotated[
        str,
        typer.Argument(
            help="cifar100, cub200 or core50; a folder of images (train/CLASS/*, test/CLASS/*, or CLASS/*); "
            "a .csv or .parquet table of texts; hf:owner/name[@revision]. "
            "A folder of images without subfolders and a table without a column 'label' give unlabeled features, "
            "for predicting."
        ),
    ],
    backbone: Annotated[
        str,
        typer.Option(
            help="A name from `taer backbones`; hf:owner/model[@revision] or hf:path/to/folder; a .onnx file."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The feature file to write, .safetensors.")],
    root: Annotated[
        Path | None,
        typer.Option(help="Where a named data set already is: its archive, or the folder it unpacks to."),
    ] = None,
    weights: Weights = None,
    test_fraction: TestFraction = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    split_column: SplitColumn = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip items that cannot be read, and count them.")
    ] = False,
    half: Annotated[bool, typer.Option("--half", help="Compute in half precision (needs a GPU).")] = False,
    append: Annotated[
        bool,
        typer.Option("--append", help="Keep what OUT has, and compute only items that are new, by their content."),
    ] = False,
    engine: EngineOption = Engine.local,
    address: AddressOption = None,
) -> None:
    """Compute the features of images or texts with a frozen model.

    If the command is interrupted, run it again: it continues where it stopped.
    """
    from taer.features.extraction import extract as run

    computed: int | None = None  # items to compute; None if everything is there
    with where(engine, address), counting("extracting", lambda: workers_alive(per_device=True)) as show:

        def tell(done: int, total: int) -> None:
            nonlocal computed
            computed = total
            show(done, total)

        try:
            features = run(
                source,
                backbone,
                out,
                root=root,
                weights=weights,
                test_fraction=test_fraction,
                text_column=text_column,
                label_column=label_column,
                split_column=split_column,
                skip_bad=skip_bad,
                half=half,
                append=append,
                progress=tell,
            )
        except ValueError as error:
            raise ValueError(with_options(str(error))) from None
    print(f"{out}: {_sizes(features)}{_done(append, computed)}")


def _sizes(features: FeatureSet) -> str:
    skipped = int(features.meta.get("skipped", 0))
    sizes = f"{len(features.train_x)} train, {len(features.test_x)} test, {len(features.classes)} classes"
    sizes = sizes if features.classes else f"{len(features.test_x)} without labels"
    return f"{sizes}, {features.n_features} features" + (f", {skipped} unreadable left out" if skipped else "")


def _done(append: bool, computed: int | None) -> str:
    if computed is None:
        return " (already there, nothing to do)"
    return f" ({computed} extracted now)" if append else ""


@app.command(rich_help_panel=DATA)
def backbones() -> None:
    """List the named backbones and whether they are installed."""
    from rich.console import Console
    from rich.table import Table

    from taer.features.backbones import NAMED

    table = Table(box=None, pad_edge=False)
    for title in ("name", "reads", "parameters", "width", "license", "weights", "here"):
        table.add_column(title, justify="right" if title in ("parameters", "width") else "left", no_wrap=True)
    for entry in NAMED.values():
        table.add_row(
            entry.name,
            f"{entry.kind}s",
            f"{entry.parameters / 1e6:.1f} M",
            str(entry.width),
            entry.license,
            entry.weights,
            "yes" if entry.here() else "no",
        )
    console = Console()
    if not console.is_terminal:
        console.width = 200  # do not cut lines in the output of a pipe
    console.print(table)
    print("\nAlso hf:owner/model or hf:path/to/folder, for images and for texts, and .onnx files for images.")
