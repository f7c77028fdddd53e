"""How long it takes until a user can start: imports and the command line, each in new processes, measured in turn."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.lib.measuring import Side

COMMANDS = {
    "`python`": [sys.executable, "-c", "pass"],
    "`import taer`": [sys.executable, "-c", "import taer"],
    "`taer --help`": [sys.executable, "-m", "taer", "--help"],
    "`import sklearn.base`": [sys.executable, "-c", "import sklearn.base"],
}
AFTER_SKLEARN = """
import sklearn.base, time
started = time.perf_counter()
import taer; taer.TaER
print(time.perf_counter() - started)
"""


def measure(repeats: int) -> dict[str, Side]:
    """Seconds on the clock of each command, and of `taer.TaER` where scikit-learn is there already."""
    sides = {name: Side() for name in (*COMMANDS, "`taer.TaER` after `sklearn.base`")}
    for _ in range(repeats):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            sides[name].seconds.append(time.perf_counter() - started)
        added = subprocess.run([sys.executable, "-c", AFTER_SKLEARN], check=True, capture_output=True).stdout
        sides["`taer.TaER` after `sklearn.base`"].seconds.append(float(added))
    return sides
