"""The number of threads that numpy, scipy and this library use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

_most = 8  # threads of our own; each needs memory for what it works on
_lock = Lock()
_inside = 0  # callers inside the context; the number of BLAS threads belongs to the whole process
_before: list[tuple[Any, int]] = []  # the settings that the first caller found and the last one restores

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@cache
def _libraries() -> list[Any]:
    libraries: list[Any] = ThreadpoolController().select(user_api="blas").lib_controllers
    return libraries


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Inside, BLAS uses one thread, so that results have the same bits on any number of cores.

    It is also faster. Products of a few dozen rows take several times longer on two threads, and on a busy machine
    everything waits for the slower thread.
    """
    global _inside, _before
    with _lock:
        if not _inside:
            # Setting the number costs as much as one prediction: it is left alone where it is one.
            found = [(library, library.get_num_threads()) for library in _libraries()]
            # threadpoolctl 3.8 obeys only the thread that came first; here the lock keeps threads apart.
            _before = [
                (getattr(library, "_real_set_num_threads", library.set_num_threads), number)
                for library, number in found
                if number != 1
            ]
            for set_number, _ in _before:
                set_number(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                for set_number, number in _before:
                    set_number(number)


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_threads(number: int) -> None:
    """Use so many threads in this process, because other processes use the other cores."""
    global _most
    _most = number


def spread(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """The function applied to each item, on all cores."""
    with ThreadPoolExecutor(min(_most, cores())) as pool:
        return list(pool.map(function, items))
