"""``taer discover``: groups of samples of no known class, as a file in which a user names them."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taer.cli.app import LOOP, app
from taer.cli.examples import BackboneOption, TextColumn, Weights
from taer.cli.inputs import Reader
from taer.cli.pool import LoopModel, Pool, PoolArgument, read_pool
from taer.cli.progress import stage
from taer.cli.wording import counted, short

if TYPE_CHECKING:
    from taer.heads import Head
    from taer.loop.discover import Discovery

_FEW = 20  # classes below which a head knows little of others
_SUFFIXES = (".json", ".csv")
_SAMPLES = ("typical 1", "typical 2", "typical 3")
_COLUMNS = ("group", "name", "size", "distinct", "sure", "words", *_SAMPLES, "pool", "samples", "rows")


@dataclass(frozen=True)
class Proposal:
    """A group of a discovery, as it is written."""

    group: int
    name: str  # empty until the user gives one
    size: int
    distinct: int
    sure: float
    words: list[str]
    typical: list[str]
    rows: list[int]  # from 1, as 'taer predict' names them


@dataclass(frozen=True)
class Proposals:
    """The groups of a discovery, and the pool that they are in."""

    pool: str
    samples: int
    groups: list[Proposal] = field(default_factory=list)


@app.command(rich_help_panel=LOOP)
def discover(
    model: LoopModel,
    pool: PoolArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the groups, .json or .csv. Give names to groups in the file, then teach them with "
            "'taer learn HEAD --from-discovery FILE'."
        ),
    ] = None,
    backbone: BackboneOption = None,
    weights: Weights = None,
    text_column: TextColumn = None,
) -> None:
    """Find groups of samples that belong to no known class."""
    from taer.persist.save import load

    head = load(model)
    check_verb(head, "discover", model)
    if out is not None and out.suffix not in _SUFFIXES:
        raise ValueError(f"--out {out}: expected a name that ends in {' or '.join(_SUFFIXES)}")
    if out is not None and out.exists():
        _check_unnamed(out)
    samples = read_pool(Reader(head, backbone, weights, text_column), pool)
    X = samples.features()
    with stage(f"comparing {counted(len(samples), 'sample')}"):
        found = head.discover(X, samples.shown if samples.kind == "text" else None)
    proposals = Proposals(pool, len(samples), _proposals(found, samples))
    _print(found, proposals)
    if not found.groups:
        print(_nothing_found(found, len(head.classes_)))
    if out is not None:
        _write(out, proposals)
    if out is not None and found.groups:
        print(f"{out}: give names to groups there, then 'taer learn {model} --from-discovery {out}'")


def _nothing_found(found: Discovery, n_classes: int) -> str:
    """Why nothing is proposed."""
    reasons = [
        f"{number} in groups that {why}"
        for number, why in (
            (int(found.known.sum()), "look known"),
            (found.too_few, "are of fewer than four distinct samples"),
            (found.scattered, "are more scattered than a class"),
        )
        if number
    ]
    hint = ""
    if n_classes < _FEW and found.too_few + found.scattered:
        hint = (
            f"; with {counted(n_classes, 'class', 'es')} the head knows little of how classes differ: teach it more"
        )
    return f"no group is proposed: of {counted(len(found.labels), 'sample')}, {', '.join(reasons)}{hint}"


def check_verb(head: Head, verb: str, model: Path) -> None:
    """Raise unless the head has a verb of the loop."""
    if not hasattr(head, verb):
        raise ValueError(f"{model}: {head.name} cannot {verb}; 'taer fit' makes a bayes head, which can")


def _proposals(found: Discovery, pool: Pool) -> list[Proposal]:
    return [
        Proposal(
            number + 1,
            "",
            group.size,
            group.distinct,
            round(group.sure, 3),
            list(group.words),
            [pool.shown[row] for row in group.typical],
            sorted(row + 1 for row in group.rows.tolist()),
        )
        for number, group in enumerate(found.groups)
    ]


def _print(found: Discovery, proposals: Proposals) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    known = int(found.known.sum())
    grouped = sum(group.size for group in proposals.groups)
    print(
        f"{counted(len(proposals.groups), 'group')} of {counted(grouped, 'sample')}; {known} of {proposals.samples} look "
        f"like known classes, {proposals.samples - known - grouped} belong to no group"
    )
    if not proposals.groups:
        return
    table = Table(
        "group",
        "size",
        "distinct",
        "sure",
        "words" if proposals.groups[0].words else "",
        "typical",
        box=SIMPLE_HEAD,
    )
    for group in proposals.groups:
        typical = "\n".join(short(text) for text in group.typical)
        numbers = (str(group.group), str(group.size), str(group.distinct), f"{group.sure:.2f}")
        table.add_row(*numbers, ", ".join(group.words), typical)
    console = Console(markup=False, highlight=False)
    console.print(table)


def _write(out: Path, proposals: Proposals) -> None:
    from taer.files import written_whole

    with written_whole(out) as partial:
        if out.suffix == ".json":
            partial.write_text(json.dumps(asdict(proposals), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            return
        with partial.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(_COLUMNS)
            for group in proposals.groups:
                typical = [*group.typical, "", ""][:3]
                row = [
                    group.group,
                    group.name,
                    group.size,
                    group.distinct,
                    group.sure,
                    " ".join(group.words),
                    *typical,
                ]
                table.writerow([*row, proposals.pool, proposals.samples, " ".join(map(str, group.rows))])


def _check_unnamed(path: Path) -> None:
    """Raise unless a file is an earlier discovery in which the user has named nothing."""
    try:
        named = sum(bool(group.name.strip()) for group in _read(path).groups)
    except ValueError:
        raise ValueError(f"{path}: exists and is not an earlier discovery; name another file") from None
    if named:
        raise ValueError(
            f"{path}: exists, and {counted(named, 'group')} there {'have' if named > 1 else 'has'} a name; "
            "name another file"
        )


def _read(path: Path) -> Proposals:
    """A discovery from its file, with what the user changed in it."""
    from taer.features.sources.texts import open_csv, separator

    expected = "expected a file that 'taer discover --out' wrote"
    try:
        if path.suffix == ".csv":
            with open_csv(path) as file:
                lines = list(csv.DictReader(file, delimiter=separator(path)))
            groups = [_from_csv(line) for line in lines]
            found = Proposals(lines[0]["pool"], int(lines[0]["samples"]), groups) if lines else Proposals("", 0)
        else:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            groups = [Proposal(**group) for group in content["groups"]]
            found = Proposals(str(content["pool"]), int(content["samples"]), groups)
        for group in found.groups:
            _check_group(group, found.samples)
        return found
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: {expected} ({error})") from None


def _from_csv(line: dict[str, str]) -> Proposal:
    typical = [line[name] for name in _SAMPLES if line[name]]
    rows: list[Any] = [int(row) if row.isdecimal() else row for row in line["rows"].split()]
    numbers = int(line["group"]), line["name"], int(line["size"]), int(line["distinct"]), float(line["sure"])
    return Proposal(*numbers, line["words"].split(), typical, rows)


def _check_group(group: Proposal, samples: int) -> None:
    """Raise ValueError if what is read from a group is not what was written there."""
    where = f"group {group.group}"
    if not isinstance(group.name, str):
        raise ValueError(f"{where}: the name must be a text, got {group.name!r}")
    if type(group.size) is not int:
        raise ValueError(f"{where}: the size must be a number, got {group.size!r}")
    if not isinstance(group.typical, list) or not all(isinstance(text, str) for text in group.typical):
        raise ValueError(f"{where}: typical must be a list of texts")
    if not isinstance(group.rows, list):
        raise ValueError(f"{where}: rows must be a list of numbers, got {group.rows!r}")
    for row in group.rows:
        if type(row) is not int or not 1 <= row <= samples:
            raise ValueError(f"{where}: rows must be numbers from 1 to {samples}, got {row!r}")


def _find_pool(place: str, path: Path) -> Path:
    """Where the pool of a discovery is: where it was, or beside the file of the discovery."""
    for found in (Path(place), path.parent / place, path.parent / Path(place).name):
        if found.exists():
            return found
    raise ValueError(
        f"{path}: its pool {place} is neither here nor beside it; put it there, or run this where it is"
    )


def _is_unchanged(group: Proposal, pool: Pool, before: str, now: str) -> bool:
    """Whether the typical samples are where they were. The user may have removed some rows, or moved the pool."""
    shown = {pool.shown[row - 1] for row in group.rows}
    typical = group.typical if pool.kind == "text" else [text.replace(before, now, 1) for text in group.typical]
    missing = {text for text in typical if text not in shown}
    return not missing or (len(missing) <= group.size - len(group.rows) and missing <= set(pool.shown))


def named_samples(path: Path, reader: Reader) -> tuple[Any, list[str]]:
    """Features and labels of the groups of a discovery that have a name. Groups of one name are one class."""
    if not path.is_file():
        raise ValueError(f"--from-discovery {path}: no such file")
    proposals = _read(path)
    named = [group for group in proposals.groups if group.name.strip()]
    if not proposals.groups:
        raise ValueError(f"{path}: proposes no groups, so there is nothing to teach")
    if not named:
        raise ValueError(f'{path}: no group has a name; write names into it, such as "name": "refunds"')
    named = [group for group in named if group.rows]
    if not named:
        raise ValueError(f"{path}: no rows are left in the groups with a name, so there is nothing to teach")
    place = _find_pool(proposals.pool, path)
    pool = read_pool(reader, str(place))
    rows = [row - 1 for group in named for row in group.rows]
    names = str(Path(proposals.pool)), str(place)
    if len(pool) != proposals.samples or not all(_is_unchanged(group, pool, *names) for group in named):
        raise ValueError(f"{path}: {proposals.pool} has changed since the discovery; run 'taer discover' again")
    return pool.features(rows), [group.name.strip() for group in named for _ in group.rows]
