"""Heads on disk: one ``.safetensors`` file with the whole state of a head, without pickle.

Arrays are tensors; everything else is JSON in the header. The header's metadata has three strings:
``format`` = ``taer-head/4``, ``head`` (JSON: name, parameters, classes in order of learning, versions, state) and
``sha256`` (of that JSON and of all tensors). A value that JSON lacks is an object with one key that starts with
``$``; dictionaries are lists of pairs, so no key can be mistaken for one. Heads and the values in them have names that
do not depend on Python modules.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from taer import __version__
from taer.files import format_of, open_safetensors, written_whole
from taer.heads import HEADS, Head, name_of
from taer.heads.closed_form.derived import Derived
from taer.heads.fitted import declared
from taer.heads.params import check_params
from taer.heads.validation import generator
from taer.persist.encoding import Decoder, Encoder, decode_all

FORMAT = "taer-head/4"
PIPELINE = "taer-pipeline/1"
MULTI_LABEL = "taer-multi-label/1"
T = TypeVar("T")


def save(head: Head, path: str | os.PathLike[str]) -> None:
    """Write a fitted head to disk, atomically.

    Examples
    --------
    >>> import tempfile, taer
    >>> sketches = taer.load_features()
    >>> first = sketches.train_y < 5
    >>> head = taer.TaER(random_state=0).partial_fit(sketches.train_x[first], sketches.train_y[first])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     head.save(folder + "/five.safetensors")
    ...     same = taer.load(folder + "/five.safetensors")
    >>> bool((same.predict_proba(sketches.test_x) == head.predict_proba(sketches.test_x)).all())
    True
    """
    write_described(path, FORMAT, *describe(head))


def write_described(
    path: str | os.PathLike[str], format: str, tensors: dict[str, np.ndarray], header: Mapping[str, Any]
) -> None:
    """Write tensors and a header, with a checksum."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    text = json.dumps(header, ensure_ascii=False)
    metadata = {"format": format, "head": text, "sha256": checksum(text, tensors)}
    try:
        with written_whole(path, sync=True) as unfinished:
            save_file(tensors, unfinished, metadata=metadata)
    except SafetensorError as error:
        failed = OSError(f"{path}: cannot be written ({error})")
        if known := re.search(r"os error (\d+)", str(error)):
            failed.errno = int(known[1])  # so that a full disk is told from others
        raise failed from None


def load(path: str | os.PathLike[str]) -> Head:
    """Load a head that ``save`` wrote. Its scores have the same bits, and it can go on learning.

    Nothing in the file is executed. A file that is truncated, altered, inconsistent, of another kind or of a newer format
    raises ``ValueError``. A head class of your own is found if its module has been imported, or if its package offers it
    in the entry point group ``taer.heads``.
    """
    return read_described(path, READERS)


def read_described(path: str | os.PathLike[str], readers: Mapping[str, Callable[..., T]]) -> T:
    """The header and tensors of a file, verified by checksum and decoded by the reader of the file's format."""
    path = Path(path)
    if str(path).startswith("hf:"):
        name = str(path).removeprefix("hf:")
        raise ValueError(f"{path}: is on the hub; download it first: taer pull {name} --out head.safetensors")
    if not path.is_file():
        raise ValueError(f"{path}: no such file" if not path.exists() else f"{path}: not a file")
    metadata, tensors = _read(path, tuple(readers))
    text = metadata["head"]
    if metadata.get("sha256") != checksum(text, tensors):
        raise ValueError(f"{path}: the file was altered: its checksum does not fit its contents")
    try:
        return readers[metadata["format"]](json.loads(text), tensors)
    except ValueError as error:
        raise ValueError(f"{path}: not a valid head: {str(error)[:500]}") from None
    except RecursionError:
        raise ValueError(f"{path}: not a valid head: its header is nested too deeply") from None
    except Exception as error:  # a header with the right checksum can still have any content
        raise ValueError(
            f"{path}: not a valid head: its header is not one that taer writes ({type(error).__name__}: {str(error)[:500]})"
        ) from None


def is_head(path: str | os.PathLike[str]) -> bool:
    """Whether the header of a file is that of a saved head, of any version."""
    return format_of(path).startswith(("taer-head/", "taer-multi-label/"))


def _read(path: Path, formats: Sequence[str]) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    refusal = f"{path}: not a saved head, or truncated"
    try:
        with open_safetensors(path, refusal) as file:
            metadata = file.metadata() or {}
            found = metadata.get("format", "")
            if found == PIPELINE and found not in formats:
                raise ValueError(
                    f"{path}: a pipeline, not a head alone; taer.load reads it, and taer.load(path)[-1].save(name) writes "
                    "its head for the commands and the service"
                )
            if found == MULTI_LABEL and found not in formats:
                raise ValueError(
                    f"{path}: a head of several labels per sample, which only fit, learn, predict and serve take"
                )
            if found.startswith("taer-head/") and found not in formats:
                raise ValueError(
                    f"{path}: written by another version of taer (format {found[:40]!r}); this one reads {FORMAT}"
                )
            if found not in formats or "head" not in metadata:
                raise ValueError(f"{path}: not a saved head: its header lacks format = {FORMAT}")
            return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except ValueError:
        raise
    except Exception as error:  # a type that numpy lacks raises other errors
        raise ValueError(f"{refusal} ({error})") from None


def describe(head: Head) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The tensors of a head, and a header with everything else."""
    head = copy.copy(head)  # a consistent state, even if another thread teaches it now
    if not hasattr(head, "classes_"):
        raise ValueError(f"this {type(head).__name__} has learned nothing yet, so there is nothing to save")
    params, state = {item.name for item in fields(head)}, head._state()
    stored = params | declared(type(head)).keys()
    if stray := [
        name for name, value in vars(head).items() if name not in stored and not isinstance(value, Derived)
    ]:
        raise ValueError(
            f"{type(head).__name__} cannot be saved: its attribute {stray[0]!r} would be lost, as no 'fitted' declares it"
        )
    try:
        head._restore({})
    except ValueError as error:
        raise ValueError(f"this {type(head).__name__} cannot be saved, as no one could load it: {error}") from None
    name = name_of(type(head))
    if "<locals>" in name:
        raise ValueError(f"{type(head).__name__} cannot be saved: define the class at the top of a module")
    encoder = Encoder()
    return encoder.tensors, {
        "name": name,
        "params": {name: encoder.encode(getattr(head, name), f"params.{name}") for name in sorted(params)},
        "label_type": head.classes_.dtype.name if head.classes_.dtype.kind != "U" else "string",
        "tasks": _tasks(head),
        "versions": {"taer": __version__, "numpy": np.__version__, "python": sys.version.split()[0]},
        "state": {name: encoder.encode(value, name) for name, value in state.items()},
    }


def restored(header: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Head:
    """The inverse of :func:`describe`."""
    kind = kind_of(header["name"])
    decode = Decoder(tensors).decode
    params, state = decode_all(decode, header["params"]), decode_all(decode, header["state"])
    if params.keys() != {item.name for item in fields(kind)}:
        raise ValueError(f"its parameters are not those of {header['name']}")
    head = kind(**params)
    check_params(head)
    generator(head.random_state)
    attributes = declared(kind)  # no other name is set: one such as __dict__ would replace the head
    if unknown := [name for name in state if name not in attributes]:
        raise ValueError(f"{unknown[0][:80]!r} is not the name of a fitted attribute")
    head._restore(state)
    if len(header["tasks"]) != head.n_tasks_ or header["tasks"] != _tasks(head):
        raise ValueError("its tasks are not those in which its classes were learned")
    return head


READERS: dict[str, Callable[..., Head]] = {FORMAT: restored}


def _tasks(head: Head) -> list[list[Any]]:
    """The classes of each task, by the task in which they were first seen."""
    return [
        [label for label, task in head.learning_order_ if task == number + 1] for number in range(head.n_tasks_)
    ]


def kind_of(name: str) -> type[Head]:
    """A head class by its name. An import path works only if its module is loaded: a file must not import anything."""
    if ":" in name:
        module, _, attribute = name.partition(":")
        kind = getattr(sys.modules.get(module), attribute, None)
    else:
        kind = HEADS.get(name)
    if not isinstance(kind, type) or not issubclass(kind, Head):
        raise ValueError(
            f"it is a head of the class {name[:100]!r}, which is not one of ours; import the module that defines it first"
        )
    return kind


def checksum(header: str, tensors: Mapping[str, np.ndarray]) -> str:
    """The hash of the whole content of a file."""
    digest = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()
