"""Teaching a saved head: ``taer fit`` and ``taer learn``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taer.cli.app import HEADS, app
from taer.cli.discover import named_samples
from taer.cli.examples import ExamplesArgument, Reading, read_examples, reads_examples
from taer.cli.inputs import Reader
from taer.cli.multilabel import LABELS, Separator, learn_labels, refuse_options
from taer.cli.own import find_method
from taer.cli.parameters import parameters
from taer.cli.progress import stage
from taer.cli.wording import counted

if TYPE_CHECKING:
    import numpy as np

    from taer.features import FeatureSet
    from taer.heads import Head
    from taer.rows import Rows

Model = Annotated[Path, typer.Argument(help="A saved head.")]
Classes = Annotated[
    str | None,
    typer.Option(
        help="Classes of the file to use: names separated by commas, or a range of class numbers such as 0:10. "
        "[default: all]"
    ),
]

Out = Annotated[Path | None, typer.Option(help="Where to save the head. [default: replace the input file]")]


@app.command(rich_help_panel=HEADS)
@reads_examples
def fit(
    examples: ExamplesArgument,
    out: Annotated[Path, typer.Option(help="Where to save the head. An existing head is replaced.")],
    method: Annotated[
        str, typer.Option(help="Name of a head (see 'taer methods'), or module:Class for your own.")
    ] = "bayes",
    classes: Classes = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of the head, NAME=VALUE. May be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    unknown: Annotated[
        str | None,
        typer.Option(
            help="Also fit a novelty threshold. Samples above it are answered with this word, such as '?'."
        ),
    ] = None,
    false_alarms: Annotated[
        float, typer.Option(help="Fraction of samples of known classes that --unknown may reject.")
    ] = 0.05,
    multi_label: Annotated[
        bool,
        typer.Option(
            "--multi-label",
            help="Several labels per sample: a cell such as billing;urgent, or ; alone for none. --classes are then the "
            "labels that were judged. [default: all]",
            rich_help_panel=LABELS,
        ),
    ] = False,
    separator: Separator = ";",
    *,
    how: Reading,
) -> None:
    """Create a head and teach it its first classes.

    The first task is all examples, without those of a test part. If there is one, the accuracy on it is printed.
    """
    head = find_method(method)()  # a wrong name is reported before the file is read
    check_replaceable(out, by_head=True)
    params = parameters([method], {}, set_ or [])[method]
    head.set_params(**{"random_state": seed, **params})
    if not 0 < false_alarms < 1:
        raise ValueError(f"--false-alarms must be above 0 and below 1, got {false_alarms:g}")
    if multi_label:
        refuse_options("--multi-label", {"--unknown": unknown})
        from taer.multilabel.model import MultiLabel

        many = MultiLabel(head)
        many.template()  # a method without a prior is reported before the file is read
        learn_labels(many, read_examples(examples, many, how).data, classes, separator, out)
        return
    _learn(head, read_examples(examples, head, how).data, classes, out, unknown, false_alarms)


@app.command(rich_help_panel=HEADS)
@reads_examples
def learn(
    model: Model,
    examples: Annotated[
        str | None, typer.Argument(metavar="EXAMPLES", help="Examples with labels, as in 'taer fit'.")
    ] = None,
    from_discovery: Annotated[
        Path | None,
        typer.Option(
            help="In place of EXAMPLES: a file of 'taer discover --out', whose groups with a name are taught."
        ),
    ] = None,
    classes: Classes = None,
    out: Out = None,
    separator: Separator = ";",
    *,
    how: Reading,
) -> None:
    """Teach a saved head more classes or samples.

    The next task is all examples, without those of a test part. If there is one, the accuracy on it is printed.
    """
    from taer.multilabel.model import MultiLabel
    from taer.persist.multilabel import load_head

    head = load_head(model)
    check_replaceable(out or model, by_head=True)
    if (examples is None) == (from_discovery is None):
        raise ValueError("expected EXAMPLES or --from-discovery FILE, one of them")
    if from_discovery is not None:
        reader = Reader(head, how.backbone, how.weights, how.text_column)
        _learn(head, _discovered(from_discovery, reader), classes, out or model)
        return
    if isinstance(head, MultiLabel):
        learn_labels(head, read_examples(str(examples), head, how).data, classes, separator, out or model)
        return
    _learn(head, read_examples(str(examples), head, how).data, classes, out or model)


def _discovered(path: Path, reader: Reader) -> FeatureSet:
    """The named groups of a discovery as training samples."""
    import numpy as np

    from taer.features import FeatureSet

    X, labels = named_samples(path, reader)
    names = sorted(set(labels))
    y = np.array([names.index(label) for label in labels], np.int64)
    return FeatureSet(X, y, X[:0], y[:0], tuple(names), name=path.stem)


def check_replaceable(out: Path, *, by_head: bool) -> None:
    """Raise if a file of another kind would be overwritten, because that is surely a mistake."""
    from taer.files import format_of
    from taer.persist.save import is_head

    if out.is_file() and (not is_head(out) if by_head else format_of(out)):
        raise ValueError(f"{out}: exists and is something else than what would be written; name another file")


def _learn(
    head: Head,
    data: FeatureSet,
    classes: str | None,
    out: Path,
    unknown: str | None = None,
    false_alarms: float = 0.05,
) -> None:
    """Learn one task, save the head and print a summary. With ``unknown``, also fit a novelty threshold."""
    import numpy as np

    from taer.heads.few import collected
    from taer.rows import select

    X, labels = training_part(data, classes, head)
    names = np.array(data.classes)
    samples = f"{counted(len(labels), 'sample')} of {counted(len(np.unique(labels)), 'class', 'es')}"
    had_threshold = hasattr(head, "threshold_")
    with stage(f"learning {samples}"), collected() as warned:
        head.partial_fit(X, labels)
        if unknown is not None:
            _keep_threshold(head, X, labels, unknown, false_alarms)
    if head.n_tasks_ == 1 and data.origin is not None:
        head.feature_origin_ = data.origin
    head.save(out)
    for warning in warned:
        print(f"taer: warning: {warning}", file=sys.stderr)
    if had_threshold and not hasattr(head, "threshold_"):
        print(
            "taer: warning: the novelty threshold was dropped, because it was fitted before this task; "
            "head.novelty_threshold(X) with held-out samples fits another",
            file=sys.stderr,
        )
    known = np.isin(names[data.test_y], head.classes_.astype(str))
    learned = f"{out}: {samples} learned as task {head.n_tasks_}"
    if known.any():
        test = select(data.test_x, np.flatnonzero(known))
        with stage(f"measuring on {len(test):,} test samples"):
            right = head.predict(test).astype(str) == names[data.test_y[known]]
        learned += f"; accuracy on the {len(test)} test samples of its {len(head.classes_)} classes "
        learned += f"{100 * right.mean():.2f} %"
        if unknown is not None:
            answered = head.predict(test, unknown=unknown).astype(str) != unknown
            learned += f"; {unknown} for {100 * (1 - answered.mean()):.2f} % of them"
            learned += f", accuracy on the others {100 * right[answered].mean():.2f} %" if answered.any() else ""
    print(learned)


def _keep_threshold(head: Head, X: Any, labels: np.ndarray, unknown: str, false_alarms: float) -> None:
    """Fit the threshold on what the head keeps or, if it keeps nothing, on a fifth held out from a second head."""
    import numpy as np
    from sklearn.base import clone

    from taer.rows import select

    if unknown in head.classes_.astype(str):
        raise ValueError(f"--unknown {unknown}: that is one of the classes")
    if head._own_novelty:
        head.novelty_threshold(false_alarms=false_alarms)
        return
    of_class = np.concatenate([np.flatnonzero(labels == label)[4::5] for label in np.unique(labels)])
    if not len(of_class):
        raise ValueError("--unknown: a threshold needs a class of five samples or more")
    rest = np.setdiff1d(np.arange(len(labels)), of_class)
    trial = clone(head).fit(select(X, rest), labels[rest])
    head.threshold_ = trial.novelty_threshold(select(X, of_class), false_alarms)


def training_part(data: FeatureSet, classes: str | None, head: Head) -> tuple[np.ndarray | Rows, np.ndarray]:
    """Training samples of the classes that the user chose, with labels in the type of the head's labels."""
    return _part(data, data.train_x, data.train_y, classes, head)


def held_out_part(data: FeatureSet, classes: str | None, head: Head) -> tuple[np.ndarray | Rows, np.ndarray]:
    """The same for test samples or, if there are none, for all samples."""
    if not len(data.test_y):
        return training_part(data, classes, head)
    return _part(data, data.test_x, data.test_y, classes, head)


def _part(
    data: FeatureSet, X: np.ndarray | Rows, y: np.ndarray, classes: str | None, head: Head
) -> tuple[np.ndarray | Rows, np.ndarray]:
    import numpy as np

    from taer.rows import select

    rows = np.flatnonzero(np.isin(y, _chosen(data, classes)))
    if not len(rows):
        raise ValueError(f"{data.name}: no {'training' if X is data.train_x else 'test'} samples of these classes")
    return select(X, rows), as_known(np.array(data.classes)[y[rows]], head)


def _chosen(data: FeatureSet, classes: str | None) -> list[int]:
    """Numbers of the classes that the user chose."""
    if classes is None:
        return list(range(len(data.classes)))
    first, colon, last = classes.partition(":")
    if colon and classes not in data.classes:
        try:
            chosen = list(range(len(data.classes)))[slice(int(first or 0), int(last or len(data.classes)))]
        except ValueError:
            raise ValueError(f"--classes {classes}: expected names, or a range of numbers such as 0:10") from None
    else:
        names = [name.strip() for name in classes.split(",") if name.strip()]
        if unknown := [name for name in names if name not in data.classes]:
            raise ValueError(f"--classes: {data.name} has no class {unknown[0]!r}")
        chosen = [data.classes.index(name) for name in names]
    if not chosen:
        raise ValueError(f"--classes {classes}: no class of {data.name}, which has {len(data.classes)}")
    return chosen


def as_known(names: np.ndarray, head: Head) -> np.ndarray:
    """Class names in the type of the head's labels: a head fitted in Python may have integer labels."""
    if not hasattr(head, "classes_") or head.classes_.dtype.kind == "U":
        return names
    try:
        return names.astype(head.classes_.dtype)
    except ValueError:
        raise ValueError(f"the head's labels are {head.classes_.dtype} and the file's are names") from None
