"""``taer info``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taer.cli.app import app

if TYPE_CHECKING:
    import numpy as np

    from taer.features import FeatureSet
    from taer.rows import Rows


@app.command()
def info(
    file: Annotated[
        str | None, typer.Argument(help="A feature file, a folder of shards, a URL, or a saved head.")
    ] = None,
) -> None:
    """Describe a feature file or a saved head."""
    import numpy as np

    from taer.features import load_features
    from taer.persist.save import is_head
    from taer.rows import row_chunks

    if file is not None and Path(file).is_file() and is_head(file):
        _print_described(_describe_head(Path(file)))
        return
    data = load_features(file, labeled=False)
    norms, smallest = [], []
    samples = data.train_x if data.classes else data.test_x
    for rows in row_chunks(samples):
        X = samples[rows].astype(np.float32)
        norms.append(np.linalg.norm(X, axis=1))
        smallest.append(X.min())
    described = {
        "name": data.name,
        **(_parts(data) if data.classes else {"unlabeled samples": _size(data.test_x)}),
        "mean feature norm": f"{np.concatenate(norms).mean():.3f}",
        "smallest value": f"{min(smallest):.3f}",
        **data.meta,
        "fingerprint": data.fingerprint,
    }
    _print_described(described)


def _parts(data: FeatureSet) -> dict[str, str]:
    """Sizes and classes of a set with labels."""
    import numpy as np

    per_class = np.bincount(data.train_y, minlength=len(data.classes))
    return {
        "training samples": _size(data.train_x),
        "test samples": _size(data.test_x),
        "classes": f"{len(data.classes)}: {', '.join(data.classes[:5])}{', …' if len(data.classes) > 5 else ''}",
        "samples of a class": f"{per_class.min()} to {per_class.max()} for training",
    }


def _size(X: np.ndarray | Rows) -> str:
    return f"{len(X):,} × {X.shape[1]} {X.dtype}"


def _print_described(described: dict[str, Any]) -> None:
    for key, value in described.items():
        print(f"{key:<20}{value}")


def _describe_head(path: Path) -> dict[str, Any]:
    """The lines that 'taer info' prints for a saved head."""
    from taer.heads import name_of
    from taer.persist.save import load

    head = load(path)
    params = ", ".join(f"{name}={value!r}" for name, value in head.get_params().items())
    tasks = [[str(label) for label, task in head.learning_order_ if task == t + 1] for t in range(head.n_tasks_)]
    return {
        "method": f"{name_of(type(head))} ({params})",
        "features": f"{head.n_features_in_} numbers per sample",
        **(origin._asdict() if (origin := getattr(head, "feature_origin_", None)) else {"backbone": "not known"}),
        "classes": f"{len(head.classes_)} in {head.n_tasks_} tasks",
        **{f"task {t + 1}": _few(labels) for t, labels in enumerate(tasks)},
        "samples kept": len(getattr(head, "memory_", ())),
        "size": f"{path.stat().st_size:,} bytes",
    }


def _few(labels: list[str]) -> str:
    return f"{', '.join(labels[:8])}{', …' if len(labels) > 8 else ''}" or "no new class"
