"""Where work runs: in this process, on the cores of this machine, or on a Ray cluster.

Everything that can run in parallel (the runs of a grid, the chunks of an extraction, the sums of a closed-form head)
goes through joblib's ``Parallel``, and joblib's settings decide where it runs. :func:`ray_cluster` sets them to a Ray
cluster. Only this module uses Ray.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np
from joblib import parallel_config, register_parallel_backend
from joblib.parallel import ParallelBackendBase, SequentialBackend

from taer.extras import reason, require
from taer.storage import MappedArray

_BACKEND = "taer-ray"
_RETRIES = 5  # of work whose worker or node died; after that the work itself is to blame
_SECONDS = 5  # to wait for an answer from an address
_WATCH = 1.0  # seconds between two checks that the parent process is alive
_connected = False


@contextmanager
def ray_cluster(address: str | None = None) -> Iterator[None]:
    """A context in which grids, extractions and the sums of closed-form heads run on a Ray cluster.

    Results return to this process, which alone writes files. They are bit-identical to those of one machine.
    If a worker or a node dies, its work is repeated elsewhere.

    Parameters
    ----------
    address
        ``HOST:PORT`` of a running cluster, as ``ray start --head`` prints it. Without it, whatever ``ray.init()``
        finds: the cluster of ``RAY_ADDRESS`` or the one running on this machine, otherwise a new one on its cores.

    Examples
    --------
    >>> import taer
    >>> data = taer.load_features()
    >>> with taer.ray_cluster("10.0.0.1:6379"):  # doctest: +SKIP
    ...     head = taer.SLDA().fit(data.train_x, data.train_y)
    """
    global _connected
    ray = require("ray", "cluster")
    joins = not ray.is_initialized()  # otherwise the caller is already connected, and stays connected
    if joins:
        _connect(ray, address)
    register_parallel_backend(_BACKEND, _RayTasks)
    _connected = True
    try:
        with parallel_config(backend=_BACKEND, n_jobs=-1):
            yield
    finally:
        _connected = False
        if joins:
            ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    named = address or os.environ.get("RAY_ADDRESS", "")
    if address is not None or (":" in named and "/" not in named):  # not auto, local or ray://…
        _check_answers(named)
    try:
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (RuntimeError, ConnectionError) as error:  # another version of Ray or Python there, or no Ray at all
        hint = "" if os.environ.get("RAY_AUTH_MODE") else "; if it asks for a token, set RAY_AUTH_MODE=token"
        raise ValueError(f"Ray cluster {address or ''}: {reason(error)}{hint}") from None


def _check_answers(address: str) -> None:
    """Raise unless a Ray cluster answers at the address, because Ray itself would try for many minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise ValueError(f"{address}: expected HOST:PORT of a Ray cluster, as 'ray start --head' prints it")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "1":
                # gRPC begins with HTTP/2's preface and a settings frame (type 4) from both sides
                connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
                if connection.recv(9)[3:4] != b"\x04":
                    raise ValueError(f"{address}: answers, but is not a Ray cluster; the usual port is 6379")
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"{address}: no Ray cluster answers there ({error}); 'ray start --head' prints the address of one"
        ) from None


def end_with(parent: int) -> None:
    """End this process soon after its parent, because a parent that is killed cannot stop its workers."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def on_cluster() -> bool:
    """Whether work runs on a cluster now."""
    return _connected


class Workers(NamedTuple):
    """The number of jobs that can run at the same time, and the number of nodes."""

    workers: int
    nodes: int

    def __str__(self) -> str:
        return " on ".join(
            f"{count} {name}{'' if count == 1 else 's'}"
            for count, name in ((self.workers, "worker"), (self.nodes, "node"))
        )


def workers(share: Mapping[str, float] | None = None) -> Workers:
    """The workers of the cluster that are alive, if each needs the resources ``share`` (default: one CPU)."""
    share = share or {"CPU": 1}
    per_node = [min(int(node.get(name, 0) // count) for name, count in share.items()) for node in _nodes()]
    return Workers(sum(per_node), sum(slots > 0 for slots in per_node))


def device_share() -> dict[str, float]:
    """The resources that a frozen model needs: a GPU if the cluster has any, else all CPUs of the smallest node."""
    nodes = _nodes()
    if any(node.get("GPU", 0) >= 1 for node in nodes):
        return {"GPU": 1, "CPU": 1}
    return {"CPU": min((node["CPU"] for node in nodes if node.get("CPU")), default=1)}


def sharing(share: Mapping[str, float]) -> AbstractContextManager[Any]:
    """Inside, each job needs these resources of a node."""
    context: AbstractContextManager[Any] = parallel_config(backend=_BACKEND, n_jobs=-1, share=share)
    return context


def _nodes() -> list[dict[str, float]]:
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


class Shared:
    """A value that many jobs need. On a cluster it is sent to each node once, not with each job.

    Arrays in files are sent as their content or, with ``by_path``, as a path that all nodes must be able to open.
    """

    def __init__(self, value: Any = None, *, by_path: bool = False, reference: Any = None) -> None:
        self._value, self._by_path, self._reference = value, by_path, reference

    @property
    def value(self) -> Any:
        if self._value is None:
            import ray

            try:
                self._value = ray.get(self._reference)  # arrays are views of the node's object store
            except ray.exceptions.RaySystemError as error:  # the value cannot be opened on this node
                line = str(error).strip().partition("\n")[0].removeprefix("System error: ")
                raise ValueError(f"{socket.gethostname()}: {line}; is it on a path that all nodes see?") from None
        return self._value

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if not on_cluster():
            return Shared, (self._value,)
        if self._reference is None:
            self._reference = self._put()
        return _received, (self._reference,)

    def _put(self) -> Any:
        import ray

        if self._by_path:
            return ray.put(self._value)
        ray.util.register_serializer(MappedArray, serializer=np.asarray, deserializer=np.asarray)
        try:
            return ray.put(self._value)
        finally:
            ray.util.deregister_serializer(MappedArray)


def _received(reference: Any) -> Shared:
    return Shared(reference=reference)


class _RayTasks(ParallelBackendBase):
    """Runs jobs as Ray tasks.

    Ray's own backend for joblib returns all results at the end and assigns each job to a process in advance. Tasks
    run on whichever process is free, return as they finish, and are retried if their node dies.
    """

    supports_retrieve_callback = True

    def __init__(self, share: Mapping[str, float] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        import ray

        self._share = dict(share or {"CPU": 1})
        # max_calls=0: a process is reused, even with a GPU, and keeps the model that it has loaded
        self._task: Any = ray.remote(
            num_cpus=self._share["CPU"], num_gpus=self._share.get("GPU", 0), max_retries=_RETRIES, max_calls=0
        )(_call)
        self._pending: dict[Future[Any], Any] = {}

    def effective_n_jobs(self, n_jobs: int) -> int:
        return max(2, workers(self._share).workers)  # with n_jobs=1, joblib would run everything in this process

    def submit(self, func: Callable[[], Any], callback: Callable[[Future[Any]], None]) -> Future[Any]:
        reference = self._task.remote(func)
        future: Future[Any] = reference.future()
        self._pending[future] = reference
        future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, future: Future[Any]) -> Any:
        from ray.exceptions import RayError

        self._pending.pop(future, None)
        try:
            return future.result()
        except RayError as error:
            cause = getattr(error, "cause", error)
            if not isinstance(cause, RayError):
                raise cause from None  # the job itself failed: raise its error as if it had run here
            line = str(cause).strip().partition("\n")[0]
            raise OSError(f"the Ray cluster gave up on a piece of work ({line})") from None

    def abort_everything(self, ensure_ready: bool = True) -> None:
        import ray

        for reference in list(self._pending.values()):
            ray.cancel(reference, force=True)
        self._pending.clear()

    def get_nested_backend(self) -> tuple[ParallelBackendBase, None]:
        return SequentialBackend(nesting_level=1), None


def _call(func: Callable[[], Any]) -> Any:
    return func()
