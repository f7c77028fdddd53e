"""How many threads the matrix products of numpy take."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Matrix products of a few dozen rows are several times slower on two threads than on one."""
    limit: AbstractContextManager[Any] = _thread_pools().limit(limits=1, user_api="blas")
    return limit
