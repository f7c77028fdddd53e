"""Heads in memory: each is loaded when it is asked, and those that were not asked for longest leave when memory is short.

Everything here runs on the event loop, except what is passed to a thread; so no locks are needed.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import resource
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette

from taer.answers import HeadEntry
from taer.serve.collector import set_aside
from taer.serve.connection import MAX_CONNECTIONS
from taer.serve.many.folder import Folder
from taer.serve.many.queue import Member, Queue
from taer.serve.service import Service
from taer.serve.serving import Conflict, Missing, Unavailable
from taer.serve.store import only_one
from taer.serve.tokens import Tokens

DELETE_SECONDS = 10  # for requests to a head that is to be deleted
_FILES_PER_HEAD = 5  # its database and that database's log, its lock, and one to spare
_OTHER_FILES = 2 * MAX_CONNECTIONS + 64
_LEAVING = "the head is being deleted or replaced; ask again"
_log = logging.getLogger("taer.serve")


@dataclass
class Loaded:
    """A head in memory, its application, its database and that one's log on disk, and how many requests it is answering."""

    service: Service
    app: Starlette
    database: tuple[int, int] | None
    log: tuple[int, int] | None
    requests: int = 0


class Heads:
    """The heads of a folder.

    Parameters
    ----------
    open_head : callable
        From a folder and a learner to the service of a head.
    make_app : callable
        From a service and the tokens of its head to its application.
    memory : int, optional
        Bytes of memory of this process above which heads leave it.
    """

    def __init__(
        self,
        folder: Path,
        tokens: Tokens,
        open_head: Callable[[Path, Member], Service],
        make_app: Callable[[Service, Tokens], Starlette],
        memory: int | None = None,
    ) -> None:
        self.folder = Folder(folder)
        self._lock = only_one(folder, "serve")
        self.folder.tidy()
        self.queue = Queue()
        self._all_tokens = tokens
        self._tokens: dict[str, Tokens] = {}  # they outlive the head in memory, with what is used of their limits
        self._open_head, self._make_app = open_head, make_app
        self._memory, self._most = memory, _most_open()
        self._loaded: dict[str, Loaded] = {}  # those that were not asked for longest first
        self._changing: dict[str, asyncio.Task[Any]] = {}  # heads that are being loaded, dropped, made or deleted
        self._opening = CapacityLimiter(2)  # others are answered meanwhile

    # Answering

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncIterator[Loaded]:
        """A head, which stays in memory inside. Raises Missing or Unavailable."""
        while not self._is_current(name, loaded := self._loaded.get(name)) or name in self._changing:
            if (change := self._changing.get(name)) is not None:
                await _end_of(change)
            elif loaded is not None:
                await asyncio.shield(self._change(name, self._leave(name, loaded)))
            elif name in self.folder:
                await asyncio.shield(self._change(name, self._load(name)))
            else:
                raise Missing(f"there is no head {name[:100]}")
        assert loaded is not None
        self._loaded[name] = self._loaded.pop(name)
        loaded.requests += 1
        try:
            yield loaded
        finally:
            loaded.requests -= 1

    def tokens(self, name: str) -> Tokens:
        """The tokens of a head, and those for all heads."""
        if name not in self._tokens:
            if name not in self.folder:
                return self._all_tokens
            self._tokens[name] = Tokens(self.folder[name], self._all_tokens)
        return self._tokens[name]

    @property
    def n_loaded(self) -> int:
        return len(self._loaded)

    def listed(self, after: str, limit: int) -> list[HeadEntry]:
        names = [name for name in self.folder.names() if name > after][:limit]
        return [{**self.folder.entry(name), "loaded": name in self._loaded} for name in names]

    # Loading and dropping

    async def _load(self, name: str) -> None:
        path = self.folder[name]
        async with self._opening:
            await self.make_room()
            try:
                database = _identity(path / "taer.db")
                service = await run_sync(self._open_head, path, Member(path, self.queue))
            except (ValueError, OSError) as error:
                _log.error("the head %s cannot be opened: %s", name, error)
                raise Unavailable(f"the head {name} cannot be opened; the log of the service says why") from None
            for notice in service.notices:
                _log.warning("%s: %s", name, notice)
            log = _identity(path / "taer.db-wal")
            self._loaded[name] = Loaded(service, self._make_app(service, self.tokens(name)), database, log)

    def _is_current(self, name: str, loaded: Loaded | None) -> bool:
        """Whether a head is in memory as it is on disk: a person may have put another one, or a backup, in its place."""
        return loaded is not None and loaded.database == _identity(self.folder[name] / "taer.db")

    async def _leave(self, name: str, loaded: Loaded) -> None:
        """Drop a head that is not on disk any more."""
        if not await self._unused(name, loaded):
            raise Unavailable(f"the folder of {name} was replaced, and the old one is still being asked; try again")
        _log.warning("%s: its folder was removed or replaced while it was served", name)
        await self._drop(name)
        log = self.folder[name] / "taer.db-wal"
        if loaded.log == _identity(log):  # SQLite would add it to the new database
            log.unlink(missing_ok=True)

    async def _unused(self, name: str, loaded: Loaded) -> bool:
        """Wait until no request uses a head; returns False if that takes too long.

        What it learns is given up, and requests whose bodies are still arriving are ended: they may take a minute.
        """
        end = time.monotonic() + DELETE_SECONDS
        while loaded.requests and time.monotonic() < end:
            for upload in list(loaded.app.state.arriving):
                upload.drop(_LEAVING)
            await run_sync(self.queue.cancel, self.folder[name])
            await asyncio.sleep(0.02)
        return not loaded.requests

    async def make_room(self) -> None:
        """Drop heads until there is room for one more, or none is left that is not being asked."""
        while self._is_short():
            idle = [name for name in self._loaded if self._is_idle(name)]
            if not idle:
                return
            for name in idle[: 1 + len(idle) // 16]:  # asking the system for each would take longer than dropping
                if self._is_idle(name):
                    await self._change(name, self._drop(name))
            set_aside()  # also of heads that were in memory at the last call
            _give_back()

    def _is_idle(self, name: str) -> bool:
        return name in self._loaded and not self._loaded[name].requests and name not in self._changing

    def _is_short(self) -> bool:
        return len(self._loaded) >= self._most or (self._memory is not None and used_memory() > self._memory)

    async def _drop(self, name: str) -> None:
        loaded = self._loaded.pop(name)
        await run_sync(loaded.service.close)

    def _change(self, name: str, change: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something during which nobody else gets or changes the head."""

        async def alone() -> None:
            try:
                await change
            finally:
                del self._changing[name]  # here, and not when others are told: who asks in between would not let go

        task = asyncio.create_task(alone())
        self._changing[name] = task
        return task

    async def save(self) -> None:
        """Write to disk what may be lost, and drop heads if memory is short."""
        for name, loaded in list(self._loaded.items()):
            if self._loaded.get(name) is not loaded or name in self._changing:
                continue  # it left meanwhile
            if self._is_current(name, loaded):
                loaded.requests += 1  # so that it stays open
                try:
                    await run_sync(loaded.service.save)
                except Exception:  # the others are saved all the same
                    _log.exception("%s: not everything was saved", name)
                finally:
                    loaded.requests -= 1
        await self.make_room()

    def close(self) -> None:
        for loaded in self._loaded.values():
            loaded.service.close()
        self.queue.close()
        self._lock.close()

    # Making and deleting

    async def make(self, name: str, source: str | None = None) -> None:
        """Make a head, empty or as a copy of another."""
        await self._free(name)
        if source is None:
            self.folder.check_free(name)
            await self._change(name, run_sync(self.folder.make, name))
            return
        async with self.lease(source) as loaded:
            await self._free(name)
            self.folder.check_free(name)
            await self._change(name, run_sync(self._copy, name, loaded.service))

    def _copy(self, name: str, source: Service) -> None:
        with source.learner.exclusively():  # nothing is learned or purged meanwhile
            self.folder.make(name, source.store.folder, source.serving)

    async def delete(self, name: str) -> None:
        """Delete a head for good. What it learns is given up; requests that it is answering are waited for."""
        await self._free(name)
        if name not in self.folder:
            raise Missing(f"there is no head {name[:100]}")
        await self._change(name, self._delete(name))

    async def _delete(self, name: str) -> None:
        loaded = self._loaded.get(name)
        if loaded is not None:
            if not await self._unused(name, loaded):
                raise Conflict(f"{name} is still being asked; nothing was changed, try again")
            await self._drop(name)
        await run_sync(self.folder.remove, name)
        self._tokens.pop(name, None)

    async def _free(self, name: str) -> None:
        """Wait until nobody changes the head."""
        while (change := self._changing.get(name)) is not None:
            with suppress(Unavailable):
                await _end_of(change)


async def _end_of(change: asyncio.Task[None]) -> None:
    """Wait for what another request does to a head, and raise only if the head cannot be opened."""
    try:
        await asyncio.shield(change)
    except Unavailable:
        raise
    except Exception as error:  # whoever began it is told
        _log.debug("a change of a head ended with %s", error)


def _identity(file: Path) -> tuple[int, int] | None:
    """What a file has in common with no other, whatever their names are; None if there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def used_memory() -> int:
    """The resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _give_back() -> None:
    """Return free memory to the system, which the C library would keep; other libraries than GNU's have no need of it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _most_open() -> int:
    """How many heads can be open at once: each has files, and the system limits their number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(hard, 1 << 16) if hard != resource.RLIM_INFINITY else 1 << 16
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(1, (max(soft, most) - _OTHER_FILES) // _FILES_PER_HEAD)
