"""Heads trained by stochastic gradient descent on columns above the frozen features; one file per method.

On frozen features a method is: which samples, which gradient of the scores, which columns move. ``loop.py`` does the
rest.
"""
