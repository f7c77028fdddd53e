"""Confusion matrices as small images that a page can read: one pixel per pair of classes."""

from __future__ import annotations

import base64
import csv
import io
from dataclasses import dataclass

import numpy as np

from taer.experiment import Result


@dataclass(frozen=True)
class Confusion:
    """The confusion matrix of one run; classes in order of learning."""

    label: str
    classes: list[str]
    counts: np.ndarray

    @classmethod
    def of(cls, label: str, result: Result) -> Confusion:
        return cls(label, result["classes"], np.array(result["confusion"]))

    @property
    def ratios(self) -> np.ndarray:
        """For each class, the fraction of its samples predicted as each class."""
        return self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1)

    @property
    def png(self) -> str:
        """A data URL of a gray image; brightness is the square root of the ratio."""
        from matplotlib.image import imsave

        file = io.BytesIO()
        imsave(file, np.sqrt(self.ratios), cmap="gray", vmin=0, vmax=1, format="png", metadata={"Software": ""})
        return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"

    def csv(self) -> str:
        """Counts with class names: rows are true, columns predicted."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["true \\ predicted", *self.classes])
        for name, row in zip(self.classes, self.counts.tolist(), strict=True):
            writer.writerow([name, *row])
        return file.getvalue()
