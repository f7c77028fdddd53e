"""``taer describe``: classes by a name or a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from taer.cli.app import HEADS, app
from taer.cli.examples import BackboneOption, LabelColumn, TextColumn, Weights
from taer.cli.inputs import Reader
from taer.cli.models import Model, Out, as_known, check_replaceable
from taer.cli.wording import counted


@app.command(rich_help_panel=HEADS)
def describe(
    model: Model,
    descriptions: Annotated[
        Path, typer.Argument(help="A table (.csv, .parquet) with the columns label and text, one row per class.")
    ],
    out: Out = None,
    backbone: BackboneOption = None,
    weights: Weights = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
) -> None:
    """Add classes by a description each, without examples.

    For bayes and bayes-replay. Describe known classes, too: the head then learns how much a description counts. Their
    scores do not change.
    """
    import numpy as np

    from taer.features.sources.texts import read_columns
    from taer.persist.save import load

    head = load(model)
    if not hasattr(head, "describe"):
        raise ValueError(f"{model}: describe is for bayes and bayes-replay, and this is {head.name}")
    check_replaceable(out or model, by_head=True)
    label_column, text_column = label_column or "label", text_column or "text"
    columns = read_columns(descriptions, [label_column, text_column])
    if len(set(columns[label_column])) < len(columns[label_column]):
        raise ValueError(f"{descriptions}: describes a class twice; expected one row per class")
    reader = Reader(head, backbone, weights)
    reader.check_kind("text", str(descriptions))
    labels, known = as_known(np.array(columns[label_column]), head).tolist(), len(head.classes_)
    head.describe(dict(zip(labels, reader.extractor.transform(columns[text_column]), strict=True)))
    head.save(out or model)
    learned = f"{counted(len(head.classes_) - known, 'class', 'es')} added"
    worth = f"{getattr(head, 'description_examples_', 1.0):.2g}"
    examples = "1 example" if worth == "1" else f"{worth} examples"
    print(f"{out or model}: {learned}, {len(head.classes_)} in all; a description counts as {examples}")
