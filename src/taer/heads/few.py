"""A warning about classes with fewer samples than a head can use."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

FEW = 20  # samples of a class
_TIMES = 3  # warn if a typical known class has at least this many times as many samples
_CALLER = 6  # stack frames up to the caller of partial_fit


class FewSamplesWarning(UserWarning):
    """A new class has fewer samples than this head can use beside its known classes.

    The text is the same at every task, so that Python shows it once for a loop; ``details`` names the classes.
    """

    def __init__(self, text: str, details: str) -> None:
        super().__init__(text, details)
        self.details = details

    def __str__(self) -> str:
        return str(self.args[0])


def warn_of_few(name: str, labels: np.ndarray, counts: np.ndarray) -> None:
    """Warn about new classes with few samples.

    ``labels`` are the new classes, ``counts`` the samples of all classes in order of arrival.
    """
    known, arriving = np.split(counts, [len(counts) - len(labels)])
    usual = np.median(known)
    scarce = np.flatnonzero((arriving < FEW) & (_TIMES * arriving <= usual))
    if not len(scarce):
        return
    listed = ", ".join(f"{labels[i]}: {arriving[i]:.0f}" for i in scarce[:3]) + (", …" if len(scarce) > 3 else "")
    who = "1 new class has" if len(scarce) == 1 else f"{len(scarce)} new classes have"
    advice = (
        "this head will take many of their samples for known classes. Give more samples, or take a head for few samples, "
        "such as bayes"
    )
    warning = FewSamplesWarning(
        f"{name}: new classes have fewer than {FEW} samples, and known classes at least {_TIMES} times as many; {advice}",
        f"{name}: {who} fewer than {FEW} samples ({listed}) beside known classes of {usual:.0f}; {advice}",
    )
    warnings.warn(warning, stacklevel=_CALLER)


@contextmanager
def collected() -> Iterator[list[str]]:
    """Inside, the details of these warnings are collected in a list; other warnings are shown as usual."""
    found: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", FewSamplesWarning)
        show = warnings.showwarning

        def collect(message: Any, category: type[Warning], *rest: Any, **options: Any) -> None:
            if isinstance(message, FewSamplesWarning):
                found.append(message.details)
            else:
                show(message, category, *rest, **options)

        warnings.showwarning = collect
        yield found
