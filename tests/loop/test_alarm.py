"""The alarm for changed data: how often it is false, and how late it is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, binom

from taer.loop.alarm import Alarm


def simulated(rate, runs, batches, size, alarm, change=None):
    """Answers until the alarm in each run, or None; the share is ``rate``, from batch ``change[0]`` on ``change[1]``."""
    rng, found = np.random.default_rng(0), []
    for _ in range(runs):
        watch = alarm(rng)
        shares = np.full(batches, rate)
        if change:
            shares[change[0] :] = change[1]
        for unknown in rng.binomial(size, shares):
            if watch.update(size, int(unknown)):
                break
        found.append(watch.raised_after)
    return found


@pytest.mark.parametrize("size", [1, 20])
def test_it_is_hardly_ever_false(size):
    runs = simulated(0.05, 100, 500, size, lambda rng: Alarm(0.05, false_alarms=0.1))
    raised = sum(at is not None for at in runs)
    assert raised <= binom.ppf(0.999, 100, 0.1)


def test_looking_every_time_with_a_plain_test_would_be():
    """What it is good for: a test at the same level, repeated after each batch, is false most of the time."""
    rng = np.random.default_rng(0)
    unknown = np.cumsum(rng.binomial(20, 0.05, (200, 1000)), axis=1)
    answered = 20 * np.arange(1, 1001)
    assert np.mean((binom.sf(unknown - 1, answered, 0.05) <= 0.1).any(axis=1)) > 0.3


def test_the_reference_may_come_from_few_samples():
    def measured(rng):
        return Alarm.against(int(rng.binomial(300, 0.05)), 300, false_alarms=0.1)

    runs = simulated(0.05, 100, 200, 20, measured)
    assert sum(at is not None for at in runs) <= binom.ppf(0.999, 100, 0.1)
    alarm = Alarm.against(15, 300, false_alarms=0.1)
    assert alarm.rate == pytest.approx(beta.ppf(0.95, 16, 285))  # Clopper-Pearson
    assert alarm.false_alarms == 0.05


@pytest.mark.parametrize("quiet", [0, 200])
def test_it_is_raised_soon_after_a_change_even_a_late_one(quiet):
    runs = simulated(0.05, 50, quiet + 60, 20, lambda rng: Alarm(0.05), change=(quiet, 0.15))
    assert None not in runs
    assert 0 < np.median(runs) - 20 * quiet < 300
    # fewer are no reason
    assert simulated(0.05, 20, 100, 20, lambda rng: Alarm(0.05), change=(0, 0.01)) == [None] * 20


def test_it_stays_raised():
    alarm = Alarm(0.05)
    assert not alarm.update(10, 1)
    assert alarm.update(50, 50)
    assert alarm.update(10_000, 0)
    assert (alarm.raised, alarm.raised_after, alarm.answered, alarm.unknown) == (True, 60, 10_060, 51)
    assert Alarm(0.05).update(10**9, 10**9)  # evidence beyond any number
    assert not Alarm(0.99).update(0, 0)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="rate must be above 0 and below 1, got 0"):
        Alarm(0)
    with pytest.raises(ValueError, match="false_alarms must be above 0 and below 1, got 1"):
        Alarm(0.1, 1)
    with pytest.raises(ValueError, match="got 5 and 6"):
        Alarm(0.1).update(5, 6)
    with pytest.raises(ValueError, match="not all of them unknown, got 5 of 5"):
        Alarm.against(5, 5)
