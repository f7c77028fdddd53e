# %% [markdown]
# # A new method in one file
#
# A method is one class: which samples, which gradient of the scores, which columns move. This notebook writes one and
# compares it with others on the same stream. Saved as a file in `src/taer/zoo/`, it would be in
# every table, test and command. [Contributing](../contributing.md) has the details.

# %%
import numpy as np

import taer
from taer.heads.base import Task
from taer.heads.card import Card
from taer.heads.descent.loop import Plan, Samples
from taer.heads.descent.losses import cross_entropy
from taer.heads.descent.memory import MemoryHead, replay_batch_size
from taer.heads.params import param

# %% [markdown]
# ## The method
#
# Experience replay with logit adjustment (Menon et al., ICLR 2021). A batch has more samples of a new class than of an old
# class, whose samples come only from the memory. Adding `tau · log π_c` to the score of class c during training removes
# this disadvantage, where `π_c` is the fraction of a batch that belongs to class c.


# %%
class LogitAdjustedER(
    MemoryHead, name="logit-adjusted", card=Card("related", old_scores="move", keeps="exemplars", forgets="no")
):
    """ER with logit adjustment: a class that is seen rarely does not start with a handicap."""

    replay_batch_size: int = replay_batch_size()
    tau: float = param(1.0, "strength of the adjustment", at_least=0)

    def _plan(self, task: Task, columns: np.ndarray) -> Plan:
        fractions = np.full(task.n_classes, 0.5 / max(1, len(task.old)))
        fractions[task.current] = 0.5 / len(task.current)
        shift = (self.tau * np.log(fractions)).astype(columns.dtype)
        return Plan(
            current=Samples(task.X, {"target": task.y}),
            replay=self._replay(task, lambda X, y: {"target": y}),
            replay_size=self.replay_batch_size,
            weights=(1.0, 1.0),
            gradient=lambda scores, batch: cross_entropy(scores + shift, batch),
        )


# %% [markdown]
# It is a scikit-learn classifier with a name, checked parameters and a documented signature.

# %%
print(LogitAdjustedER(tau=0.5))
try:
    LogitAdjustedER(tau=-1).fit(np.eye(2), [0, 1])
except ValueError as error:
    print(error)

# %% [markdown]
# ## Against the others
#
# Ten tasks of ten classes. Every head sees the same tasks in the same order and is tested on all classes at the end.

# %%
data = taer.load_features()
stream = taer.class_stream(data, tasks=10)


def final_accuracy(head: taer.heads.Head) -> float:
    for task in stream:
        head.partial_fit(task.X_train, task.y_train)
    return head.score(data.test_x, data.test_y)


found = {
    head.name: final_accuracy(head)
    for head in (
        taer.Finetune(random_state=0), taer.ER(random_state=0), LogitAdjustedER(random_state=0), taer.TaER(random_state=0)
    )
}  # fmt: skip
for name, accuracy in found.items():
    print(f"{name:<16}{accuracy:.1%}")
assert found["logit-adjusted"] > found["er"]
