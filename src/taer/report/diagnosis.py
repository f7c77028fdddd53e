"""A diagnosis as a figure: the most confused classes, and the classes that need more examples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from taer.extras import require
from taer.files import written_whole
from taer.inspection.diagnosis import Diagnosis
from taer.report.figures import STYLE

_CLASSES = 12  # that fit into a panel


def draw_diagnosis(found: Diagnosis, examples: Mapping[Any, int], path: Path) -> None:
    """Write the figure as .svg, .pdf or .png; ``examples`` has the number of training samples per class."""
    matplotlib = require("matplotlib", "report")
    from matplotlib.figure import Figure

    if path.suffix not in (".svg", ".pdf", ".png"):
        raise ValueError(f"{path}: a figure ends in .svg, .pdf or .png")
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 4.8), layout="constrained")
        matrix, bars = figure.subplots(1, 2)
        _matrix(matrix, found)
        _bars(bars, found, examples)
        with written_whole(path) as partial:
            figure.savefig(partial, format=path.suffix[1:], dpi=150)


def _matrix(ax: Any, found: Diagnosis) -> None:
    """The confusion matrix of the most confused classes."""
    shown: dict[Any, None] = {}
    for pair in found.confused():
        if len(shown) + len({pair.label, pair.taken_for} - shown.keys()) <= _CLASSES:
            shown |= {pair.label: None, pair.taken_for: None}
    labels = list(shown) or found.labels[:_CLASSES]
    rows = [found.labels.index(label) for label in labels]
    counts = found.confusion[np.ix_(rows, rows)]
    ax.grid(False)
    ax.imshow(
        counts / np.maximum(1, found.confusion[rows].sum(axis=1, keepdims=True)), cmap="Blues", vmin=0, vmax=1
    )
    for i, j in np.argwhere(counts):
        dark = counts[i, j] > found.confusion[rows[i]].sum() / 2
        ax.text(j, i, counts[i, j], ha="center", va="center", fontsize=7, color="white" if dark else "black")
    names = [_short(label) for label in labels]
    ax.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    ax.set_yticks(range(len(names)), names, fontsize=7)
    ax.set(title="Classes confused most: samples", xlabel="taken for", ylabel="label")


def _bars(ax: Any, found: Diagnosis, examples: Mapping[Any, int]) -> None:
    """The weakest classes and their numbers of examples; the dashed line is the accuracy on all samples."""
    weak = found.weak()[:_CLASSES]
    accuracies = [100 * each.accuracy for each in weak]
    ax.barh(range(len(weak)), accuracies, color="#E69F00")
    for place, each in enumerate(weak):
        count = f"{examples.get(each.label, 0)} examples"
        ax.text(1, place, count, va="center", fontsize=7, color="black")
    ax.set_yticks(range(len(weak)), [_short(each.label) for each in weak], fontsize=7)
    ax.invert_yaxis()
    ax.axvline(100 * found.accuracy, linewidth=0.8, linestyle="--", color="gray")
    ax.set(title="Classes that need more examples", xlabel="accuracy (%)", xlim=(0, 100))
    ax.grid(axis="y", visible=False)


def _short(label: Any) -> str:
    text = str(label)
    return text if len(text) <= 24 else f"{text[:23]}…"
