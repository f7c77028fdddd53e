"""Where a service listens, and under which names it answers."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class Access:
    """The options of ``taer serve`` about its address.

    Examples
    --------
    >>> Access("127.0.0.2", 8000, "secret").hosts
    ('127.0.0.2', '127.0.0.1', 'localhost', '[::1]')
    >>> Access("127.0.0.1", 8000, "secret", ["taer.example.org"]).is_public
    True
    """

    host: str
    port: int
    token: str
    public_names: Sequence[str] = ()  # names under which a proxy forwards requests from other machines

    def __post_init__(self) -> None:
        for name in self.public_names:
            if not re.fullmatch(r"[\w.-]+|\[[\da-fA-F:.]+\]", name):
                raise ValueError(
                    f"--public-name: expected a host name without scheme, port and path, such as taer.example.org; "
                    f"got {name}"
                )

    @property
    def name(self) -> str:
        """The host as part of a URL."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def is_public(self) -> bool:
        """Whether requests can come from other machines, directly or through a proxy."""
        return bool(self.public_names) or not self._is_local

    @property
    def hosts(self) -> tuple[str, ...] | None:
        """The host names to answer under; None for any."""
        if self._is_local:
            return tuple(dict.fromkeys([self.name, *self._lower_names, *LOCAL_NAMES]))
        return (*self._lower_names, *LOCAL_NAMES) if self.public_names else None

    @property
    def _lower_names(self) -> list[str]:
        return [name.lower().rstrip(".") for name in self.public_names]

    @property
    def _is_local(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
