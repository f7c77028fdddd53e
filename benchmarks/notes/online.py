"""``bayes`` on an online stream, beside ``slda``: accuracy after the last batch, and seconds of processor time.

    python -m benchmarks.notes.online --features cub200-resnet18.safetensors

Batches of ten samples, each seen once. ``bayes`` gets first tasks of several sizes: its prior is then that of
``prior_samples``, without the fits on the way.
"""

from __future__ import annotations

import argparse
import time
import warnings
from itertools import pairwise

import numpy as np

import taer
from taer.heads.few import FewSamplesWarning

BATCH = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features")
    parser.add_argument("--orders", type=int, default=3)
    parser.add_argument("--first", type=int, nargs="+", default=[BATCH, 60, 200, 600])
    options = parser.parse_args()
    warnings.simplefilter("ignore", FewSamplesWarning)
    data = taer.load_features(options.features)
    print("| order | head | first task | last (%) | seconds |\n|---:|---|---:|---:|---:|")
    for order in range(options.orders):
        stream = taer.make_stream(data, "online", sessions=10, order=order, seed=order)
        rows = np.concatenate([stream.train_rows(t) for t in range(len(stream))])
        X, y = np.asarray(data.train_x[rows]), np.asarray(data.train_y)[rows]
        for name, first in [("slda", BATCH), *(("bayes", size) for size in options.first)]:
            head, ends = taer.make_head(name, random_state=0), [0, *range(first, len(y), BATCH), len(y)]
            started = time.process_time()
            for start, end in pairwise(ends):
                head.partial_fit(X[start:end], y[start:end])
            seconds = time.process_time() - started
            last = 100 * head.score(data.test_x, data.test_y)
            print(f"| {order} | `{name}` | {first} | {last:.2f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
