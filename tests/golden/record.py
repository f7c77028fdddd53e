"""What every head answers on embedded data, recorded so that a commit that only moves code is shown to change nothing.

``python -m tests.golden.record`` writes all entries of ``heads.json`` again, ``… record bayes taer`` only these two.
A commit that changes an answer on purpose refreshes its entries and says why.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

import taer
from tests.conftest import small_head

FILE = Path(__file__).with_name("heads.json")
TASKS = ([3, 40, 11, 77], [58, 22, 95, 6], [64, 31, 89, 17])
LETTERS = "abcdefghijkl"  # one per class, so that predictions are a line of text
_PER_CLASS = 40


def answers(name: str) -> dict[str, str | float]:
    """Accuracy and predicted classes; for a head whose old scores never move also a hash of the bits of its scores."""
    sketches, head = taer.load_features(), small_head(name, random_state=0)
    for classes in TASKS:
        rows = np.concatenate([np.flatnonzero(sketches.train_y == c)[:_PER_CLASS] for c in classes])
        head.partial_fit(np.asarray(sketches.train_x[rows]), sketches.train_y[rows])
    known = np.concatenate(TASKS)
    tested = np.isin(sketches.test_y, known)
    X, y = np.asarray(sketches.test_x[tested]), sketches.test_y[tested]
    predicted = head.predict(X)
    letters = dict(zip(known.tolist(), LETTERS, strict=True))
    found: dict[str, str | float] = {
        "accuracy": round(float(np.mean(predicted == y)), 4),
        "predicted": "".join(letters[label] for label in predicted.tolist()),
    }
    if head.card.frozen:
        found["scores"] = hashlib.sha256(np.ascontiguousarray(head.scores(X)).tobytes()).hexdigest()[:16]
    return found


def kernels() -> list[str]:
    """The BLAS kernels in use; others round differently, so bits are compared only where these are the same."""
    return sorted({item["architecture"] for item in threadpool_info() if item["user_api"] == "blas"})


def main(names: list[str]) -> None:
    known = json.loads(FILE.read_text())["heads"] if FILE.exists() and names else {}
    known |= {name: answers(name) for name in names or taer.HEADS}
    FILE.write_text(json.dumps({"kernels": kernels(), "heads": dict(sorted(known.items()))}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
