"""From the options of ``taer serve`` to a running server."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn
from threadpoolctl import threadpool_limits

from taer.persist.save import load
from taer.serve.app import create_app
from taer.serve.backbones import find
from taer.serve.service import Service


def run(
    folder: Path,
    model: Path | None,
    backbone: str | None,
    demo: bool,
    host: str,
    port: int,
    token: str,
    public: bool,
) -> None:
    """Serve until stopped."""
    if model and demo:
        raise ValueError("--demo brings a head of its own; leave out --model")
    if demo or backbone:
        print("taer: loading the backbone", file=sys.stderr, flush=True)  # which can take half a minute
    if demo:
        from taer.serve.demo import demo_backbone, demo_head

        first, held_back = demo_head()
        service = Service(folder, demo_backbone(), first, held_back)
    else:
        service = Service(folder, find(backbone) if backbone else None, load(model) if model else None)
    if model and not service.is_new:
        print(f"taer: {folder} goes on from its own versions; --model is for a new folder", file=sys.stderr)
    listener = listen(host, port)
    name = f"[{host}]" if ":" in host else host
    print(f"taer serves {folder} at http://{name}:{listener.getsockname()[1]}/#token={token}", flush=True)
    app = create_app(service, token, public)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        limit_concurrency=512,
    )
    threadpool_limits(
        1, user_api="blas"
    )  # small products are slower on several threads, and requests come in parallel
    uvicorn.Server(config).run([listener])


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio looks at it to turn Nagle's algorithm off: 40 ms an answer otherwise.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)  # who reads the line below may connect at once
    except OSError as error:
        listener.close()
        raise ValueError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None
    return listener
