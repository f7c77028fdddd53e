"""``taer serve``: where it listens, under which names it answers, and how it starts."""

from __future__ import annotations

import ipaddress
import re
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from threadpoolctl import threadpool_limits

from taer.heads import Head
from taer.multilabel.model import MultiLabel
from taer.persist.multilabel import load_head
from taer.serve import traces
from taer.serve.app import LOCAL_NAMES, create_app
from taer.serve.backbones import find
from taer.serve.collector import set_aside
from taer.serve.connection import MAX_CONNECTIONS, Connection
from taer.serve.inbox import Bounds
from taer.serve.inputs import Backbone
from taer.serve.labels import LabelService, has_several
from taer.serve.learner import Learner
from taer.serve.replica import Replica
from taer.serve.service import Service
from taer.serve.staging import Promote

STOP_SECONDS = 10  # for requests that are being answered when the server stops
BACKLOG = 128  # connections accepted at once; each takes a file descriptor before the oldest can be closed


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


def run(
    folder: Path,
    model: Path | None,
    backbone: str | None,
    demo: bool,
    access: Access,
    method: str | None = None,
    relearn: bool = False,
    drawings: bool = False,
    promote: Promote = "auto",
    inbox: Bounds | None = None,
    follow: str | None = None,
    errors: float | None = None,
    multi_label: bool = False,
) -> None:
    """Serve until stopped."""
    traces.start()
    if follow is not None:
        service: Service = Replica(folder, follow, find(backbone) if backbone else None, find)
    elif demo:
        from taer.serve.backbones import demo_backbone, demo_head

        _announce_loading()
        first, held_back = demo_head()
        service = Service(folder, demo_backbone(), first, held_back, promote=promote, inbox=inbox, errors=errors)
    else:
        first_head: Any = load_head(model) if model else None
        if multi_label and first_head is not None and not isinstance(first_head, MultiLabel):
            raise ValueError(f"{model}: has one label per sample; leave out --multi-label")
        service = open_service(
            folder, first_head, backbone, method, relearn, promote, inbox, errors=errors, multi_label=multi_label
        )
    print_notices(service, model)
    serve_app(
        create_app(service, access.token, access.is_public, access.hosts, drawings or demo),
        folder,
        access,
    )


def print_notices(service: Service, model: Path | None) -> None:
    """Tell whoever starts a service what was found in its folder."""
    folder = service.store.folder
    for notice in service.notices:
        print(f"taer: {folder}: {notice}", file=sys.stderr)
    if model and not service.is_new:
        print(f"taer: {folder} goes on from its own versions; a model is for a new folder", file=sys.stderr)


def serve_app(app: ASGIApp, folder: Path, access: Access) -> None:
    """Say where the application is, and answer until stopped."""
    listener = listen(access.host, access.port)
    address = f"http://{access.name}:{listener.getsockname()[1]}/#token={access.token}"
    print(f"taer serves {folder} at {address}", flush=True)
    answer(app, listener)


def answer(app: ASGIApp, listener: socket.socket) -> None:
    """Answer until stopped."""
    # Small products are slower on several threads, and requests come in parallel.
    threadpool_limits(1, user_api="blas")
    set_aside()
    server(app).run([listener])


def open_service(
    folder: Path,
    first: Head | None,
    name: str | None,
    method: str | None = None,
    relearn: bool = False,
    promote: Promote = "auto",
    inbox: Bounds | None = None,
    learner: Learner | None = None,
    finder: Callable[[str, Head | None], Backbone] | None = None,
    errors: float | None = None,
    multi_label: bool = False,
) -> Service:
    """The service with the named backbone, or with the one recorded in its head; without either it accepts vectors.

    ``finder`` finds a backbone by its name, for a head. Raises ValueError if the head has learned features of another
    backbone.
    """
    finder = finder or _find
    backbone = finder(name, first) if name is not None else None  # before the folder is touched
    if multi_label or isinstance(first, MultiLabel) or has_several(folder):
        if relearn or promote != "auto" or inbox or errors is not None:
            raise ValueError(
                f"{folder}: --relearn, --promote, --inbox and --errors-at-most are for one label per sample, and this has "
                "several"
            )
        service: Service = LabelService(folder, backbone, first, method, learner)
    else:
        service = Service(
            folder,
            backbone,
            first,
            method=method,
            relearn=relearn,
            promote=promote,
            inbox=inbox,
            learner=learner,
            errors=errors,
        )
    if backbone is not None:
        if service.serving.head is not None:
            try:
                service.serving.head._check_origin(backbone.origin)
            except ValueError:
                service.close()
                raise
        return service
    origin = getattr(service.serving.head, "feature_origin_", None)
    if remembered := origin.backbone if origin else service.store.backbone(service.serving.version):
        try:
            service.backbone = finder(remembered, service.serving.head)
        except ValueError as error:
            service.notices.append(
                f"takes vectors, no images or texts, because the head's backbone is not here: {error}"
            )
    return service


def _find(name: str, head: Head | None) -> Backbone:
    _announce_loading()
    return find(name, head)


def _announce_loading() -> None:
    print("taer: loading the backbone", file=sys.stderr, flush=True)  # which can take half a minute


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        traces.end()  # here, because the signal that stops the server then ends the process


def server(app: ASGIApp) -> uvicorn.Server:
    """The server of the application, with limits on connections, waiting and stopping."""
    config = uvicorn.Config(
        app,
        http=Connection,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=STOP_SECONDS,
        limit_concurrency=2 * MAX_CONNECTIONS,  # requests of connections that were told to go end a little later
        backlog=BACKLOG,
    )
    return _Server(config)


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio looks at it to turn Nagle's algorithm off: 40 ms an answer otherwise.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)  # who reads the line below may connect at once
    except OSError as error:
        listener.close()
        raise ValueError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None
    return listener
