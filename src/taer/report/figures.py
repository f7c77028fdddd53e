"""Figures: curves, matrices and confusion matrices, drawn once for files and for the page.

The colors are those of Okabe and Ito, which color-blind readers can distinguish; markers differ as well. TaER has the
color of the text, so that it stands out on paper and on a dark screen.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from taer.report.collect import rank

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK, _GROUND = "#101214", "#fefefe"  # unique colors, which a page replaces by its own
_COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
_MARKERS = ("o", "s", "^", "v", "D", "P", "X", "<", ">")
STYLE: Any = {
    "axes.edgecolor": _INK,
    "axes.facecolor": _GROUND,
    "axes.grid": True,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.facecolor": _GROUND,
    "font.size": 9,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "savefig.facecolor": _GROUND,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "svg.fonttype": "none",
    "svg.hashsalt": "taer",
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


@dataclass(frozen=True)
class Picture:
    """A figure with its files."""

    name: str
    title: str
    note: str
    svg: str
    pdf: bytes

    @property
    def inline(self) -> str:
        """The SVG for a page: in the colors of the page, and with ids that no other figure has."""
        drawing = self.svg[self.svg.index("<svg") :].replace(_INK, "currentColor").replace(_GROUND, "none")
        drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
        used = set(re.findall(r"(?:url\(|href=\")#([^)\"]+)", drawing))
        for name in set(re.findall(r' id="([^"]+)"', drawing)) - used:
            drawing = drawing.replace(f' id="{name}"', "")
        return re.sub(r'((?:url\(|href=")#| id=")', rf"\g<1>{self.name}-", drawing)


@dataclass(frozen=True)
class Curve:
    label: str
    method: str  # sets the line style, which is the same in all panels
    points: np.ndarray  # one row per run
    dashed: bool = False  # for a second quantity of the same method
    x: tuple[float, ...] = ()  # its own x values, if they differ from those of the panel


def _styled(draw: Callable[..., Picture]) -> Callable[..., Picture]:
    """Run a drawing function with our style instead of the user's."""

    @wraps(draw)
    def styled(*arguments: Any, **options: Any) -> Picture:
        import matplotlib as mpl

        with mpl.rc_context(STYLE):
            return draw(*arguments, **options)

    return styled


@_styled
def curves(
    name: str,
    title: str,
    note: str,
    panels: Mapping[str, Sequence[Curve]],
    x: Sequence[float] | Sequence[str],
    labels: tuple[str, str],
    logarithmic: bool = False,
) -> Picture:
    """Means over runs, with the range of the runs as a band; two panels per row."""
    from matplotlib.ticker import MaxNLocator

    shown = {curve.method for members in panels.values() for curve in members}
    present = ["taer", *sorted(shown - {"taer"}, key=rank)]
    legend = 0.55 + 0.072 * max(len(curve.label) for members in panels.values() for curve in members)
    tallest = max(len(members) for members in panels.values())
    figure, axes = _figure(len(panels), 2, (3.3, max(2.4, 0.2 * tallest)), (0.65, legend, 0.35, 0.55))
    for ax, (panel, members) in zip(axes, panels.items(), strict=False):
        for curve in members:
            number = present.index(curve.method)
            color = _COLORS[(number - 1) % len(_COLORS)] if number else _INK
            mean = np.mean(curve.points, axis=0)
            at = curve.x or x[: len(mean)]
            ax.plot(
                at,
                mean,
                label=curve.label,
                color=color,
                marker=_MARKERS[number % len(_MARKERS)],
                linestyle="--" if curve.dashed else "-",
                linewidth=1.4 if number else 2.2,
            )
            if len(curve.points) > 1:
                low, high = np.min(curve.points, axis=0), np.max(curve.points, axis=0)
                ax.fill_between(at, low, high, color=color, alpha=0.12, linewidth=0)
        ax.set(title=panel, xlabel=labels[0], ylabel=labels[1])
        if logarithmic:
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter("{x:g}")
        elif not isinstance(x[0], str):
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.05), fontsize=8)
    return _finish(figure, name, title, note)


@_styled
def matrices(
    name: str, title: str, note: str, panels: Mapping[str, np.ndarray], labels: tuple[str, str], gamma: float
) -> Picture:
    """Fractions as brightness, on one scale for all panels; a ``gamma`` below 1 makes small fractions visible."""
    from matplotlib.colors import PowerNorm

    titles = [_folded(panel) for panel in panels]
    above = 0.12 + 0.14 * max(1 + title.count("\n") for title in titles)
    figure, axes = _figure(len(panels), 5, (1.7, 1.7), (0.5, 0.15, above, 0.4), beside=0.6)
    for ax, heading, matrix in zip(axes, titles, panels.values(), strict=True):
        ax.grid(False)
        image = ax.imshow(matrix, cmap="cividis", norm=PowerNorm(gamma, 0, 1), interpolation="nearest")
        ax.set_title(heading, fontsize=8)
        ax.set(xlabel=labels[0], ylabel=labels[1])
        _whole_ticks(ax, len(matrix))
    width, height = figure.get_size_inches()
    figure.colorbar(
        image, cax=figure.add_axes((1 - 0.55 / width, 1 - (above + 1.7) / height, 0.12 / width, 1.7 / height))
    )
    return _finish(figure, name, title, note)


def _figure(
    panels: int,
    across: int,
    size: tuple[float, float],
    around: tuple[float, float, float, float],
    beside: float = 0,
) -> tuple[Figure, Sequence[Axes]]:
    """Panels of one size, in inches, with room left, right, above and below each, and beside them all.

    Margins are fixed, because matplotlib's automatic layout would draw everything several times.
    """
    from matplotlib.figure import Figure

    across = min(across, panels)
    down = math.ceil(panels / across)
    left, right, above, below = around
    wide, high = left + size[0] + right, above + size[1] + below
    width, height = wide * across + beside, high * down
    figure = Figure(figsize=(width, height))
    places = [divmod(number, across) for number in range(panels)]
    return figure, [
        figure.add_axes(
            (
                (column * wide + left) / width,
                1 - (row * high + above + size[1]) / height,
                size[0] / width,
                size[1] / height,
            )
        )
        for row, column in places
    ]


def _finish(figure: Figure, name: str, title: str, note: str) -> Picture:
    svg, pdf = io.StringIO(), io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None})
    figure.savefig(pdf, format="pdf", metadata={"CreationDate": None})
    return Picture(name, title, note, svg.getvalue(), pdf.getvalue())


def _whole_ticks(ax: Axes, size: int) -> None:
    step = max(1, math.ceil(size / 5))
    ticks = np.arange(step, size + 1, step)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(ticks - 1, [str(tick) for tick in ticks])


def _folded(label: str) -> str:
    """Long labels on several lines, broken between their parts."""
    return label.replace(" (", "\n(").replace(", ", ",\n")
