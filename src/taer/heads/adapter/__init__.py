"""Heads with a small trainable network (an adapter) between the frozen features and the classes.

Some published systems decide which hidden units of a network may change or answer, so they have no form on a single
layer of columns. The adapter is the least network on which they have one: a layer of rectified units. Their bound is
``joint-adapter``, joint training of the same network, because the adapter alone moves the upper bound.
"""
