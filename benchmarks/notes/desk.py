"""A month at a support desk: the notebook, run with several orders of the topics.

    python -m benchmarks.notes.desk --features clinc150.safetensors --seeds 3

Printed: labels and topics at the end of the month, and test accuracy after each week, as means over the seeds.
"""

from __future__ import annotations

import argparse
import os
import runpy
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np

NOTEBOOK = Path(__file__).parents[2] / "docs/notebooks/7-a-month-at-a-support-desk.py"


def month(features: Path, seed: int) -> dict[str, list[float]]:
    """Labels, topics and accuracies of each way to choose tickets."""
    os.environ |= {"FEATURES": str(features), "SEED": str(seed)}
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        found = runpy.run_path(str(NOTEBOOK))
    return {
        way: [found["given"][way], len(found["heads"][way].classes_), *values]
        for way, values in found["accuracies"].items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    months = [month(options.features, seed) for seed in range(options.seeds)]
    print("| tickets labeled | labels | topics known | week 1 | week 2 | week 3 | week 4 |\n|---|" + "---:|" * 6)
    for way in months[0]:
        values = np.array([found[way] for found in months])
        mean, spread = values.mean(axis=0), values[:, -1].std(ddof=1) if len(values) > 1 else 0.0
        cells = [f"{mean[0]:,.0f}", f"{mean[1]:.0f}", *(f"{100 * value:.1f}" for value in mean[2:])]
        print(f"| {way} | {' | '.join(cells)} ± {100 * spread:.1f} |")


if __name__ == "__main__":
    main()
