"""Looking at a head and shipping it: ``taer audit``, ``taer export``."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from taer.cli.app import HEADS, app
from taer.cli.inputs import read_features
from taer.cli.models import check_replaceable


class Report(StrEnum):
    text = "text"
    json = "json"


@app.command(rich_help_panel=HEADS)
def audit(
    old: Annotated[Path, typer.Argument(help="The earlier version of the head.")],
    new: Annotated[Path, typer.Argument(help="The later version of the head.")],
    features: Annotated[
        Path | None,
        typer.Argument(
            help="Samples on which decisions are compared: features in any format that 'taer predict' reads."
        ),
    ] = None,
    format: Annotated[Report, typer.Option(help="Output format.")] = Report.text,
) -> None:
    """Show what changed between two versions of a head.

    Compares the scores of the classes that both know, and the decisions among these classes.
    """
    from dataclasses import asdict

    from taer.inspection.audit import audit as compare
    from taer.persist.save import load

    head = load(new)
    found = compare(load(old), head, None if features is None else read_features(features, head).X)
    if format is Report.json:
        print(json.dumps(asdict(found), ensure_ascii=False))
        return
    print(found.sentence())
    print("new classes:", ", ".join(map(str, found.new_classes)) or "none")
    if found.forgotten:
        print("forgotten classes:", ", ".join(map(str, found.forgotten)))
    print("classes whose scores changed:", ", ".join(map(str, found.moved)) or "none")


@app.command(rich_help_panel=HEADS)
def export(
    model: Annotated[Path, typer.Argument(help="A saved head, or the folder of a service.")],
    out: Annotated[Path, typer.Option(help="File to write: .onnx for a head, .csv or .parquet for a service.")],
    backbone: Annotated[
        str | None,
        typer.Option(
            help="Put a backbone in front of a head: an .onnx file whose first output is the features, or the name "
            "of a backbone for images from 'taer backbones'. The graph then starts at the input of the backbone."
        ),
    ] = None,
) -> None:
    """Export a head to ONNX, or a service's examples to a table.

    The graph goes from features to probabilities and a label. A service may be running; the images of its examples become
    files beside the table.
    """
    if model.is_dir():
        if backbone is not None:
            raise ValueError("--backbone is for the graph of a head; examples are exported as a table")
        _export_examples(model, out)
        return
    from taer.persist.onnx import export_onnx
    from taer.persist.save import load

    head = load(model)
    check_replaceable(out, by_head=False)
    export_onnx(head, out, backbone)
    start = f"{head.n_features_in_} features" if backbone is None else f"the input of {backbone}"
    print(f"{out}: onnx, {start} to {len(head.classes_)} classes")


def _export_examples(folder: Path, out: Path) -> None:
    from taer.serve.export import export as export_examples

    done = export_examples(folder, out)
    images = f"; images in {done.images}" if done.images else ""
    print(f"{out}: {done.examples} examples{images}")
    if done.vectors and out.suffix == ".csv":
        print(f"taer: {done.vectors} came as vectors, which only a .parquet file has", file=sys.stderr)
