"""Heads on the Hugging Face hub: one ``.safetensors`` file, and a model card that is written from the head."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from taer import __version__
from taer.extras import reason, require
from taer.files import open_safetensors, written_whole
from taer.heads import Head, name_of
from taer.metrics import expected_calibration_error
from taer.persist.save import save

SCHEME = "hf:"
FILE = "head.safetensors"
_ADDRESS = re.compile(r"(?:hf:)?([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)
_LICENSE = re.compile(r"[\w.+-]+", re.ASCII)
_MANY = 50  # classes that a card lists


class Address(NamedTuple):
    """A head on the hub, at a commit, tag or branch.

    Examples
    --------
    >>> Address.of("hf:owner/name@v1")
    Address(repository='owner/name', revision='v1')
    >>> str(Address("owner/name", "v1"))
    'hf:owner/name@v1'
    """

    repository: str
    revision: str | None = None

    @classmethod
    def of(cls, text: str) -> Address:
        if not (found := _ADDRESS.fullmatch(text)):
            raise ValueError(f"{text}: expected hf:OWNER/NAME or hf:OWNER/NAME@REVISION")
        return cls(found[1], found[2])

    def __str__(self) -> str:
        return f"{SCHEME}{self.repository}" + (f"@{self.revision}" if self.revision else "")


def push(
    head: Head,
    repository: str,
    *,
    test: tuple[ArrayLike, Sequence[Any] | np.ndarray] | None = None,
    license: str | None = None,
    private: bool | None = None,
    message: str | None = None,
) -> str:
    """Upload a head and its card as one commit; returns the address with that commit. See :meth:`Head.push_to_hub`."""
    address, hub = Address.of(repository), require("huggingface_hub", "hf")
    card = model_card(head, address.repository, test, license)
    with tempfile.TemporaryDirectory() as place, _quietly():
        save(head, Path(place) / FILE)
        try:
            api = hub.HfApi(library_name="taer", library_version=__version__)
            api.create_repo(address.repository, private=private, exist_ok=True)
            done = api.create_commit(
                address.repository,
                [
                    hub.CommitOperationAdd(FILE, Path(place) / FILE),
                    hub.CommitOperationAdd("README.md", card.encode()),
                ],
                commit_message=message or f"{name_of(type(head))} with {len(head.classes_)} classes",
                revision=address.revision,
            )
        except Exception as error:  # the hub fails in many ways
            raise ValueError(f"{address}: could not be uploaded ({_told(error)})") from None
    return str(Address(address.repository, done.oid))


def fetch(text: str) -> tuple[Path, Address]:
    """The file of a head in the cache of the hub, downloaded if it is not there, and its address with the commit."""
    address, hub = Address.of(text), require("huggingface_hub", "hf")
    with _quietly():
        try:
            problem = _unreachable(address)
            path = Path(
                hub.hf_hub_download(
                    address.repository, FILE, revision=address.revision, local_files_only=problem is not None
                )
            )
        except Exception as error:
            told = _told(problem or error)
            raise ValueError(f"{address}: no head could be downloaded from the hub ({told})") from None
    return path, Address(address.repository, path.parent.name)  # the cache names folders after commits


def _unreachable(address: Address) -> Exception | None:
    """Why the hub does not answer at all; asked once, while a download would try for half a minute."""
    hub = require("huggingface_hub", "hf")
    try:
        hub.get_hf_file_metadata(hub.hf_hub_url(address.repository, FILE, revision=address.revision))
    except Exception as error:
        return None if _status(error) else error
    return None


def _status(error: Exception) -> int | None:
    """The status with which the hub answered; None if it did not answer."""
    return getattr(getattr(error, "response", None), "status_code", None)


def _told(error: Exception) -> str:
    """Why a request to the hub failed, and what can be done."""
    host, status = require("huggingface_hub", "hf").constants.ENDPOINT, _status(error)
    if status is None:
        return f"{host} could not be reached: {reason(error)}"
    return f"{reason(error)}{'; see hf auth login' if status in (401, 403) else ''}"


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the log of the hub's client: what matters is in the error."""
    log = logging.getLogger("huggingface_hub")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def pull(text: str, out: Path) -> Address:
    """Download a head to a file, in whose header the commit is recorded; returns the address with that commit."""
    from safetensors.numpy import save_file

    path, address = fetch(text)
    with open_safetensors(path, f"{address}: not a saved head, or truncated") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    with written_whole(out, sync=True) as partial:
        save_file(tensors, partial, metadata=metadata | {"source": str(address)})
    return address


def source_of(path: Path) -> str | None:
    """The commit that a file was pulled from."""
    with open_safetensors(path, f"{path}: not a saved head, or truncated") as file:
        found: str | None = (file.metadata() or {}).get("source")
    return found


def model_card(
    head: Head,
    repository: str,
    test: tuple[ArrayLike, Sequence[Any] | np.ndarray] | None = None,
    license: str | None = None,
) -> str:
    """The text of ``README.md``: what the head knows, what it promises, what was measured, and how to use it."""
    if license is not None and not _LICENSE.fullmatch(license):
        raise ValueError(f"license: expected the name that the hub has for it, such as apache-2.0, got {license!r}")
    labels = [_inline(str(label)) for label, _ in head.learning_order_]
    more = f", and {len(labels) - _MANY} more" if len(labels) > _MANY else ""
    front = [
        "library_name: taer",
        "tags: [taer, continual-learning]",
        *([f"license: {license}"] if license else []),
    ]
    lines = [
        "---",
        *front,
        "---",
        "",
        f"# {repository}",
        "",
        f"A classifier of {len(labels)} classes on frozen features: the head `{name_of(type(head))}` of taer "
        f"{__version__}. It can go on learning new classes.",
        "",
        "## Use",
        "",
        "```python",
        "import taer",
        "",
        f'head = taer.load("hf:{repository}")  # add @REVISION to pin a commit',
        f"head.predict(X)  # X: rows of {head.n_features_in_} features",
        "```",
        "",
        "## Features",
        "",
        *_features(head),
        "",
        "## Classes",
        "",
        f"In order of learning, in {head.n_tasks_} tasks: {', '.join(labels[:_MANY])}{more}.",
        "",
        "## Promises",
        "",
        *_promises(head),
        "",
        "## Measured",
        "",
        *_measured(head, test),
        "",
        "## What is inside",
        "",
        f"`{FILE}` has numbers and JSON; loading it executes nothing. {_KEPT[type(head).card.keeps]} "
        "The names of the classes are in it. "
        + (f"License: {license}." if license else "No license was given; ask the owner before you use it."),
        "",
    ]
    return "\n".join(lines)


_KEPT = {
    "nothing": "It keeps no samples.",
    "statistics": "It keeps statistics of the training features and no samples.",
    "exemplars": "It keeps features of some training samples.",
    "everything": "It keeps the features of all training samples.",
}


def _inline(text: str) -> str:
    """A name that cannot be taken for markup."""
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"


def _features(head: Head) -> list[str]:
    if (origin := getattr(head, "feature_origin_", None)) is None:
        return [f"{head.n_features_in_} numbers per sample. The backbone behind them was not recorded."]
    facts = {"backbone": origin.backbone, "weights": origin.weights, "preprocessing": origin.preprocess}
    return [f"- {name}: {_inline(value)}" for name, value in facts.items() if value]


def _promises(head: Head) -> list[str]:
    found = [f"- {name}: {value}" for name, value in type(head).card.facts().items()]
    if (kept := getattr(head, "automation_", None)) is not None:
        found.append(
            f"- answers that need no person: at most {100 * kept['errors']:g} % of them are wrong, with a confidence of "
            f"{100 * kept['confidence']:g} %"
        )
    return found


def _measured(head: Head, test: tuple[ArrayLike, Sequence[Any] | np.ndarray] | None) -> list[str]:
    if test is None:
        return ["Nothing: no test samples were given when it was uploaded."]
    X, y = np.asarray(test[0]), np.asarray(test[1])
    places = np.searchsorted(head.classes_, y)
    known = head.classes_[np.minimum(places, len(head.classes_) - 1)] == y
    if not known.all():
        raise ValueError(f"test: {str(y[~known][0])!r} is the label of a sample and not a class of the head")
    error = expected_calibration_error(head.predict_proba(X), places)
    return [
        f"On {len(y):,} test samples of {len(np.unique(y))} classes, when it was uploaded:",
        "",
        "| accuracy | expected calibration error |",
        "|---:|---:|",
        f"| {100 * head.score(X, y):.1f} % | {100 * error:.1f} % |",
    ]
