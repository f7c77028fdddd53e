"""The properties of a head, declared once. Tables, documentation and tests are generated from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GROUPS = {
    "paper": "the paper's method",
    "ablation": "experience replay, alone and with each half of TaER: the paper's ablation",
    "baseline": "the paper's baselines",
    "related": "methods of its related work",
    "closed form": "closed forms on mergeable statistics: no exemplars, no learning rate",
    "frozen": "old scores that never move, without exemplars",
    "replay": "old scores that never move, with kept samples: the paper's idea on closed forms",
    "adapter": "methods that need hidden units, on a small adapter above the features, with their own bounds",
    "bound": "the lower and the upper bound",
    "own": "heads of your own",
}
_EXEMPLARS = {"nothing": "none", "statistics": "none", "exemplars": "`memory_size`", "everything": "all"}


@dataclass(frozen=True)
class Card:
    """The properties of a head."""

    group: str  # one of GROUPS
    old_scores: Literal["never", "move"]  # whether a later task changes the score of an old class for a sample
    keeps: Literal["nothing", "exemplars", "everything", "statistics"]  # of the samples it has learned from
    forgets: str  # whether ``forget`` leaves the scores as if the class had never been seen: "yes", "no" or on which terms
    linear: bool = True  # whether its scores are one product with the columns of the classes
    exports: bool = True  # whether it has an ONNX form
    sums: bool = False  # whether its state is sums over samples, so that ``unlearn`` and ``merge`` are exact
    relearns: bool = False  # whether it does so by learning again from kept samples
    few_shot: bool = True  # whether classes of five samples are predicted at all beside classes of many
    boundaries: bool = False  # whether it must be told where a task ends: it fixes or trains something then
    guesses_task: bool = False  # whether it has outputs per task and must guess the task of a sample

    def __post_init__(self) -> None:
        if self.group not in GROUPS:
            raise ValueError(f"group must be one of {', '.join(GROUPS)}, got {self.group!r}")

    @property
    def frozen(self) -> bool:
        return self.old_scores == "never"

    @property
    def needs_boundaries(self) -> bool:
        return self.boundaries or self.guesses_task

    @property
    def corrects(self) -> bool:
        """Whether it has ``unlearn`` and ``merge``."""
        return self.sums or self.relearns

    def facts(self) -> dict[str, str]:
        """The entries of a table of heads, by the titles of its columns."""
        return {
            "exemplars": _EXEMPLARS[self.keeps],
            "old scores move": "never" if self.frozen else "yes",
            "forgets a class exactly": self.forgets,
            "unlearns samples, merges": "yes" if self.corrects else "no",
            "few examples": "yes" if self.few_shot else "no",
            "ONNX": "yes" if self.exports else "no",
        }
