"""``taer info``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taer.cli.app import DATA, app
from taer.cli.wording import counted
from taer.files import format_of

if TYPE_CHECKING:
    import numpy as np

    from taer.features import FeatureSet
    from taer.heads import Head
    from taer.rows import Rows


@app.command(rich_help_panel=DATA)
def info(
    file: Annotated[
        str | None,
        typer.Argument(help="Features (file, folder of shards, URL), a saved head or pipeline, or hf:OWNER/NAME."),
    ] = None,
) -> None:
    """Describe a feature file, a saved head or a saved pipeline."""
    import numpy as np

    from taer.features import load_features
    from taer.rows import row_chunks

    if file is not None and (described := _described(file)):
        _print_described(described)
        return
    data = load_features(file, labeled=False)
    norms, smallest = [], []
    samples = data.train_x if data.classes else data.test_x
    for rows in row_chunks(samples):
        X = samples[rows].astype(np.float32)
        norms.append(np.linalg.norm(X, axis=1))
        smallest.append(X.min())
    shown = {
        "name": data.name,
        **(_parts(data) if data.classes else {"unlabeled samples": _size(data.test_x)}),
        "mean feature norm": f"{np.concatenate(norms).mean():.3f}",
        "smallest value": f"{min(smallest):.3f}",
        **data.meta,
        "fingerprint": data.fingerprint,
    }
    _print_described(shown)


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


def _described(file: str) -> dict[str, Any] | None:
    """The lines that 'taer info' prints for a saved head or pipeline; None for anything else."""
    from taer.persist.hub import SCHEME, fetch, source_of
    from taer.persist.pipelines import load
    from taer.persist.save import PIPELINE, is_head

    path, address = fetch(file) if file.startswith(SCHEME) else (Path(file), None)
    if not path.is_file() or not (is_head(path) or format_of(path) == PIPELINE):
        return None
    saved, source = load(path), address or source_of(path)
    size = {"size": f"{path.stat().st_size:,} bytes", **({"source": source} if source else {})}
    if not hasattr(saved, "steps"):
        return _describe_head(saved) | size
    *before, (_, head) = saved.steps
    return {f"step {name}": step for name, step in before} | _describe_head(head) | size


def _describe_head(head: Any) -> dict[str, Any]:
    from taer.heads import name_of
    from taer.multilabel.model import MultiLabel

    if isinstance(head, MultiLabel):
        return {
            "method": f"several labels per sample, with the prior of {head.template().name}",
            "features": f"{head.n_features_in_} numbers per sample",
            **(
                origin._asdict()
                if (origin := getattr(head, "feature_origin_", None))
                else {"backbone": "not known"}
            ),
            "labels": f"{len(head.classes_)}: {_listed([str(label) for label in head.classes_])}",
        }
    params = ", ".join(f"{name}={value!r}" for name, value in head.get_params().items())
    tasks = [[str(label) for label, task in head.learning_order_ if task == t + 1] for t in range(head.n_tasks_)]
    limit = getattr(head, "threshold_", None)
    return {
        "method": f"{name_of(type(head))} ({params})",
        "features": f"{head.n_features_in_} numbers per sample",
        **(origin._asdict() if (origin := getattr(head, "feature_origin_", None)) else {"backbone": "not known"}),
        "classes": f"{len(head.classes_)} in {counted(head.n_tasks_, 'task')}",
        **{f"task {t + 1}": _listed(labels) for t, labels in enumerate(tasks)},
        "samples kept": len(getattr(head, "memory_", ())),
        **({} if limit is None else {"novelty limit": f"{limit:.4g}: a sample above it is unknown"}),
        **_automation(head),
    }


def _automation(head: Head) -> dict[str, str]:
    if (promised := getattr(head, "automation_", None)) is None:
        return {}
    promise = f"at most {100 * promised['errors']:g} % wrong, confidence {100 * promised['confidence']:g} %"
    return {"automation": f"{100 * promised['coverage']:.1f} % of the held-out samples: {promise}"}


def _listed(labels: list[str]) -> str:
    return f"{', '.join(labels[:8])}{', …' if len(labels) > 8 else ''}" or "no new class"
