"""``taer predict``: from an image, a text or features to a label."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taer.cli.app import app
from taer.cli.inputs import Reader, Samples

if TYPE_CHECKING:
    from taer.heads import Head


class Format(StrEnum):
    labels = "labels"
    csv = "csv"
    json = "json"


@dataclass(frozen=True)
class Answer:
    """A head's prediction for one input."""

    input: str
    label: Any
    probabilities: dict[Any, float]  # of all classes in the head's order, or of the most likely ones, best first
    novelty: float
    unknown: bool | None  # None if the head has no threshold

    def novel(self) -> dict[str, Any]:
        """The novelty and, if the head has a threshold, whether the sample is above it."""
        return {"novelty": self.novelty} | ({} if self.unknown is None else {"unknown": self.unknown})


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A saved head.")],
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Images, folders of images, texts, tables of texts (.csv, .parquet), features (the test samples of a "
            "feature file, .npy, a .csv of numbers), or - for stdin. An argument that is not an existing file or folder "
            "is taken as a text, unless it has a suffix or a slash.",
        ),
    ],
    unknown: Annotated[
        str | None,
        typer.Option(
            help="Answer for samples above the head's novelty threshold, such as '?'. The head must have one "
            "('taer fit --unknown')."
        ),
    ] = None,
    top: Annotated[int | None, typer.Option(help="Print only this many of the most likely classes.", min=1)] = None,
    format: Annotated[
        Format,
        typer.Option(
            help="Output format: labels only, or a CSV table or JSON lines with probabilities and novelty."
        ),
    ] = Format.labels,
    backbone: Annotated[
        str | None,
        typer.Option(help="Backbone for images or texts. [default: the one recorded in the head]"),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Weights of a named backbone, when they cannot be downloaded.")
    ] = None,
    text_column: Annotated[str, typer.Option(help="Column of a table with the texts.")] = "text",
) -> None:
    """Print the predicted class of each input. If the file has labels, also print the accuracy, on stderr."""
    from taer.persist.save import load

    head = load(model)
    known = {str(label) for label in head.classes_.tolist()}
    if unknown is not None and not hasattr(head, "threshold_"):
        raise ValueError(f"{model}: keeps no threshold of novelty; 'taer fit --unknown' makes a head that does")
    if unknown in known:
        raise ValueError(f"--unknown {unknown}: that is one of the classes")
    right: list[bool] = []  # for samples whose class the head knows
    others = 0
    write = _writer(format, top)
    for samples in Reader(head, backbone, weights, text_column).samples(inputs):
        answers = _answers(head, samples, 1 if format is Format.labels and top is None else top, unknown)
        write(answers)
        truth = samples.truth or []
        right += [
            str(answer.label) == label for answer, label in zip(answers, truth, strict=False) if label in known
        ]
        others += sum(label not in known for label in truth)
    if right or others:
        percent = f" ({100 * sum(right) / len(right):.2f} %)" if right else ""
        rest = f"; {others} are of classes it does not know" if others else ""
        print(f"{sum(right)} of {len(right)} right{percent}{rest}", file=sys.stderr)


def _answers(head: Head, samples: Samples, top: int | None, unknown: str | None) -> list[Answer]:
    from taer.heads.unknowns import above, thresholds_of

    scores, novelty = head.scores_with_novelty(samples.X)
    probabilities, best = head.probabilities(scores), head.classes_[scores.argmax(axis=1)]
    limited = hasattr(head, "threshold_")
    novel = above(novelty, thresholds_of(head, best, None) if limited else float("inf"))
    everything = [range(len(head.classes_))] * len(scores)
    shown = everything if top is None else (-scores).argsort(axis=1, kind="stable")[:, :top]
    labels = head.classes_.tolist()
    return [
        Answer(
            input=name,
            label=unknown if unknown is not None and novel[row] else best[row].item(),
            probabilities={labels[column]: probabilities[row, column].item() for column in shown[row]},
            novelty=novelty[row].item(),
            unknown=bool(novel[row]) if limited else None,
        )
        for row, name in enumerate(samples.names)
    ]


def _writer(format: Format, top: int | None) -> Callable[[list[Answer]], None]:
    """A function that prints answers as they arrive."""
    table = csv.writer(sys.stdout, lineterminator="\n")
    is_first = True

    def labels(answers: list[Answer]) -> None:
        for answer in answers:
            print(*([answer.label] if top is None else answer.probabilities), sep="\t")

    def rows(answers: list[Answer]) -> None:
        nonlocal is_first
        for answer in answers:
            shown = answer.probabilities
            if is_first:
                pairs = [
                    name
                    for place in range(1, len(shown) + 1)
                    for name in (f"label {place}", f"probability {place}")
                ]
                table.writerow(["input", "label", *answer.novel(), *(pairs if top else shown)])
                is_first = False
            cells = [cell for pair in shown.items() for cell in pair] if top else shown.values()
            table.writerow([answer.input, answer.label, *answer.novel().values(), *cells])

    def objects(answers: list[Answer]) -> None:
        for answer in answers:
            named = {str(label): value for label, value in answer.probabilities.items()}
            found = {"input": answer.input, "label": answer.label, "probabilities": named} | answer.novel()
            print(json.dumps(found, ensure_ascii=False))

    return {Format.labels: labels, Format.csv: rows, Format.json: objects}[format]
