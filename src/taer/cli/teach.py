"""``taer teach``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taer.cli.app import SERVE, app
from taer.cli.wording import counted

if TYPE_CHECKING:
    from taer.client import Client

_TEXTS, _VECTORS, _IMAGES = 64, 1024, 16  # in one request, at most
_BYTES = 11_000_000  # of images or vectors in one request

# A label, and what the client sends of its examples in one request: texts=…, images=… or vectors=….
_Request = tuple[str, dict[str, Any]]


@app.command(rich_help_panel=SERVE)
def teach(
    url: Annotated[str, typer.Argument(metavar="URL", help="URL of a service, such as http://127.0.0.1:8000.")],
    examples: Annotated[
        Path,
        typer.Argument(
            metavar="EXAMPLES",
            help="A table with columns text and label, a folder with one subfolder of images per class, or a feature "
            "file, whose training samples are taught.",
        ),
    ],
    token: Annotated[str, typer.Option(envvar="TAER_TOKEN", help="The token of the service.")],
) -> None:
    """Teach a running service many examples at once.

    All examples are added, then learned as one task.
    """
    from taer.client import Client, ServiceError

    read = _reader(examples)
    with Client(url, token) as client:
        added, labels = 0, set()
        try:
            several = client.classes()["several_labels"]
            for label, items in read(client):
                added += len(client.add(label, **items)["ids"])
                labels.update(label.split(";") if several else [label])
            version = client.learn()
        except ServiceError as error:
            raise ValueError(
                f"{url}: {error} ({added} examples were added before and wait to be learned)"
            ) from None
    taught = f"{counted(added, 'example')} of {counted(len(labels - {''}), 'class', 'es')}"
    print(f"version {version['version']}: {taught}; {counted(version['classes'], 'class', 'es')} in all")


def _reader(path: Path) -> Callable[[Client], Iterator[_Request]]:
    """What gives the requests. A file that cannot be read is refused before anything is sent."""
    import numpy as np

    from taer.features import load_features
    from taer.features.sources.folder import images_below, labeled_images
    from taer.features.sources.texts import column_names, read_columns

    if path.is_dir() and images_below(path):
        images = labeled_images(path / "train" if (path / "train").is_dir() else path)
        return lambda client: _of_each(images, "images", _IMAGES, lambda image: image.stat().st_size)
    if path.is_file() and (path.suffix == ".csv" or (path.suffix == ".parquet" and "text" in column_names(path))):
        columns = read_columns(path, ["text", "label"], "label")
        rows = [(label, text) for label, text in zip(columns["label"], columns["text"], strict=True) if label]
        if skipped := len(columns["label"]) - len(rows):
            print(f"taer: {path}: {counted(skipped, 'row')} without a label left out", file=sys.stderr)
        return lambda client: _of_each(rows, "texts", _TEXTS, len)
    data = load_features(path)

    def vectors(client: Client) -> Iterator[_Request]:
        served = client.classes()["backbone"]
        if served and data.origin and data.origin.backbone != served["name"]:
            raise ValueError(f"{path}: features by {data.origin.backbone}, and the service has {served['name']}")
        rows = [(data.classes[label], row) for row, label in enumerate(data.train_y)]
        for label, items in _of_each(rows, "vectors", _VECTORS, lambda row: 4 * data.n_features):
            yield label, {"vectors": np.asarray(data.train_x[np.array(items["vectors"])], np.float32)}

    return vectors


def _of_each(
    pairs: Sequence[tuple[str, Any]], kind: str, most: int, size_of: Callable[[Any], int]
) -> Iterator[_Request]:
    """Requests with examples of one class each, as many as a request takes."""
    members: dict[str, list[Any]] = {}
    for label, item in pairs:
        members.setdefault(label, []).append(item)
    for label, items in members.items():
        some: list[Any] = []
        for item in items:
            if some and (len(some) == most or sum(map(size_of, some)) + size_of(item) > _BYTES):
                yield label, {kind: some}
                some = []
            some.append(item)
        yield label, {kind: some}
