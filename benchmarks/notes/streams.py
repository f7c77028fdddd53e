"""Heads on each kind of stream: accuracy on all classes at the end, and A_AUC.

    python -m benchmarks.notes.streams [FILE] --seeds 3 --out results/streams

Runs are kept in --out and not run again. ``bayes`` is also there with ``prior_samples=600``; ``hycal`` and ``klda`` are
too slow for batches of ten, so that only streams of whole sessions are run for them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import taer
from taer.experiment import Run, Spread, run_grid
from taer.stream.kinds import make_stream

STREAMS = ("online", "blurry", "si-blurry", "recurring", "long-tailed")
HEADS: list[tuple[str, dict[str, Any]]] = [
    ("bayes", {}),
    ("bayes", {"prior_samples": 600}),
    ("slda", {}),
    ("ncm", {}),
    ("er", {}),
    ("hycal", {}),
    ("klda", {}),
]


SLOW = {"hycal", "klda"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="?")
    parser.add_argument("--sessions", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/streams"))
    options = parser.parse_args()
    data = taer.load_features(options.features)
    print(f"| {data.name} | {' | '.join(STREAMS)} |\n|---|{'---:|' * len(STREAMS)}")
    streams = {
        kind: [make_stream(data, kind, options.sessions, seed, seed) for seed in range(options.seeds)]
        for kind in STREAMS
    }
    for name, params in HEADS:
        cells = []
        for members in streams.values():
            if name in SLOW and members[0].batch is not None:
                cells.append("–")
                continue
            runs = [Run(stream, name, params, seed) for seed, stream in enumerate(members)]
            found = [result for _, result, _ in run_grid(runs, options.out, jobs=options.jobs)]
            last, area = (Spread.of(100 * run[metric] for run in found) for metric in ("last", "A_AUC"))
            cells.append(f"{last:.1f} / {area.mean:.1f}")
        settings = "".join(f", `{parameter}={value}`" for parameter, value in params.items())
        print(f"| `{name}`{settings} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
