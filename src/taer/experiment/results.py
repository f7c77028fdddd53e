"""Results on disk and their summary. A result is one small JSON file, read only if its name and checksum are right."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np

from taer.files import written_whole
from taer.stream import class_order

FORMAT = "taer-run/6"
# What determines a result.
_IDENTITY = ("format", "features", "stream", "tasks", "rows", "method", "params", "source", "seed")
CONTINUAL = ("A_AUC", "forgetting", "backward_transfer", "forward_transfer")  # over the whole stream
FEW_SHOT = ("last", "base", "new", "harmonic", "ece_new")  # measured after the last task


class Result(TypedDict):
    """The measurements of a run, and everything needed to repeat it. Accuracies are fractions."""

    format: str
    features: str  # fingerprint of the feature set
    stream: str  # its kind: "tasks", or one of those of ``taer.make_stream``
    tasks: list[list[int]]  # classes that are first seen in each task
    rows: str | None  # digest of the training samples of each task; None if a task has all samples of its classes
    method: str
    module: NotRequired[str]  # of a named head from outside the package: what to import to run it again
    params: dict[str, Any]
    source: str  # digest of the head's code
    seed: int
    tuned: NotRequired[dict[str, Any]]  # parameters that ``taer tune`` chose, on which samples, and what it tried
    name: str  # of the feature set
    meta: dict[str, str]
    shots: int | None  # samples per class after the first task, if they were drawn
    samples: list[int]  # training samples of each task
    classes: list[str]  # in order of learning
    A_T: float  # mean over the tasks of their accuracy after the last task
    AIA: float  # mean over phases of the accuracy on all classes so far
    last: float  # accuracy on all test samples after the last task
    base: float  # the same, on those of classes of the first task
    new: float | None  # … and of later tasks; None if there are none
    harmonic: float | None  # mean of base and new
    ece_new: float | None  # calibration error after the last task, on samples of classes of later tasks
    forgetting: float
    backward_transfer: float
    forward_transfer: float
    A_AUC: float  # area under the accuracy on the classes seen, over the training samples
    anytime: list[tuple[int, float]]  # numbers of training samples, and the accuracy then
    returning: list[int]  # classes of earlier tasks that have samples in each task
    class_accuracy: list[float]  # of each class in order of learning, after the last task
    accuracy_matrix: list[list[float]]  # after each task, on each task so far
    phase_accuracy: list[float]
    preserved_accuracy: list[float]
    old_mass: dict[str, list[float]]
    decomposition: list[dict[str, float]]
    ece: list[float]  # calibration error after each task
    novelty_auroc: list[float | None]  # detection of classes not yet learned, after each task but the last
    # Measured without the most novel test samples of known classes: those above the head's own threshold for 5 % false
    # alarms or, if the head has no threshold, the most novel 5 %.
    coverage: list[float]  # fraction of samples that are answered, after each task
    selective_accuracy: list[float]  # accuracy on the answered samples
    confusion: list[list[int]]
    seconds: list[float]  # to learn each task
    head_bytes: list[int]
    memory_samples: int
    memory_bytes: int
    versions: dict[str, str]
    created: str


def order_of(result: Result) -> str:
    """The order in which the classes arrived: ``torch`` (that of the seed), ``natural`` (by number) or ``given``."""
    classes = sorted(label for task in result["tasks"] for label in task)
    orders = {"torch": _order(result["seed"], len(classes)), "natural": tuple(classes)}
    return next((name for name, order in orders.items() if _arrived(result, order)), "given")


def _arrived(result: Result, order: tuple[int, ...]) -> bool:
    """Whether the classes arrived in this order: on a blurry stream, within each session."""
    together = tuple(label for task in result["tasks"] for label in task)
    if "blurry" not in result["stream"]:
        return together == order
    place = {label: at for at, label in enumerate(order)}
    places = [[place.get(label, len(place)) for label in task] for task in result["tasks"]]
    return together == order or (max(map(len, places)) > 1 and all(one == sorted(one) for one in places))


@cache
def _order(seed: int, n_classes: int) -> tuple[int, ...]:
    return tuple(class_order(seed, n_classes))


class Spread(NamedTuple):
    """Mean and standard deviation (n - 1 in the divisor; 0 for one value) of several runs."""

    mean: float | None
    std: float
    values: list[float]

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        found = [float(value) for value in values]
        std = float(np.std(found, ddof=1)) if len(found) > 1 else 0.0
        return cls(float(np.mean(found)) if found else None, std, found)

    def __format__(self, number: str) -> str:
        if self.mean is None:
            return "–"
        return f"{self.mean:{number}} ± {self.std:{number}}" if len(self.values) > 1 else f"{self.mean:{number}}"

    def __str__(self) -> str:
        return format(self, ".2f")


def file_name(identity: Mapping[str, Any]) -> str:
    """The file name of a result. It differs between runs, and changes when the source of the head changes."""
    return f"{identity['method'].replace(':', '.')}-{_hash(_decisive(identity))[:20]}.json"


def _decisive(identity: Mapping[str, Any]) -> dict[str, Any]:
    """What determines a result; a tuned run is another one than a run that was given the same parameters."""
    tuned = {"tuned": identity["tuned"]} if "tuned" in identity else {}
    return {name: identity[name] for name in _IDENTITY} | tuned


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_result(folder: Path, result: Result) -> Path:
    """Write a result to disk, atomically."""
    path = folder / file_name(result)
    with written_whole(path) as partial:
        partial.write_text(json.dumps({**result, "sha256": _hash(result)}))
    return path


def read_result(path: Path) -> Result | None:
    """A stored result; None if it is missing, damaged, edited, or does not match its file name."""
    try:
        result: Result = json.loads(path.read_text(encoding="utf-8"))
        whole = result.pop("sha256") == _hash(result) and file_name(result) == path.name  # type: ignore[typeddict-item]
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError):  # any JSON, or none
        return None
    return result if whole and result["format"] == FORMAT else None


def read_results(folder: str | os.PathLike[str]) -> list[Result]:
    """The results in a directory. Of runs that differ only in the source of the head, only the newest is returned."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; expected one where runs have put their results")
    newest: dict[str, Result] = {}
    for result in map(read_result, sorted(folder.glob("*.json"))):
        if result is not None:  # damaged or edited: 'taer run' would run it again
            decisive = {name: value for name, value in _decisive(result).items() if name != "source"}
            key = json.dumps(decisive, sort_keys=True)
            if key not in newest or result["created"] >= newest[key]["created"]:
                newest[key] = result
    if not newest:
        raise ValueError(f"{folder}: no results there; run something that keeps its results in this folder")
    return list(newest.values())


def summarize(results: Iterable[Result]) -> list[dict[str, Any]]:
    """One row per method and its parameters: mean, standard deviation and values over the runs, in percent."""
    return [_summary(alike) for alike in grouped(results)]


def _summary(alike: Alike) -> dict[str, Any]:
    group = alike.results
    return {
        "method": alike.method,
        "label": alike.label,
        "params": alike.settings,
        "A_T": _percent(result["A_T"] for result in group),
        "AIA": _percent(result["AIA"] for result in group),
        **{name: _percent(_found(result[name] for result in group)) for name in (*FEW_SHOT, *CONTINUAL)},  # type: ignore[literal-required]
        "task_given": _percent(task_given(result) for result in group),
        "class_accuracy": {name: _percent(values) for name, values in by_class(group).items()},
        "ECE": _percent(result["ece"][-1] for result in group),
        "novelty_AUROC": _percent(_found(mean_auroc(result) for result in group)),
        "coverage": _percent(result["coverage"][-1] for result in group),
        "selective_accuracy": _percent(result["selective_accuracy"][-1] for result in group),
        "seconds": float(np.mean([sum(result["seconds"]) for result in group])),
        "memory_samples": float(np.mean([result["memory_samples"] for result in group])),
        "memory_bytes": float(np.mean([result["memory_bytes"] for result in group])),
    }


def by_class(results: Iterable[Result]) -> dict[str, list[float]]:
    """The accuracy of each class after the last task, in some runs."""
    found: dict[str, list[float]] = {}
    for result in results:
        for name, accuracy in zip(result["classes"], result["class_accuracy"], strict=True):
            found.setdefault(name, []).append(accuracy)
    return found


class Alike(NamedTuple):
    """Runs of the same method with the same settings."""

    method: str
    detail: str  # the settings in which it differs from other groups of the method, such as "lr 0.1"
    settings: dict[str, Any]
    results: list[Result]

    @property
    def label(self) -> str:
        return f"{self.method} ({self.detail})" if self.detail else self.method


def params_of(result: Result) -> dict[str, Any]:
    """The parameters of a run, without its seed. Those that were tuned may differ between runs that belong together."""
    params = {name: value for name, value in result["params"].items() if name != "random_state"}
    if (tuned := result.get("tuned")) is None:
        return params
    return params | dict.fromkeys(tuned["chosen"], f"tuned on {tuned['on']}")


def grouped(results: Iterable[Result], settings_of: Callable[[Result], dict[str, Any]] = params_of) -> list[Alike]:
    """Groups of runs that differ only in their seeds, those of a method one after the other."""
    by_method: dict[str, dict[str, list[Result]]] = {}
    for result in results:
        same = by_method.setdefault(result["method"], {})
        same.setdefault(json.dumps(settings_of(result), sort_keys=True), []).append(result)
    groups = []
    for method, together in by_method.items():
        settings = [settings_of(members[0]) for members in together.values()]
        varying = [name for name in settings[0] if len({json.dumps(one.get(name)) for one in settings}) > 1]
        for members, own in zip(together.values(), settings, strict=True):
            detail = ", ".join(f"{name} {own.get(name)}" for name in varying)
            groups.append(Alike(method, detail, own, members))
    return groups


def _found(values: Iterable[float | None]) -> Iterator[float]:
    """The values that are not None: a stream of one task lacks some."""
    return (value for value in values if value is not None)


def _percent(fractions: Iterable[float]) -> dict[str, Any]:
    return Spread.of(100 * value for value in fractions)._asdict()


def task_given(result: Result) -> float:
    """The accuracy after the last task if only classes of the sample's own task may be predicted."""
    return result["decomposition"][-1]["within_task"]


def mean_auroc(result: Result) -> float | None:
    """Mean over the tasks before the last of the AUROC for detecting classes not yet learned."""
    values: Sequence[float] = [value for value in result["novelty_auroc"] if value is not None]
    return float(np.mean(values)) if values else None
