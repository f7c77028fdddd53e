"""The loop around a ``bayes`` head: what is new, what to label, what it may answer alone, and why."""
