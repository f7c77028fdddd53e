"""Heads with a small trainable network (an adapter) between the frozen features and the classes.

Some published methods choose which hidden units of a network may change or respond, so they cannot work on a linear
classifier alone. The adapter is the smallest network on which they can: one layer of rectified units. Their upper bound
is ``joint-adapter``, joint training of the same network, because the adapter itself changes the upper bound.
"""
