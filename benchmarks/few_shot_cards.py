"""Which heads find classes of five samples beside classes of many: the fact ``few_shot`` on the card of a head.

    python benchmarks/few_shot_cards.py FEATURES > few.out.md
    python tools/fill_docs.py --some docs/evidence/beyond.md few.out.md

The tasks are those of ``fewshot.py``, with five samples per new class and one seed. A head finds these classes if their
accuracy after the last task is at least two fifths of that of the first task's. Where its card says otherwise, so does
stderr.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from fewshot import Bench

from taer.features import load_features
from taer.heads import HEADS
from taer.heads.few import FewSamplesWarning
from taer.threads import one_blas_thread

ENOUGH = 0.4


def main() -> None:
    data = load_features(sys.argv[1])
    bench = Bench([data], list(HEADS), ["5"], seeds=1, out=Path("results/fewshot"))
    bench.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", FewSamplesWarning)  # few samples are the point
    print("### few\n\n| head | classes of many samples | classes of five | found |\n|---|---:|---:|---|")
    for name, head in HEADS.items():
        with one_blas_thread():
            bench.run(data, name)
        found = bench.values(data, name, "5")
        (many,), (few,) = found["base"], found["new"]
        finds = few >= ENOUGH * many
        print(f"| `{name}` | {many:.1f} | {few:.1f} | {'yes' if finds else 'no'} |", flush=True)
        if finds != head.card.few_shot:
            print(f"{name}: its card says few_shot={head.card.few_shot}", file=sys.stderr)


if __name__ == "__main__":
    main()
