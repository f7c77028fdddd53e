"""``taer compare``: is a new version of a head better?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taer.cli.app import LOOP, app
from taer.cli.audit import Report
from taer.cli.examples import ExamplesArgument, Reading, read_examples, reads_examples
from taer.cli.models import held_out_part
from taer.cli.wording import counted, short

if TYPE_CHECKING:
    from taer.loop.compare import Comparison

_VERDICTS = {
    True: "not worse: a loss of a point or more is excluded with 95 % confidence",
    False: "a loss of a point or more is not excluded: look at what changed",
    None: "too few examples to decide",
}


@app.command(rich_help_panel=LOOP)
@reads_examples
def compare(
    old: Annotated[Path, typer.Argument(help="The version in use.")],
    new: Annotated[Path, typer.Argument(help="The version that may replace it.")],
    examples: ExamplesArgument,
    count: Annotated[int, typer.Option(help="How many of the answers that differ are listed.", min=0)] = 10,
    format: Annotated[Report, typer.Option(help="Output format. In json, all answers that differ are listed.")] = (
        Report.text
    ),
    *,
    how: Reading,
) -> None:
    """Show whether a new version of a head is better.

    Neither version may have learned the examples: the test part is used, or all of them if there is none.
    """
    from taer.loop.compare import compare as compared
    from taer.persist.save import load

    before, after = load(old), load(new)
    read = read_examples(examples, after, how)
    X, labels = held_out_part(read.data, None, after)
    found = compared(before, after, X, labels)
    names = read.test if len(read.data.test_y) else read.train
    if format is Report.text:
        _print(
            found, [short(read.texts[name]) if name in read.texts else name for name in names], len(labels), count
        )
        return
    shown = {**asdict(found), "not_worse": found.not_worse}
    for difference in shown["differing"]:
        name = difference["input"] = names[difference.pop("row")]
        difference |= {"text": read.texts[name]} if name in read.texts else {}
    print(json.dumps(shown, ensure_ascii=False))


def _print(found: Comparison, names: Sequence[str], samples: int, count: int) -> None:
    print(found.sentence())
    print(_VERDICTS[found.not_worse])
    print("new classes:", ", ".join(map(str, found.new_classes)) or "none")
    if found.new_accuracy is not None:
        print(f"of their {counted(found.new_compared, 'example')}, {100 * found.new_accuracy:.1f} % are right")
    if strange := samples - found.compared - found.new_compared:
        print(f"{counted(strange, 'example')} of classes that the new version does not know: not counted")
    for one in found.losing:
        print(f"loses: {one.label}, {one.before} of {one.samples} right before, {one.after} after")
    if found.differing:
        print(f"\n{counted(len(found.differing), 'answer')} of {samples} differ\ninput\tlabel\tbefore\tafter")
    for each in found.differing[:count]:
        print(names[each.row], each.truth, each.before, each.after, sep="\t")
    if len(found.differing) > count > 0:
        print(f"… and {len(found.differing) - count} more; --count lists more")
