"""Where frozen features come from and how they are kept."""

from taer.features.files import FeatureSet, load_features, save_features

__all__ = ["FeatureSet", "load_features", "save_features"]
