"""The network of AANets and its gradients: the sum of two layers of units, and a cosine classifier."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from taer.heads.embedding import unit_rows
from taer.zoo.shared.adapter_network import units_of


class Answer(NamedTuple):
    """The outputs of the branches and the classifier for some rows."""

    stable: np.ndarray  # units of the stable branch, before their scales
    plastic: np.ndarray
    lengths: np.ndarray  # of the features
    features: np.ndarray  # at unit length
    cosines: np.ndarray  # with the columns


@dataclass
class Branches:
    """Features ``blend · scales ∘ relu(stable @ h) + (1 - blend) · relu(plastic @ h)``, and their cosines with columns.

    Also computes their gradients.
    """

    stable: np.ndarray
    plastic: np.ndarray
    scales: np.ndarray
    columns: np.ndarray
    blend: float
    eta: float  # a score is eta times a cosine

    def __call__(self, rows: np.ndarray) -> Answer:
        return self.answer(units_of(self.stable, rows), units_of(self.plastic, rows))

    def answer(self, stable: np.ndarray, plastic: np.ndarray) -> Answer:
        """Features and cosines from the units of both branches."""
        features = self.blend * self.scales * stable + (1 - self.blend) * plastic
        lengths = np.sqrt(np.square(features).sum(axis=1, keepdims=True))
        lengths[lengths == 0] = 1
        features /= lengths
        return Answer(stable, plastic, lengths, features, features @ unit_rows(self.columns).T)

    def copied(self) -> Branches:
        """The same network, with copies of what is trained."""
        return replace(self, plastic=self.plastic.copy(), scales=self.scales.copy(), columns=self.columns.copy())

    def move(self, by: Branches, lr: float, classes: np.ndarray) -> None:
        """One step for the plastic branch, the scales, the columns of some classes and ``eta``."""
        self.plastic -= lr * by.plastic
        self.scales -= lr * by.scales
        self.columns[classes] -= lr * by.columns[classes]
        self.eta -= lr * by.eta

    def move_blend(self, by: Branches, lr: float) -> None:
        """One step for the weight of the stable branch alone."""
        self.blend = float(np.clip(self.blend - lr * by.blend, 0, 1))

    def imprint(self, number: int, rows: np.ndarray, others: np.ndarray) -> None:
        """Initialize a column with the mean feature of some rows, scaled to the mean length of the other columns."""
        mean = unit_rows(self(rows).features.mean(axis=0, keepdims=True))[0]
        self.columns[number] = mean * np.sqrt(np.square(others).sum(axis=1)).mean()

    def gradients(
        self, rows: np.ndarray, answer: Answer, by_scores: np.ndarray, by_cosines: Any = 0, by_features: Any = 0
    ) -> Branches:
        """Gradients from those of the scores, cosines and features. The stable branch is frozen and has none."""
        by_cosines = by_cosines + self.eta * by_scores
        units = unit_rows(self.columns)
        norms = np.sqrt(np.square(self.columns).sum(axis=1, keepdims=True))
        by_columns = _across(by_cosines.T @ answer.features, units) / np.where(norms > 0, norms, 1)
        by_sums = _across(by_features + by_cosines @ units, answer.features) / answer.lengths
        return Branches(
            stable=np.zeros(0),
            plastic=((1 - self.blend) * by_sums * (answer.plastic > 0)).T @ rows,
            scales=self.blend * (by_sums * answer.stable).sum(axis=0),
            columns=by_columns,
            blend=float((by_sums * (self.scales * answer.stable - answer.plastic)).sum()),
            eta=float((by_scores * answer.cosines).sum()),
        )


def _across(rows: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Rows minus their projections on unit vectors."""
    return rows - (rows * directions).sum(axis=1, keepdims=True) * directions
