"""An alarm for data that have changed, with a stated probability that it is ever false.

Someone bets at every batch of answers that from then on more of them are unknown than before, with a small part of a
capital of one, and multiplies the stake by a likelihood ratio. If the share of unknown answers stays at or below the
reference, no bet gains on average. Then the capital ever reaches ``1 / false_alarms`` with a probability of
``false_alarms`` at most (Ville's inequality), however long and often one looks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import beta

_FACTORS = 1.25 ** np.arange(1, 16)  # of the reference: the shares on which the stakes are divided
_HIGHEST = 0.98  # share of unknown answers on which one bets


@dataclass
class Alarm:
    """Watches the share of unknown answers.

    ``rate`` is the share up to which nothing has changed; :meth:`against` takes it from held-out samples. ``false_alarms``
    is the probability that the alarm is ever raised without a reason.

    Examples
    --------
    >>> alarm = Alarm(rate=0.05, false_alarms=0.01)
    >>> alarm.update(answered=1000, unknown=55)
    False
    >>> alarm.update(answered=200, unknown=40)
    True
    >>> alarm.raised_after
    1200
    """

    rate: float
    false_alarms: float = 0.01
    answered: int = field(default=0, init=False)
    unknown: int = field(default=0, init=False)
    evidence: float = field(default=1.0, init=False)  # the capital; the alarm is raised at 1 / false_alarms
    raised_after: int | None = field(default=None, init=False)  # answers until then

    def __post_init__(self) -> None:
        for name in ("rate", "false_alarms"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ValueError(f"{name} must be above 0 and below 1, got {value!r}")
        shares = np.unique(np.minimum(self.rate * _FACTORS, max(_HIGHEST, (1 + self.rate) / 2)))
        self._gains = np.log(shares / self.rate), np.log((1 - shares) / (1 - self.rate))
        self._stakes = np.full(len(shares), -np.inf)  # logarithms
        self._batches = 0

    @classmethod
    def against(cls, unknown: int, samples: int, false_alarms: float = 0.01) -> Alarm:
        """An alarm whose reference is the share of unknown answers among held-out samples.

        That share is known up to chance only. So the reference is its upper bound, which half of ``false_alarms`` is
        spent on.
        """
        if not 0 <= unknown < samples:
            raise ValueError(f"expected held-out samples, not all of them unknown, got {unknown} of {samples}")
        return cls(float(beta.ppf(1 - false_alarms / 2, unknown + 1, samples - unknown)), false_alarms / 2)

    @property
    def raised(self) -> bool:
        """Whether the alarm was raised; it stays so."""
        return self.raised_after is not None

    def update(self, answered: int, unknown: int) -> bool:
        """Count a batch of answers, such as those of an hour; returns whether the alarm is raised."""
        if not 0 <= unknown <= answered:
            raise ValueError(f"expected answers and how many of them were unknown, got {answered} and {unknown}")
        stake = _left(self._batches) - _left(self._batches + 1)
        self._batches += 1
        up, down = self._gains
        staked = np.logaddexp(self._stakes, math.log(stake / len(up)))
        self._stakes = staked + unknown * up + (answered - unknown) * down
        self.answered += answered
        self.unknown += unknown
        with np.errstate(over="ignore"):
            self.evidence = float(np.exp(np.logaddexp.reduce(self._stakes))) + _left(self._batches)
        if self.raised_after is None and self.evidence >= 1 / self.false_alarms:
            self.raised_after = self.answered
        return self.raised


def _left(batches: int) -> float:
    """The part of the capital that is left for later batches. It falls so slowly that there is always enough to bet."""
    return 1 / math.log2(batches + 2)
