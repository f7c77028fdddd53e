"""Tokens of a service: who may read, teach or administer it, and how much.

``tokens.json`` in the folder has the hash of each token, never the token itself. A running service notices a change
of the file at the next request.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from taer.files import written_whole
from taer.serve.store import only_one

Role = Literal["read", "teach", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)  # each may do what those before it may
Limit = Literal["requests", "examples", "bytes"]
SECONDS: Mapping[Limit, int] = {"requests": 60, "examples": 86_400, "bytes": 86_400}  # a limit is for so long
NAMED = {60: "minute", 86_400: "day"}
_FILE = "tokens.json"
_NAME = re.compile(r"[\w.@-]{1,50}")
_log = logging.getLogger("taer.serve")
Most = Annotated[int, Meta(ge=1)] | None


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A token as it is stored."""

    name: str
    role: Role
    sha256: str
    made: str
    requests: Most = None  # per minute
    examples: Most = None  # per day
    bytes: Most = None  # per day


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    tokens: list[Token]


class Meter:
    """How much of each limit is used, in windows that begin with the first use."""

    def __init__(self) -> None:
        self._used: dict[Limit, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def take(self, limit: Limit, count: int, most: int | None) -> int:
        """Use some; returns after how many seconds to try again if there is not so much left, else 0."""
        if most is None:
            return 0
        now = time.monotonic()
        with self._lock:
            start, used = self._used.get(limit, (now, 0))
            if now - start >= SECONDS[limit]:
                start, used = now, 0
            if used + count > most:
                return max(1, round(start + SECONDS[limit] - now))
            self._used[limit] = start, used + count
        return 0

    def give_back(self, limit: Limit, count: int) -> None:
        with self._lock:
            if limit in self._used:
                start, used = self._used[limit]
                self._used[limit] = start, max(0, used - count)


@dataclass(frozen=True)
class Grant:
    """A token that came with a request."""

    token: Token
    meter: Meter

    def may(self, role: Role) -> bool:
        return ROLES.index(self.token.role) >= ROLES.index(role)

    def most(self, limit: Limit) -> int | None:
        found: int | None = getattr(self.token, limit)
        return found

    def take(self, limit: Limit, count: int) -> int:
        return self.meter.take(limit, count, self.most(limit))


class Tokens:
    """The tokens of a folder, and the one of whoever started the service, which is an administrator's.

    With other tokens in place of that one, those are valid, too: a head among many has its own, and those for all.
    """

    def __init__(self, folder: Path, admin: str | Tokens) -> None:
        self._path = folder / _FILE
        self._others = admin if isinstance(admin, Tokens) else None
        self._admin = None if isinstance(admin, Tokens) else _started_with(admin)
        self._known: dict[str, Grant] = {}
        self._state: tuple[int, int, int] | None = None  # of the file that was read
        if self._others is None:  # the file of a head is read when its tokens are asked for
            self._read(self._look())  # a damaged file is told at the start

    def find(self, given: bytes) -> Grant | None:
        """The token, if it is valid now."""
        if self._others is not None and (found := self._others.find(given)) is not None:
            return found
        hashed = _hash(given)
        if self._admin is not None and hmac.compare_digest(hashed, self._admin.token.sha256):
            return self._admin
        if (state := self._look()) != self._state:
            try:
                self._read(state)
            except ValueError as error:
                _log.error("no token of the file is taken: %s", error)
                self._known, self._state = {}, state
        return self._known.get(hashed)

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _read(self, state: tuple[int, int, int] | None) -> None:
        meters = {grant.token.sha256: grant.meter for grant in self._known.values()}
        self._known = {
            token.sha256: Grant(token, meters.get(token.sha256) or Meter()) for token in stored(self._path.parent)
        }
        self._state = state


def _started_with(token: str) -> Grant:
    return Grant(Token("", "admin", _hash(token.encode()), ""), Meter())


def stored(folder: Path) -> list[Token]:
    """The tokens of a folder."""
    path = folder / _FILE
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder")
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Stored).tokens
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path}: cannot be read as tokens ({error}); delete it, and make the tokens again"
        ) from None


def add(folder: Path, name: str, role: Role, limits: Mapping[str, int | None]) -> str:
    """Make a token; returns it, and nobody can read it again."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r}: expected a name of at most 50 letters, digits and . _ @ -")
    if not folder.is_dir():  # to make it would keep a server of many heads from making a head of this name
        heads = sorted(path.parent.name for path in folder.parent.glob("*/taer.db"))
        has = f"; {folder.parent} has {', '.join(heads[:5])}{', …' if len(heads) > 5 else ''}" if heads else ""
        raise ValueError(f"{folder}: there is no such service or head{has}. Start or make it first")
    secret = secrets.token_urlsafe(24)
    with only_one(folder, "tokens", wait=True):
        known = stored(folder)
        if any(token.name == name for token in known):
            raise ValueError(f"there is a token {name} already; revoke it first, or take another name")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        _write(folder, [*known, Token(name, role, _hash(secret.encode()), now, **limits)])
    return secret


def revoke(folder: Path, name: str) -> None:
    with only_one(folder, "tokens", wait=True):
        known = stored(folder)
        if not any(token.name == name for token in known):
            names = ", ".join(token.name for token in known) or "none"
            raise ValueError(f"{folder} has no token {name}; it has {names}")
        _write(folder, [token for token in known if token.name != name])


def _write(folder: Path, tokens: list[Token]) -> None:
    with written_whole(folder / _FILE, sync=True, private=True) as partial:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(_Stored(tokens))) + b"\n")
        if os.geteuid() == 0:  # the service that reads it may run as another user
            owner = folder.stat()
            os.chown(partial, owner.st_uid, owner.st_gid)


def _hash(secret: bytes) -> str:
    """Tokens are random, so that nobody can find one by trying; a slow hash would only slow down each request."""
    return hashlib.sha256(secret).hexdigest()
