"""How many threads the matrix products of numpy take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = Lock()
_inside = 0  # how many are inside: the number of threads is one of the whole process
_limit: Any = None  # what the first of them changed, for the last to restore


@cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Inside, numpy and scipy multiply and factorise on one thread: the same bits on any number of cores.

    It is also faster. Products of a few dozen rows take several times longer on two threads, and on a machine with other
    work so does everything that waits for the slower thread.
    """
    global _inside, _limit
    with _lock:
        if not _inside:
            _limit = _thread_pools().limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _limit.restore_original_limits()
