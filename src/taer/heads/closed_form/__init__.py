"""Heads in closed form on statistics of the classes: no exemplars, no learning rate, one pass; one file per method."""
