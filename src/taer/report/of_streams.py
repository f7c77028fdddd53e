"""One section per stream in the results: tables, curves, matrices, and the commands to run it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from shlex import quote

import numpy as np

from taer.experiment import CONTINUAL, Result, by_class, mean_auroc, task_given
from taer.features import load_features
from taer.report.blocks import Block, Listing, Section, confusion_block
from taer.report.collect import Group, Setting, known_head
from taer.report.figures import Curve, Picture, curves, matrices
from taer.report.tables import Number, Table, Value, signed

Published = Callable[[Result, str], float | None]  # the published number of a run and a metric, if there is one


def stream_section(setting: Setting, folded: bool, published: Published) -> Section:
    blocks: list[Block] = [
        _summary(setting, published),
        _curves(setting, "learning", "Learning curves", "phase_accuracy", "accuracy on all classes so far (%)"),
        _curves(setting, "preserved", "Preserved accuracy", "preserved_accuracy", "preserved accuracy (%)"),
        *_arrivals(setting),
        _accuracies(setting),
        confusion_block(
            f"{setting.name}-confusion",
            f"Confusion matrices, {setting.title}",
            [(label(group), group.results[0]) for group in setting.groups],
        ),
        _by_class(setting),
        *_again(setting),
    ]
    return Section(setting.name, setting.title, "", blocks, folded)


def comparison(setting: Setting, directories: list[str], published: Published) -> Table | None:
    """The heads that two directories share, side by side; None if there are none."""
    first, second = (
        {group.label: group for group in setting.groups if group.directory == one} for one in directories
    )
    rows: list[list[Value]] = []
    for name in first:
        if name in second:
            row: list[Value] = [name]
            for metric in ("A_T", "AIA"):
                a, b = (_number(one[name].results, metric, published) for one in (first, second))
                row += [a, b, signed((b.mean or 0) - (a.mean or 0))]
            rows.append(row)
    columns = [(f"{metric} (%)", part) for metric in ("A_T", "AIA") for part in (*directories, "difference")]
    if not rows:
        return None
    note = "Heads with the same name and the same distinguishing parameters; ± is the standard deviation over runs."
    return Table(f"{setting.name}-comparison", setting.title, note, [("", "Method"), *columns], rows)


def label(group: Group) -> str:
    return f"{group.label} [{group.directory}]" if group.directory else group.label


def _summary(setting: Setting, published: Published) -> Table:
    accuracies = ("last", "base", "new", "harmonic", "AIA") if setting.sampling else ("A_T", "AIA")
    heads = [known_head(group.method) for group in setting.groups]
    guesses = any(head.card.guesses_task for head in heads if head is not None)
    columns = ["Method", "Runs", *(f"{name} (%)" for name in accuracies), "A_AUC (%)", "Forgetting (%)"]
    columns += ["Backward transfer (%)", "Forward transfer (%)", "ECE (%)"]
    columns += ["Novelty AUROC (%)", "Seconds", "Samples kept", "Bytes kept", *["Task given (%)"] * guesses]
    rows: list[list[Value]] = [
        [
            label(group),
            len(group.results),
            *(_number(group.results, metric, published) for metric in (*accuracies, *CONTINUAL)),
            *(
                _measured([value(run) for run in group.results])
                for value in (lambda run: run["ece"][-1], mean_auroc)
            ),
            float(np.mean([sum(run["seconds"]) for run in group.results])),
            *(float(np.mean([run[name] for run in group.results])) for name in ("memory_samples", "memory_bytes")),
            *[_measured([task_given(run) for run in group.results])] * guesses,
        ]
        for group in setting.groups
    ]
    note = (
        "last: accuracy on all test samples after the last task; base and new: on those of classes of the first and "
        "of later tasks; harmonic: the harmonic mean of the two. "
        if setting.sampling
        else "A_T: mean over tasks of the accuracy after the last one. "
    )
    note += (
        "AIA: mean over phases of the accuracy on all classes so far. Forgetting: mean over tasks of what was lost "
        "since their best. Backward transfer: mean over tasks of what changed since they were learned. Forward "
        "transfer: of what was known before; 0 where a class that was never seen is never predicted. A_AUC: area under "
        "the accuracy on the classes seen, over the training samples. ECE: expected calibration "
        "error after the last task. Novelty AUROC: how well test samples of classes not yet learned are told from "
        "those of known ones by their novelty, mean over the tasks before the last. Seconds: training of all "
        "tasks. ± is the standard deviation over runs; in brackets the published number, where there is one, and the "
        "difference."
    )
    if guesses:
        note += (
            " Task given: accuracy after the last task if a head may only answer with classes of the sample's own "
            "task, which heads that answer for one task at a time have to guess otherwise."
        )
    title = f"Methods, {setting.title}"
    return Table(f"{setting.name}-methods", title, note, [("", name) for name in columns], rows)


def _number(results: list[Result], metric: str, published: Published) -> Number:
    return _measured([run[metric] for run in results], published(results[0], metric))  # type: ignore[literal-required]


def _measured(fractions: Sequence[float | None], published: float | None = None) -> Number:
    """Mean and standard deviation in percent. A stream of one task lacks some metrics."""
    return Number.of([value for value in fractions if value is not None], published)


def _curves(setting: Setting, kind: str, title: str, key: str, axis: str) -> Picture:
    """One panel for each combination of the parameters that vary."""
    panels: dict[str, list[Curve]] = {}
    directories = list(dict.fromkeys(group.directory for group in setting.groups))
    for group in setting.groups:
        name = f"{group.method} [{group.directory}]" if group.directory else group.method
        points = 100 * np.array([run[key] for run in group.results])  # type: ignore[literal-required]
        dashed = group.directory != directories[0]
        panels.setdefault(group.detail, []).append(Curve(name, group.method, points, dashed))
    tasks = range(1, len(setting.sizes) + 1)
    note = "Lines are means over runs, bands their range."
    return curves(f"{setting.name}-{kind}", f"{title}, {setting.title}", note, panels, tasks, ("task", axis))


def _arrivals(setting: Setting) -> list[Block]:
    """New and returning classes of each session, on streams without clear tasks."""
    results = setting.groups[0].results
    if results[0]["stream"] == "tasks":
        return []
    new = np.array([[len(task) for task in run["tasks"]] for run in results])
    returning = np.array([run["returning"] for run in results])
    panels = {"": [Curve("new", "bayes", new, False), Curve("returning", "er", returning, True)]}
    note = "Classes with training samples in each session, mean and range over the runs of one method."
    axes = ("session", "classes")
    sessions = range(1, new.shape[1] + 1)
    return [
        curves(f"{setting.name}-arrivals", f"Classes by session, {setting.title}", note, panels, sessions, axes)
    ]


def _accuracies(setting: Setting) -> Picture:
    size = len(setting.sizes)
    panels = {}
    for group in setting.groups:
        mean = np.full((size, size), np.nan)
        for t in range(size):
            mean[t, : t + 1] = np.mean([run["accuracy_matrix"][t] for run in group.results], axis=0)
        panels[label(group)] = mean
    note = "Accuracy on task k (columns) after task t (rows), mean over runs."
    title = f"Accuracies a[t, k], {setting.title}"
    return matrices(f"{setting.name}-accuracies", title, note, panels, ("k", "t"), gamma=1)


def _by_class(setting: Setting) -> Table:
    found = [by_class(group.results) for group in setting.groups]
    names = dict.fromkeys(name for one in found for name in one)
    rows: list[list[Value]] = [
        [name, *(_measured(one[name]) if name in one else "" for one in found)]
        for name in sorted(names, key=lambda name: np.mean([x for one in found for x in one.get(name, [])]))
    ]
    columns = [("", name) for name in ("Class", *(f"{label(group)} (%)" for group in setting.groups))]
    note = "Accuracy on the test samples of each class after the last task, the hardest classes first."
    return Table(f"{setting.name}-classes", f"By class, {setting.title}", note, columns, rows)


def _again(setting: Setting) -> list[Block]:
    """Commands, class orders and versions, so that anyone can repeat the runs."""
    results = [run for group in setting.groups for run in group.results]
    seeds: dict[str, set[int]] = {}
    for run in results:
        seeds.setdefault(" | ".join(" ".join(map(str, task)) for task in run["tasks"]), set()).add(run["seed"])
    meta = results[0]["meta"] | {"fingerprint": results[0]["features"]}
    versions = dict.fromkeys(", ".join(f"{k} {v}" for k, v in run["versions"].items()) for run in results)
    return [
        Listing(
            "To run it again (FEATURES: the file with the fingerprint below)",
            [_command(setting, group) for group in setting.groups],
        ),
        Listing(
            "Class orders (task | task | …) by seed",
            [f"{', '.join(map(str, sorted(of)))}: {order}" for order, of in seeds.items()],
        ),
        Listing("Features", [f"{key}: {value}" for key, value in meta.items()]),
        Listing("Versions", [f"{one}" for one in versions]),
    ]


def _command(setting: Setting, group: Group) -> str:
    head = known_head(group.method)
    same = ({} if head is None else head().get_params()) | {"order": group.params["order"]}
    if group.results[0]["stream"] != "tasks":
        same.pop("epochs", None)  # where samples come once, the default is another; see ``Run``
    changed = {name: value for name, value in group.params.items() if (name, value) not in same.items()}
    options = "".join(f" --set {quote(f'{name}={value}')}" for name, value in changed.items())
    stream = f"{_stream_options(setting, group)} --seeds {max(run['seed'] for run in group.results) + 1}"
    # A result has the fingerprint of its features, not their path; only the embedded ones are always available.
    file = "" if group.results[0]["features"] == load_features().fingerprint else " FEATURES"
    module = group.results[0].get("module", "")
    own = f" --import {module}" if module else ""
    return f"taer{own} run{file} --methods {group.method} {stream}{options}"


def _stream_options(setting: Setting, group: Group) -> str:
    """The options of ``taer run`` that make the stream of a group."""
    run, tasks = group.results[0], len(setting.sizes)
    order = {"torch": "", "natural": " --order natural"}.get(group.params["order"], " --order FILE")
    if run["stream"] != "tasks":
        return f"--tasks {tasks} --stream {run['stream']}{order}"
    if setting.sampling and run["shots"] is None:
        return "--samples FILE"
    first = "" if len(set(setting.sizes)) == 1 else f" --first {setting.sizes[0]}"
    drawn = "" if run["shots"] is None else f" --shots {run['shots']}"
    return f"--tasks {tasks - bool(first)}{first}{order}{drawn}"
