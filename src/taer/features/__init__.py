"""Feature sets: extracting, reading and writing frozen features."""

from taer.features.arrays import features_from_arrays
from taer.features.readers import load_features, save_features
from taer.features.set import FeatureSet

__all__ = ["FeatureSet", "features_from_arrays", "load_features", "save_features"]
