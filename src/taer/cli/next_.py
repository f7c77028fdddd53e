"""``taer next``: which samples to label next."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any

import typer

from taer.cli.app import LOOP, app
from taer.cli.discover import check_verb
from taer.cli.examples import BackboneOption, TextColumn, Weights
from taer.cli.inputs import Reader
from taer.cli.pool import Pool, read_pool
from taer.cli.progress import stage
from taer.cli.wording import counted

_COLUMNS = {"text": "text", "image": "image", "features": "input"}


@app.command("next", rich_help_panel=LOOP)
def next_(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="[HEAD] POOL",
            help="A saved head (bayes or bayes-replay; without one, samples are picked by spread), and samples without "
            "labels: a table of texts (.csv, .parquet), a folder of images, or features.",
        ),
    ],
    count: Annotated[int, typer.Option(help="How many samples to suggest.", min=1)] = 20,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the samples, a .csv with an empty column label. Fill it in, then 'taer learn' it."
        ),
    ] = None,
    backbone: BackboneOption = None,
    weights: Weights = None,
    text_column: TextColumn = None,
) -> None:
    """Suggest which samples to label next, the most useful first.

    Without a head, these are typical samples that are unlike each other. Label them, then 'taer fit' them.
    """
    from taer.heads.bayes.head import Bayes
    from taer.persist.save import is_head, load

    *models, pool = places
    if len(models) > 1:
        raise ValueError(f"expected a head and a pool, or a pool alone, got {len(places)} arguments")
    if Path(pool).is_file() and is_head(pool):
        raise ValueError(f"{pool}: a head; expected the pool after it")
    head = load(models[0]) if models else Bayes()
    check_verb(head, "suggest", Path(*models))
    if out is not None and out.suffix != ".csv":
        raise ValueError(f"--out {out}: expected a name that ends in .csv")
    if out is not None and out.exists():
        raise ValueError(f"{out}: exists, maybe with labels; name another file")
    samples = read_pool(Reader(head, backbone, weights, text_column), pool)
    X = samples.features()
    with stage(f"comparing {counted(len(samples), 'sample')}"):
        rows = head.suggest(X, count).tolist()
        guesses = head.predict(X[rows]).tolist() if models else [""] * len(rows)
    if out is None:
        for row, guess in zip(rows, guesses, strict=True):
            print(row + 1, *([guess] if models else []), " ".join(samples.shown[row].split()), sep="\t")
        return
    _write(out, samples, rows, guesses)
    print(f"{out}: {counted(len(rows), 'sample')} to label; fill in the column label")


def _write(out: Path, samples: Pool, rows: list[int], guesses: list[Any]) -> None:
    from taer.files import written_whole

    with written_whole(out) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([_COLUMNS[samples.kind], "label", "guess", "row"])
        for row, guess in zip(rows, guesses, strict=True):
            table.writerow([samples.shown[row], "", guess, row + 1])
