"""The ML backend of Label Studio: predictions for its tasks, and a head that learns from its annotations."""
