"""The tables of docs/beyond.md: closed-form heads and heads with frozen scores, against the number of tasks.

    python benchmarks/beyond.py --features DIR --out results --jobs 2 [--methods gauss-chain,slda] [--tasks 5,10,20,50]

DIR holds cub200-resnet18.safetensors and cifar100-resnet18.safetensors. Runs are kept in --out and not run again.
``--joint`` fits the converged joint softmax that the heads are compared with.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from fidelity import EPOCHS, show, table

from taer.experiment import Run, run_grid, summarise
from taer.features import FeatureSet, load_features
from taer.heads import HEADS
from taer.stream import class_stream

METHODS = "taer,ncm,slda,ridge,ranpac,rff-lda,rgda,taer-gauss,lda-frozen,gauss-frozen,gauss-chain"


def joint_softmax(data: FeatureSet, seed: int = 0) -> float:
    """Accuracy of LogisticRegression on standardised features, C by 5-fold cross-validation on training data."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = data.train_x.astype(np.float32), np.asarray(data.train_y)
    some = np.random.default_rng(seed).permutation(len(X))[:20000]  # C is one number; the fit is on everything
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    search = GridSearchCV(model, {"logisticregression__C": [0.001, 0.003, 0.01, 0.03, 0.1]}, cv=5, refit=False)
    best = search.fit(X[some], y[some]).best_params_
    fitted = model.set_params(**best).fit(X, y)
    predicted, test_y = fitted.predict(data.test_x.astype(np.float32)), np.asarray(data.test_y)
    accuracy = np.mean([np.mean(predicted[test_y == c] == c) for c in range(len(data.classes))])
    print(f"{data.name}: joint softmax {100 * accuracy:.2f} (mean over classes), {best}", flush=True)
    return float(accuracy)


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
