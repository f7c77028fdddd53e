"""``bayes``, the recommended head."""

from taer.heads.bayes.head import Bayes as Bayes
