"""Heads computed in closed form from class statistics: no exemplars, no learning rate, one pass. One file per method."""
