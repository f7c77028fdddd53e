"""How far the version in use can be trusted: what it promises, and whether what arrives has changed."""

from __future__ import annotations

import math
import threading
from typing import Annotated

from msgspec import Meta

from taer import answers
from taer.loop.alarm import Alarm
from taer.serve.api import Api
from taer.serve.gate import Counters
from taer.serve.service import Service
from taer.serve.serving import FALSE_ALARMS as EXPECTED
from taer.serve.serving import Missing, Serving
from taer.serve.tasks import matrix
from taer.serve.trust import known_examples

FALSE_ALARMS = 0.01  # probability that the alarm of a version is ever raised without a reason


class Watch:
    """Whether more answers of the version in use are unknown than its held-out examples let expect."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._turn = threading.Lock()
        self._compared: tuple[int, int, int] | None = None  # version, held-out examples, unknown ones among them

    def alarm(self) -> answers.AlarmState | None:
        """None without held-out examples to compare with.

        Each hour is a batch. The hour that has not ended counts so far: every answer is a bet of its own.
        """
        serving = self._service.serving
        samples, unknown = self._held_out(serving)
        if unknown >= samples:
            return None
        found = Alarm.against(unknown, samples, FALSE_ALARMS)
        for hour in self._service.drift.of_version(serving.version):
            found.update(*hour)
        return {
            "raised": found.raised,
            "raised_after": found.raised_after,
            "answered": found.answered,
            "unknown": found.unknown,
            "reference": found.rate,
            "held_out": samples,
            "false_alarms": FALSE_ALARMS,
        }

    def _held_out(self, serving: Serving) -> tuple[int, int]:
        """How many held-out examples there are, and how many of them are unknown; a version never changes."""
        with self._turn:
            if self._compared is None or self._compared[0] != serving.version:
                head = serving.head
                held_out = [] if head is None else known_examples(self._service.store, serving.version, head)
                unknown = int(serving.answer(matrix(held_out)).unknown.sum()) if held_out else 0
                self._compared = serving.version, len(held_out), unknown
            return self._compared[1:]


def add_trust(api: Api, service: Service, counters: Counters) -> None:
    watch = Watch(service)

    def drift(hours: Annotated[int, Meta(ge=1, le=24 * 366)] = 24) -> answers.Drift:
        """The number of unknown answers in each of the last hours, and an alarm if the data have changed."""
        found = service.drift.hours(hours)
        answered, unknown = sum(hour["answered"] for hour in found), sum(hour["unknown"] for hour in found)
        return {
            "answered": answered,
            "unknown": unknown,
            "fraction": unknown / answered if answered else None,
            "expected": EXPECTED,
            "alarm": watch.alarm(),
            "hours": found,
        }

    def automation() -> answers.Automation:
        """Which answers need no person, and what is promised about them. 404 if the service promises nothing."""
        serving = service.serving
        if serving.head is None or serving.promise is None:
            raise Missing("this service promises nothing; start it with --errors-at-most 0.02, say")
        return serving.promise.described(serving.version, serving.head)

    def raised() -> float:
        try:
            state = watch.alarm()
        except OSError:  # the other metrics are still of use
            return math.nan
        return float(state is not None and state["raised"])

    counters.watch(
        "taer_drift_alarm", "1 from the alarm on that the data have changed, until a new version.", raised
    )
    api.add("GET", "/drift", drift, tag="watch", problems=(503,))
    api.add("GET", "/automation", automation, tag="watch", problems=(404, 503))
