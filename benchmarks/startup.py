"""How long it takes until a user can start: imports and the command line, each in new processes, measured in turn.

python benchmarks/startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "import taer": [sys.executable, "-c", "import taer"],
    "taer --help": [sys.executable, "-m", "taer", "--help"],
    "import sklearn.base": [sys.executable, "-c", "import sklearn.base"],
}
AFTER_SKLEARN = """
import sklearn.base, time
started = time.perf_counter()
import taer; taer.TaER
print(time.perf_counter() - started)
"""


def main(repeats: int = 7) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(repeats):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - started)
    for name, values in seconds.items():
        print(f"{name:<32}{statistics.median(values):.3f} s  ({min(values):.3f}–{max(values):.3f})")
    added = [
        float(subprocess.run([sys.executable, "-c", AFTER_SKLEARN], check=True, capture_output=True).stdout)
        for _ in range(repeats)
    ]
    print(
        f"{'taer.TaER after sklearn.base':<32}{statistics.median(added):.3f} s  ({min(added):.3f}–{max(added):.3f})"
    )


if __name__ == "__main__":
    main()
