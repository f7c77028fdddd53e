"""Where frozen features come from and how they are kept."""

from taer.features.arrays import features_from_arrays
from taer.features.files import FeatureSet, load_features, save_features

__all__ = ["FeatureSet", "features_from_arrays", "load_features", "save_features"]
