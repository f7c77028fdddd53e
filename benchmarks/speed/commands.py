"""Processor time of ``taer fit`` and ``taer diagnose`` on a feature file, beside what of it is scikit-learn's import.

python -m benchmarks.speed.commands
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import taer

TAER = [sys.executable, "-m", "taer"]
COMMANDS = {
    '`python -c "import sklearn.base"`': [sys.executable, "-c", "import sklearn.base"],
    "`taer --version`": [*TAER, "--version"],
    "`taer fit --method ncm`": [*TAER, "fit", "data.safetensors", "--out", "ncm.safetensors", "--method", "ncm"],
    "`taer fit`": [*TAER, "fit", "data.safetensors", "--out", "head.safetensors"],
    "`taer diagnose`": [*TAER, "diagnose", "head.safetensors", "data.safetensors"],
}


def processor_seconds(command: list[str], folder: str) -> float:
    """Of one process and all that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, env=one_thread)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--classes", type=int, default=50)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(options.classes), 90)
    X = (0.35 * rng.normal(size=(options.classes, 384))[y] + rng.normal(size=(len(y), 384))).astype(np.float32)
    test = np.arange(len(y)) % 9 == 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.safetensors"
        taer.features_from_arrays(X[~test], y[~test].astype(str), X[test], y[test].astype(str), out=path)
        seconds = {
            name: min(processor_seconds(command, folder) for _ in range(options.repeats))
            for name, command in COMMANDS.items()
        }
    unit = next(iter(seconds.values()))
    print("| command | seconds of one processor | of scikit-learn's import |\n|---|---:|---:|")
    for name, spent in seconds.items():
        print(f"| {name} | {spent:.1f} | {spent / unit:.1f} |")


if __name__ == "__main__":
    main()
