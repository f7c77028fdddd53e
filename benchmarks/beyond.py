"""The tables of docs/beyond.md: closed-form heads and heads with frozen scores, against the number of tasks.

    python benchmarks/beyond.py --features DIR --out results --jobs 2 [--methods gauss-chain,slda] [--tasks 5,10,20,50]

DIR holds cub200-resnet18.safetensors and cifar100-resnet18.safetensors. Runs are kept in --out and not run again.
``--joint`` fits the converged joint softmax that the heads are compared with.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from fidelity import EPOCHS, show, table

from taer.experiment import Run, run_grid, summarise
from taer.features import FeatureSet, load_features
from taer.heads import HEADS
from taer.stream import class_stream

METHODS = "taer,ncm,slda,ridge,ranpac,rff-lda,rgda,taer-gauss,lda-frozen,gauss-frozen,gauss-chain"
STRENGTHS = (0.0003, 0.001, 0.003, 0.01, 0.03)  # C of the joint softmax


def joint_softmax(data: FeatureSet, out: Path) -> float:
    """Accuracy of LogisticRegression on standardised features, C by 5-fold cross-validation on training data.

    LogisticRegressionCV starts each C where the last one ended, which makes the search affordable.
    """
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.preprocessing import StandardScaler

    kept = out / f"joint-softmax-{data.fingerprint[:20]}.json"
    if kept.is_file():
        return float(json.loads(kept.read_text())["accuracy"])
    scaler = StandardScaler()
    X, y = scaler.fit_transform(data.train_x.astype(np.float64)), np.asarray(data.train_y)
    search = LogisticRegressionCV(
        Cs=STRENGTHS,
        cv=5,
        scoring="accuracy",
        l1_ratios=(0,),
        max_iter=1000,
        use_legacy_attributes=False,
        verbose=1,
    )
    predicted, test_y = search.fit(X, y).predict(scaler.transform(data.test_x.astype(np.float64))), data.test_y
    accuracy = float(np.mean([np.mean(predicted[test_y == c] == c) for c in range(len(data.classes))]))
    out.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"accuracy": accuracy, "C": float(search.C_), "steps": int(search.n_iter_.max())}))
    return accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--tasks", default="5,10,20,50")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--joint", action="store_true")
    options = parser.parse_args()
    for name, epochs in EPOCHS.items():
        data = load_features(options.features / f"{name}.safetensors")
        print(f"### {name}, A_T and AIA, mean ± deviation of {options.seeds} class orders\n")
        rows = []
        for method in options.methods.split(","):
            params = {"epochs": epochs} if "epochs" in HEADS[method]().get_params() else {}
            cells = []
            for tasks in map(int, options.tasks.split(",")):
                runs = [Run(class_stream(data, tasks, order=s), method, params, s) for s in range(options.seeds)]
                summary = summarise(result for _, result, _ in run_grid(runs, options.out, jobs=options.jobs))[0]
                cells += show([(summary[key]["mean"], summary[key]["std"]) for key in ("A_T", "AIA")])
            rows.append([method, *cells])
            print(f"<!-- {rows[-1]} -->", flush=True)
        heads = [f"{key}, N = {n}" for n in options.tasks.split(",") for key in ("A_T", "AIA")]
        table(["head", *heads], rows)
        if options.joint:
            joint_softmax(data)


if __name__ == "__main__":
    main()
