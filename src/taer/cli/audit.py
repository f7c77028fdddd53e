"""Looking at a head and shipping it: ``taer audit``, ``taer export``."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from taer.cli.app import app
from taer.cli.inputs import read_features
from taer.cli.models import Model, check_replaceable


class Report(StrEnum):
    text = "text"
    json = "json"


class Target(StrEnum):
    onnx = "onnx"


@app.command()
def audit(
    old: Annotated[Path, typer.Argument(help="The head before.")],
    new: Annotated[Path, typer.Argument(help="The head some tasks later.")],
    features: Annotated[
        Path | None,
        typer.Argument(help="Samples to compare decisions on: features in any form that 'taer predict' takes."),
    ] = None,
    format: Annotated[Report, typer.Option(help="How the audit is printed.")] = Report.text,
) -> None:
    """Show what was changed between two versions of a head: columns, and decisions among old classes."""
    from dataclasses import asdict

    from taer.persist.audit import audit as compare
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
    print("moved columns:", ", ".join(map(str, found.moved)) or "none")


@app.command()
def export(
    model: Model,
    out: Annotated[Path, typer.Option(help="The file to write.")],
    to: Annotated[Target, typer.Option(help="The form of the graph.")] = Target.onnx,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="An .onnx file whose first output is the features: the graph then starts at its input. Or a name from "
            "'taer backbones', for images: the graph then starts at pixels."
        ),
    ] = None,
) -> None:
    """Write a head as one graph from features to probabilities and label."""
    from taer.persist.onnx import export_onnx
    from taer.persist.save import load

    head = load(model)
    check_replaceable(out, by_head=False)
    export_onnx(head, out, backbone)
    start = f"{head.n_features_in_} features" if backbone is None else f"the input of {backbone}"
    print(f"{out}: {to}, {start} to {len(head.classes_)} classes")
