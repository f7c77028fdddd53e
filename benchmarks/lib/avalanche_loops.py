"""The methods in Avalanche, with its own strategies and plugins on a ``TensorDataset`` of features.

Same form as ``torch_loops.py``: each function learns a list of tasks, here Avalanche's experiences, and returns a
function that predicts.
"""

# ruff: noqa: E402 - Avalanche can be imported only after the lines on torchvision

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

# torchvision's wheel is built for CUDA and finds these two missing beside a torch for CPUs; nothing here calls them.
_operators = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _operators.define(f"{_name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")

from avalanche.benchmarks import tensors_benchmark
from avalanche.models import IncrementalClassifier
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
from avalanche.training.storage_policy import ClassBalancedBuffer
from avalanche.training.supervised import DER, Naive

BATCH = 32
MEMORY = 200
Predict = Callable[[Any], Any]


def experiences(tasks: Sequence[tuple[Any, Any]]) -> Sequence[Any]:
    """Tasks of tensors as Avalanche's stream."""
    return tensors_benchmark(train_tensors=tasks, test_tensors=tasks[:1], task_labels=[0] * len(tasks)).train_stream


class Columns(IncrementalClassifier):
    """Avalanche's growing layer, started at zero and without intercepts, as the columns it is compared with."""

    def adaptation(self, experience: Any) -> None:
        super().adaptation(experience)
        with torch.no_grad():
            self.classifier.weight[list(experience.classes_in_this_experience)] = 0
            self.classifier.bias.requires_grad_(False).zero_()


class TaERPlugin(ReplayPlugin):
    """The objective of TaER on top of Avalanche's replay: two weights, and a gradient for current columns alone."""

    def before_training_exp(self, strategy: Any, **options: Any) -> None:
        super().before_training_exp(strategy, **options)
        self.old = len(strategy.experience.previous_classes)
        self.share = self.old / len(strategy.experience.classes_seen_so_far)

    def __call__(self, scores: Any, target: Any) -> Any:
        """The criterion."""
        if not self.old:
            return F.cross_entropy(scores, target)
        past = target < self.old
        current = F.cross_entropy(scores[~past], target[~past])
        return (1 - self.share) * current + self.share * F.cross_entropy(scores[past], target[past])

    def after_backward(self, strategy: Any, **_: Any) -> None:
        strategy.model.classifier.weight.grad[: self.old] = 0


class DERPP(DER):
    """Avalanche's DER++ with the mean over the columns that there were when the logits were stored.

    It needs all columns from the start, compares all of them, and replays one draw for both of its terms.
    """

    def _after_forward(self, **options: Any) -> None:
        super()._after_forward(**options)
        if self.replay_loader is not None:
            scores = self.mb_output[:BATCH].detach()
            known = self.batch_logits > self.model.mask_value
            stretch = known.shape[1] / known.sum(1, keepdim=True)
            self.batch_logits = torch.where(known, scores + stretch * (self.batch_logits - scores), scores)


def taer(tasks: Sequence[Any], epochs: int = 1, lr: float = 0.1) -> Predict:
    plugin = TaERPlugin(MEMORY, storage_policy=ClassBalancedBuffer(MEMORY))
    return _learned(tasks, Naive, epochs, lr, plugins=[plugin], criterion=plugin)


def er(tasks: Sequence[Any], epochs: int = 1, lr: float = 0.1) -> Predict:
    """The mean over a batch of two halves, at twice the rate, is the sum of their means."""
    return _learned(
        tasks, Naive, epochs, 2 * lr, plugins=[ReplayPlugin(MEMORY, storage_policy=ClassBalancedBuffer(MEMORY))]
    )


def derpp(tasks: Sequence[Any], epochs: int = 1, lr: float = 0.03) -> Predict:
    return _learned(tasks, DERPP, epochs, lr, mem_size=MEMORY, alpha=0.1, beta=0.5)


def _learned(tasks: Sequence[Any], strategy: Any, epochs: int, lr: float, **options: Any) -> Predict:
    first = tasks[0]
    width, to_come = len(first.dataset[0][0]), len(first.future_classes) if strategy is DERPP else 0
    model = Columns(width, initial_out_features=len(first.classes_in_this_experience) + to_come)
    learner = strategy(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=lr),
        train_mb_size=BATCH,
        train_epochs=epochs,
        evaluator=EvaluationPlugin(),  # no metrics, no logs
        **options,
    )
    for experience in tasks:
        learner.train(experience)
    model.eval()
    return lambda X: model(X).detach().argmax(1)


LOOPS: dict[str, Callable[..., Predict]] = {"taer": taer, "er": er, "derpp": derpp}
