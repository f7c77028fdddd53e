"""``bayes``, the recommended head: Gaussian classes under a prior that the first task teaches."""
