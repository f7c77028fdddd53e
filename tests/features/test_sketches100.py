"""The embedded data set: its content, its origin, and that it is in the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import taer


def test_sketches100_is_the_default():
    sketches = taer.load_features()
    assert sketches.name == sketches.meta["dataset"] == "sketches100"
    assert (len(sketches.train_x), len(sketches.test_x), len(sketches.classes)) == (8000, 2000, 100)
    assert np.bincount(sketches.train_y).tolist() == [80] * 100
    assert np.bincount(sketches.test_y).tolist() == [20] * 100
    assert isinstance(sketches.train_x, np.memmap)
    assert sketches.meta["backbone"] == "efficientnet-lite0"


def test_sketches100_is_small_and_attributed():
    folder = Path(taer.__file__).parent / "features" / "data"
    assert (folder / "sketches100.safetensors").stat().st_size <= 8_000_000
    licence = taer.load_features().meta["licence"]
    assert "CC BY 4.0" in licence
    assert "Google" in licence


def test_sketches100_can_be_learned():
    """The nearest class mean is correct far more often than chance, so the features are meaningful."""
    sketches = taer.load_features()
    train, test = (x.astype(np.float32) for x in (sketches.train_x, sketches.test_x))
    train, test = ((x - train.mean(0)) / train.std(0) for x in (train, test))
    means = train.reshape(100, 80, -1).mean(1)  # samples are kept class after class
    guesses = (2 * test @ means.T - (means**2).sum(1)).argmax(1)
    assert (guesses == sketches.test_y).mean() > 0.4
