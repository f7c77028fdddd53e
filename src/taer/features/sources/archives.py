"""Published archives: from a path of the user's, or downloaded once and verified by checksum."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

from taer.extras import reason, require
from taer.files import written_whole
from taer.storage import cache_folder


def download(name: str, url: str, checksum: str, remedy: str) -> Path:
    """The file at ``url``, from the cache if possible; ``checksum`` is ``md5:…`` or ``sha256:…``."""
    pooch = require("pooch", "images")
    pooch.get_logger().setLevel("WARNING")
    try:
        path = Path(pooch.retrieve(url, None, fname=url.rpartition("/")[2], path=cache_folder() / name))
    except Exception as error:  # whatever the error is, the user needs the same advice
        raise ValueError(f"{name} could not be downloaded from {url} ({reason(error)}). {remedy}") from None
    algorithm, _, expected = checksum.partition(":")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, algorithm).hexdigest()
    if found != expected:
        path.unlink()
        raise ValueError(
            f"{name}: what {url} sent is damaged or has changed: "
            f"expected {algorithm} {expected}, found {found}. The file was removed; try again, or: {remedy}"
        )
    return path


def unpacked(archive: Path, name: str) -> Path:
    """The content of a tar archive, unpacked once into the cache."""
    state = archive.stat()
    key = hashlib.sha256(f"{archive.resolve()} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()[:16]
    folder = cache_folder() / name / key
    if not folder.exists():
        try:
            with written_whole(folder) as partial, tarfile.open(archive) as tar:
                tar.extractall(partial, filter="data")
        except (tarfile.TarError, EOFError) as error:
            raise ValueError(f"{archive}: not a whole tar archive ({error})") from None
    return folder
