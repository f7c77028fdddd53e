"""Draw the figures of docs/how/ that illustrate an idea without measurements: ``python tools/figures.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

PSI, NU, MEAN, WIDTH = 9.0, 10.0, 2.0, 0.7  # variance of class means, weight of the prior scatter; the true class


def predictive(samples: np.ndarray) -> tuple[float, float]:
    """Center and variance of a class, as in the docstring of ``Bayes``, with one feature."""
    n, mean = len(samples), samples.mean()
    scatter = np.square(samples - mean).sum()
    return n * PSI / (n * PSI + 1) * mean, (scatter + NU) / (n + NU) + PSI / (n * PSI + 1)


def main() -> None:
    plt.rcParams.update(
        {"svg.hashsalt": "taer", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    )
    figure, axes = plt.subplots(1, 3, figsize=(8, 2.4), sharex=True, sharey=True, layout="constrained")
    x = np.linspace(-2, 6, 400)
    samples = np.random.default_rng(3).normal(MEAN, WIDTH, 50)
    for axis, n in zip(axes, (1, 5, 50), strict=True):
        center, variance = predictive(samples[:n])
        axis.plot(x, stats.norm.pdf(x, MEAN, WIDTH), color="gray", linestyle=":", label="true")
        axis.plot(x, stats.norm.pdf(x, center, np.sqrt(variance)), color="teal", label="known")
        axis.plot(samples[:n], np.full(n, -0.03), "|", color="teal")
        axis.set(title=f"{n} example{'s' * (n > 1)}", yticks=[])
    axes[0].legend(frameon=False)
    figure.savefig(Path(__file__).parents[1] / "docs" / "images" / "bayes.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
