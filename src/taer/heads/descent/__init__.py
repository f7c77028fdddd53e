"""Heads whose columns (weight vectors) are trained by SGD on the frozen features; one file per method.

On frozen features a method consists of: which samples, which gradient of the scores, which columns move. ``loop.py``
does the rest.
"""
