"""Samples with several labels, or none: each label is in or out by itself."""
