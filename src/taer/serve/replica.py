"""``taer serve DIR --follow SOURCE``: a service that only answers, with the version that another service learned.

A new version is taken over whole or not at all: its file is copied under another name, compared with the published
hash, loaded, and only then put in the place of the old version, in one transaction and one assignment. Whatever fails
leaves the old version answering, and is tried again.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypedDict

import msgspec

from taer.extras import reason, require
from taer.files import make_folder, written_whole
from taer.heads import Head
from taer.persist.save import load
from taer.serve import published
from taer.serve.api import Api
from taer.serve.gate import Counters
from taer.serve.inputs import Backbone
from taer.serve.published import Pointer
from taer.serve.service import Service
from taer.serve.serving import Serving
from taer.serve.store import version_file
from taer.serve.trust import promised
from taer.storage import is_url

EVERY = 2.0  # seconds between two looks at the source
REFUSAL = "this is a replica, which only answers; send this to the service that it follows"
_log = logging.getLogger("taer.serve")


class Source:
    """The folder of the service that learns, or a copy of it: a path, or a URL of fsspec."""

    def __init__(self, place: str) -> None:
        self._place = place.rstrip("/")
        self._remote = require("fsspec", "cluster") if is_url(place) else None

    def pointer(self) -> Pointer:
        try:
            if self._remote is None:
                content = Path(self._place, published.NAME).read_bytes()
            else:
                files, inner = self._remote.url_to_fs(self._place)
                files.invalidate_cache()
                content = files.cat_file(f"{inner}/{published.NAME}")
        except Exception as error:  # every store has errors of its own
            raise ValueError(f"the source cannot be read ({_named(error)})") from None
        return published.read(content)

    def has_database(self) -> bool:
        """Whether the source is the folder of a service, even if that has published nothing."""
        try:
            if self._remote is None:
                return Path(self._place, "taer.db").exists()
            files, inner = self._remote.url_to_fs(self._place)
            return bool(files.exists(f"{inner}/taer.db"))
        except Exception:  # as above; why the source cannot be read is told anyway
            return False

    def heads(self) -> list[str]:
        """The heads inside, if the source has many instead of being one."""
        try:
            if self._remote is None:
                return sorted(path.parent.name for path in Path(self._place).glob(f"*/{published.NAME}"))
            files, inner = self._remote.url_to_fs(self._place)
            return sorted(path.split("/")[-2] for path in files.glob(f"{inner}/*/{published.NAME}"))
        except Exception:
            return []

    def copy(self, pointer: Pointer, to: Path) -> None:
        """Copy the file of a version. Raises ValueError if that is not possible, or it is not the published one."""
        try:
            if self._remote is None:
                shutil.copyfile(Path(self._place, pointer.file), to)
            else:
                files, inner = self._remote.url_to_fs(self._place)
                files.get_file(f"{inner}/{pointer.file}", str(to))
        except Exception as error:
            raise ValueError(f"version {pointer.version} cannot be copied ({_named(error)})") from None
        if published.hash_of(to) != (pointer.sha256, pointer.bytes):
            raise ValueError(f"the file of version {pointer.version} is not whole yet, or damaged")


def _named(error: Exception) -> str:
    return "no such file" if isinstance(error, FileNotFoundError) else reason(error)


class Following(TypedDict):
    version: Annotated[int, "The version that answers."]
    seconds: Annotated[float, "Since the source was read, and had no other version."]
    problem: Annotated[str | None, "Why a newer version was not taken over, or the source not read."]


class Replica(Service):
    """A service that follows another one.

    Parameters
    ----------
    folder : Path
        The replica's own folder, with a copy of the version that answers. Created if it does not exist.
    source : str
        The folder of the service that learns, or a copy of it; a path or a URL.
    backbone : Backbone, optional
        Backbone for images or texts; by default the one recorded in the first head, from ``find``.
    """

    def __init__(
        self,
        folder: Path,
        source: str,
        backbone: Backbone | None = None,
        find: Callable[[str, Head], Backbone] | None = None,
    ) -> None:
        if not is_url(source) and Path(source).resolve() == folder.resolve():
            raise ValueError(f"--follow {source}: is the replica's own folder; give it another one")
        self._source = Source(source)
        self._find = find
        self.problem: str | None = None
        self._seen = time.monotonic()
        self._stopped = threading.Event()
        self._looking = threading.Thread(target=self._look_again, daemon=True)
        is_new = not folder.exists()
        self._taken = _own(folder)
        super().__init__(folder, backbone)
        try:
            self._begin_with(self.serving)
        except ValueError as error:
            self.close()
            if is_new:
                shutil.rmtree(folder)
            raise ValueError(f"--follow {source}: {error}") from None

    def _begin_with(self, own: Serving) -> None:
        """Answer with what was taken over before, then look at the source, which is needed only the first time."""
        if own.head is not None:
            self._fit(own.head)
            self._serving = self._served(own.version, own.head, self._taken)
        self.problem = self._update()
        if self.problem is not None and self.serving.head is None:
            if heads := self._source.heads():
                raise ValueError(f"has many heads; name one of its heads, such as {heads[0]}")
            if self._source.has_database():
                raise ValueError(
                    f"{self.problem}. The service there writes {published.NAME} when it starts, and one of --many when "
                    "the head is asked: start or ask it once"
                )
            raise ValueError(f"{self.problem}. Expected the folder of a taer serve, or a whole copy of it")
        if self.problem is not None:
            self.notices.append(f"version {self.serving.version} answers: {self.problem}")

    def start(self) -> None:
        """Look at the source again and again."""
        self._looking.start()

    @property
    def name(self) -> str:
        return self._taken.name  # so that all replicas behind a proxy have one

    def close(self) -> None:
        if self._looking.is_alive():
            self._stopped.set()
            self._looking.join(EVERY)
        super().close()

    def following(self) -> Following:
        return {"version": self.serving.version, "seconds": self.age, "problem": self.problem}

    @property
    def age(self) -> float:
        """Seconds since the source was read, and had no other version."""
        return round(time.monotonic() - self._seen, 3)

    def _look_again(self) -> None:
        while not self._stopped.wait(EVERY):
            self.look()

    def look(self) -> None:
        """Take over what the source has, if it is new. Never raises: the old version answers until then."""
        problem = self._update()
        if problem and problem != self.problem:
            _log.warning("version %d goes on answering: %s", self.serving.version, problem)
        self.problem = problem

    def _update(self) -> str | None:
        """The same; returns why nothing could be taken over."""
        try:
            found = msgspec.structs.replace(self._source.pointer(), replica=True)
            if found != self._taken:
                self._take(found)
                _log.info("version %d answers", found.version)
            self._seen = time.monotonic()
        except (OSError, ValueError) as error:
            return str(error)
        except Exception:  # a thread that ends would leave the replica behind for ever
            _log.exception("the source could not be followed")
            return "something failed inside the service; its log says what"
        return None

    def _take(self, found: Pointer) -> None:
        head: Head | None = None
        if found.version:
            with written_whole(version_file(self.store.folder, found.version), sync=True) as partial:
                self._source.copy(found, partial)
                head = _loaded(partial, found.version)
                self._fit(head)
        serving = self._served(found.version, head, found)
        self.store.become(found.row)
        with self._memory:
            self._serving = serving
        published.write(self.store.folder, found)
        self._taken = found

    def _fit(self, head: Head) -> None:
        """Check the backbone, or find it. Raises ValueError if the head has learned features of another one."""
        origin = getattr(head, "feature_origin_", None)
        if self.backbone is not None:
            head._check_origin(self.backbone.origin)
        elif origin is not None and self._find is not None:
            find, self._find = self._find, None  # once; a person who installs it starts the replica again
            try:
                self.backbone = find(origin.backbone, head)
            except ValueError as error:
                self.notices.append(
                    f"takes vectors, no images or texts, because the head's backbone is not here: {error}"
                )

    def _served(self, version: int, head: Head | None, pointer: Pointer) -> Serving:
        if pointer.version != version:
            return Serving.of(version, head, None)
        if head is not None and pointer.automation is not None:
            head._restore({"automation_": pointer.automation})
        found = Serving.of(version, head, pointer.threshold)
        return replace(found, promise=None if head is None else promised(head, [], None))

    def _publish(self) -> None:
        """What was taken over is published as it came, so that a replica can be followed, too."""


def _loaded(file: Path, version: int) -> Head:
    try:
        return load(file)
    except ValueError as error:
        raise ValueError(f"version {version}: {str(error).removeprefix(f'{file}: ')}") from None


def _own(folder: Path) -> Pointer:
    """What a replica had taken over before. Raises ValueError if this is the folder of a service that learns."""
    try:
        pointer = published.read((folder / published.NAME).read_bytes())
    except FileNotFoundError:
        pointer = None
    if pointer is None and not (folder / "taer.db").exists():
        make_folder(folder)
        pointer = Pointer(name="", version=0, replica=True)  # until the source was read
        published.write(folder, pointer)
    if pointer is None or not pointer.replica:
        raise ValueError(
            f"{folder}: has versions of its own; a replica needs an empty folder, or that of a replica"
        )
    return pointer


def add_replica(api: Api, replica: Replica, counters: Counters) -> None:
    def following() -> Following:
        """Which version a replica answers with, and whether it is up to date."""
        return replica.following()

    api.add("GET", "/replica", following, tag="watch")
    counters.watch(
        "taer_source_seconds", "Time since the source was read and had nothing new.", lambda: replica.age
    )
