"""Starting a server from the options of ``taer serve``."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from threadpoolctl import threadpool_limits

from taer.heads import Head
from taer.persist.save import load
from taer.serve.access import Access
from taer.serve.app import create_app
from taer.serve.backbones import find
from taer.serve.connection import MAX_CONNECTIONS, Connection
from taer.serve.service import Service

STOP_SECONDS = 10  # for requests that are being answered when the server stops
BACKLOG = 128  # connections accepted at once; each takes a file descriptor before the oldest can be closed


def run(
    folder: Path,
    model: Path | None,
    backbone: str | None,
    demo: bool,
    access: Access,
    method: str | None = None,
    relearn: bool = False,
    drawings: bool = False,
) -> None:
    """Serve until stopped."""
    if demo:
        from taer.serve.demo import demo_backbone, demo_head

        _announce_loading()
        first, held_back = demo_head()
        service = Service(folder, demo_backbone(), first, held_back)
    else:
        service = open_service(folder, load(model) if model else None, backbone, method, relearn)
    for notice in service.notices:
        print(f"taer: {folder}: {notice}", file=sys.stderr)
    if model and not service.is_new:
        print(f"taer: {folder} goes on from its own versions; a model is for a new folder", file=sys.stderr)
    listener = listen(access.host, access.port)
    address = f"http://{access.name}:{listener.getsockname()[1]}/#token={access.token}"
    print(f"taer serves {folder} at {address}", flush=True)
    # Small products are slower on several threads, and requests come in parallel.
    threadpool_limits(1, user_api="blas")
    server(create_app(service, access.token, access.is_public, access.hosts, drawings or demo)).run([listener])


def open_service(
    folder: Path, first: Head | None, name: str | None, method: str | None = None, relearn: bool = False
) -> Service:
    """The service with the named backbone, or with the one recorded in its head; without either it accepts vectors.

    Raises ValueError if the head has learned features of another backbone.
    """
    if name is not None:
        _announce_loading()
        backbone = find(name, first)  # before the folder is touched
        service = Service(folder, backbone, first, method=method, relearn=relearn)
        if service.serving.head is not None:
            try:
                service.serving.head.check_origin(backbone.origin)
            except ValueError:
                service.close()
                raise
        return service
    service = Service(folder, None, first, method=method, relearn=relearn)
    origin = getattr(service.serving.head, "feature_origin_", None)
    if remembered := origin.backbone if origin else service.store.backbone(service.serving.version):
        _announce_loading()
        try:
            service.backbone = find(remembered, service.serving.head)
        except ValueError as error:
            service.notices.append(f"the head's backbone is not here, so the service takes vectors: {error}")
    return service


def _announce_loading() -> None:
    print("taer: loading the backbone", file=sys.stderr, flush=True)  # which can take half a minute


def server(app: FastAPI) -> uvicorn.Server:
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
    return uvicorn.Server(config)


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
