"""``taer automate`` and ``taer explain``: how far a head can be trusted, and why it answered as it did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taer.cli.app import LOOP, app
from taer.cli.audit import Report
from taer.cli.examples import (
    BackboneOption,
    ExamplesArgument,
    LabelColumn,
    Reading,
    TextColumn,
    Weights,
    read_examples,
    reads_examples,
)
from taer.cli.inputs import Reader
from taer.cli.models import Classes, Model, Out, check_replaceable, held_out_part, training_part
from taer.cli.wording import counted, short

if TYPE_CHECKING:
    from taer.heads.bayes.head import Bayes
    from taer.loop.explain import Candidate, Explanation

_ERRORS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # for which the coverage is printed


@app.command(rich_help_panel=LOOP)
@reads_examples
def automate(
    model: Model,
    examples: ExamplesArgument,
    errors_at_most: Annotated[
        float, typer.Option(help="The largest share of answers without a person that may be wrong.")
    ] = 0.02,
    confidence: Annotated[float, typer.Option(help="The probability with which that holds.")] = 0.95,
    unknown: Annotated[
        str | None, typer.Option(help="The label of examples of no known class: every answer to them is wrong.")
    ] = None,
    classes: Classes = None,
    out: Out = None,
    *,
    how: Reading,
) -> None:
    """Find out which answers of a head need no person.

    The examples must not have been learned: the test part is used, or all of them if there is none. The threshold is
    kept in the head for 'taer predict --errors-at-most', until the head learns more.
    """
    from taer.loop.automate import check_share, controlled, judged, keep, needed

    check_share("--errors-at-most", errors_at_most)
    check_share("--confidence", confidence)
    head = _loaded(model)
    check_replaceable(out or model, by_head=True)
    X, labels = held_out_part(read_examples(examples, head, how).data, classes, head)
    trust, right = judged(head, X, labels, unknown)
    found = controlled(trust, right, errors_at_most, confidence)
    keep(head, found)
    head.save(out or model)
    print(f"{out or model}: {found.sentence()}")
    print(f"\nof {found.samples} held-out samples, {found.unknown} are unknown and always for a person\n")
    print(f"{'errors at most':<16}could be answered without a person")
    for rate in sorted({*_ERRORS, errors_at_most}):
        fewest = needed(rate, confidence)
        share = f"from {fewest} samples on"
        if len(trust) >= fewest:
            share = f"{100 * controlled(trust, right, rate, confidence).coverage:.1f} %"
        print(f"{f'{100 * rate:g} %':<16}{share}{'  (promised)' if rate == errors_at_most else ''}")


@app.command(rich_help_panel=LOOP)
def explain(
    model: Model,
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT", help="What 'taer predict' takes: images, texts, tables, features."),
    ],
    rows: Annotated[
        str | None, typer.Option(help="Only these samples, by number from 1, separated by commas. [default: all]")
    ] = None,
    examples: Annotated[
        str | None,
        typer.Option(help="Labeled examples in which the nearest are looked for: a table, a folder or features."),
    ] = None,
    count: Annotated[int, typer.Option(help="Number of nearest examples of each class.", min=1)] = 3,
    format: Annotated[Report, typer.Option(help="text, or json with one line per sample.")] = Report.text,
    backbone: BackboneOption = None,
    weights: Weights = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
) -> None:
    """Show why a head answers as it does.

    For each input: the class and the runner-up, whether it is unknown and why, and the nearest examples of both classes.
    """
    head = _loaded(model)
    if not hasattr(head, "threshold_") and (head.novelties_.tried > 0).any():
        head.novelty_threshold()
    wanted = _row_numbers(rows)
    given, names = None, None
    texts: dict[str, str] = {}
    if examples is not None:
        read = read_examples(examples, head, Reading(backbone, weights, text_column, label_column))
        given, names = training_part(read.data, None, head), read.train
        texts.update(read.texts)
    seen = 0
    for samples in Reader(head, backbone, weights, text_column).samples(inputs):
        places = [at for at in range(len(samples.names)) if wanted is None or seen + at + 1 in wanted]
        seen += len(samples.names)
        if places:
            shown = {**texts, **samples.texts}
            for at, found in zip(places, head.explain(samples.X[places], given, count), strict=True):
                _show(samples.names[at], found, names, shown, format)
    if wanted and (missing := sorted(number for number in wanted if number > seen)):
        raise ValueError(f"--rows: there is no sample {missing[0]}, only {counted(seen, 'sample')}")


def _loaded(model: Path) -> Bayes:
    from taer.heads.bayes.head import Bayes
    from taer.persist.save import load

    head = load(model)
    if not isinstance(head, Bayes):
        raise ValueError(f"{model}: a head of the method {head.name}; only bayes and bayes-replay can do this")
    return head


def _row_numbers(rows: str | None) -> set[int] | None:
    if rows is None:
        return None
    parts = [part.strip() for part in rows.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"--rows {rows}: expected numbers from 1 on, separated by commas, such as 3,17")
    return set(map(int, parts))


def _show(name: str, found: Explanation, names: Any, texts: Mapping[str, str], format: Report) -> None:
    near = {
        str(one.label): _examples(one, names, texts) for one in (found.answer, found.runner_up) if one is not None
    }
    if format is Report.json:
        shown = {**_named(name, texts), **asdict(found), "ahead": found.ahead}
        for key, one in (("answer", found.answer), ("runner_up", found.runner_up)):
            if one is not None:
                shown[key]["examples"] = near[str(one.label)]
        print(json.dumps(shown, ensure_ascii=False))
        return
    print(f"{short(texts[name]) if name in texts else name}: {found}")
    for label, listed in near.items():
        if listed:
            each = (
                f"{short(one['text']) if 'text' in one else one['input']} ({one['distance']:.2f})" for one in listed
            )
            print(f"nearest examples of {label}: {', '.join(each)}")
    print()


def _examples(one: Candidate, names: Any, texts: Mapping[str, str]) -> list[dict[str, Any]]:
    """The nearest examples, by name if they were given, or by their number among those that the head keeps."""
    called = [names[each.row] if names is not None else f"kept sample {each.row + 1}" for each in one.examples]
    return [
        {**_named(name, texts), "distance": each.distance} for name, each in zip(called, one.examples, strict=True)
    ]


def _named(name: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """What was given for a sample: its name and, of a table, its text."""
    return {"input": name} | ({"text": texts[name]} if texts.get(name, name) != name else {})
