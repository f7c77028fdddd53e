"""``--engine`` and ``--address``: whether a command runs on this machine or on a Ray cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from enum import StrEnum
from typing import Annotated

import typer

from taer.cli.app import ENGINE


class Engine(StrEnum):
    local = "local"
    ray = "ray"


EngineOption = Annotated[
    Engine,
    typer.Option(
        help="Where the work runs: on this machine, or on a Ray cluster (pip install 'taer[cluster]').",
        rich_help_panel=ENGINE,
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        help="Number of parallel runs, each of which needs memory. With 1, the seconds of heads can be compared. "
        "[default: the number of cores]",
        rich_help_panel=ENGINE,
        min=1,
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        help="HOST:PORT of the Ray cluster. [default: the cluster of RAY_ADDRESS, else the one running on this "
        "machine, else a new one on its cores]",
        rich_help_panel=ENGINE,
    ),
]


@contextmanager
def where(engine: Engine, address: str | None, jobs: int | None = None) -> Iterator[None]:
    """Inside, work runs where the options say. Ray's messages about dying nodes go to stderr."""
    if engine is Engine.local:
        if address is not None:
            raise ValueError("--address goes with --engine ray")
        yield
        return
    if jobs is not None:
        raise ValueError("--jobs goes with --engine local; a cluster works on as many runs as it has CPUs")
    from taer.parallel import ray_cluster

    with redirect_stdout(sys.stderr), ray_cluster(address):
        yield


def workers_alive(per_device: bool = False) -> str:
    """``, 4 workers on 2 nodes`` while work goes to a cluster: one per CPU, or one per GPU or node."""
    from taer import parallel

    if not parallel.on_cluster():
        return ""
    return f", {parallel.workers(parallel.device_share() if per_device else None)}"
