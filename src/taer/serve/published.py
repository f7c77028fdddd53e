"""What a service publishes for its replicas: ``current.json`` in its folder says which version answers, and its hash.

The file of a version never changes, so a replica that has a file with this hash has the whole version.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from taer.files import written_whole
from taer.serve.database import StorageFailed
from taer.serve.serving import Serving
from taer.serve.store import Store, Version, version_file

NAME = "current.json"
_log = logging.getLogger("taer.serve")
Count = Annotated[int, Meta(ge=0)]


class Pointer(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag="taer-current/1"):
    """The version that answers. Version 0 is the empty one, which has no file."""

    name: str  # of the model for other programs; replicas have the same, whatever their folders are called
    version: Annotated[int, Meta(ge=0, lt=10**9)]
    sha256: str = ""
    bytes: Count = 0
    threshold: float | None = None  # of unknown; a replica has no examples to compute it from
    # What is promised about answers without a person, for the same reason.
    automation: dict[str, float] | None = None
    parent: Count = 0
    created: str = ""
    report: dict[str, Any] = {}
    replica: bool = False  # whether the folder is that of a replica

    @property
    def file(self) -> str:
        """Where the version is in the folder of the service."""
        return f"versions/{self.version:06d}.safetensors"

    @property
    def row(self) -> Version:
        return Version(self.version, self.parent, self.created, self.report)


def read(content: bytes) -> Pointer:
    """Raises ValueError if it is not a whole pointer."""
    try:
        return msgspec.json.decode(content, type=Pointer)
    except msgspec.DecodeError as error:
        raise ValueError(f"{NAME} is damaged, or not whole yet ({error})") from None


def write(folder: Path, pointer: Pointer) -> None:
    with written_whole(folder / NAME, sync=True) as partial:
        partial.write_bytes(msgspec.json.encode(pointer))


def publish(store: Store, serving: Serving, name: str) -> None:
    """Tell replicas which version answers. Never raises: if it fails, they stay with the version they have."""
    try:
        pointer = _pointer(store, serving, name)
        path = store.folder / NAME
        if not path.exists() or path.read_bytes() != msgspec.json.encode(pointer):
            write(store.folder, pointer)
    except (OSError, StopIteration) as error:
        said = error if isinstance(error, StorageFailed) else type(error).__name__
        _log.warning("version %d was not published, so replicas stay behind: %s", serving.version, said)


def _pointer(store: Store, serving: Serving, name: str) -> Pointer:
    if not serving.version:
        return Pointer(name=name, version=0)
    row = next(known for known in store.versions() if known.version == serving.version)
    sha256, size = hash_of(version_file(store.folder, serving.version))
    return Pointer(
        name=name,
        version=row.version,
        sha256=sha256,
        bytes=size,
        threshold=serving.threshold,
        automation=getattr(serving.head, "automation_", None),
        parent=row.parent,
        created=row.created,
        report=row.report,
    )


def hash_of(file: Path) -> tuple[str, int]:
    """The hash and the size of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest(), opened.tell()
