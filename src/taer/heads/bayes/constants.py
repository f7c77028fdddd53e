"""The choices of the method: what each does.

``docs/reference/bayes-constants.md`` has how each was chosen and what it changes. Numbers that only guard against
rounding, or keep work in the cache, are beside their code.
"""

from __future__ import annotations

from typing import NamedTuple

# The density of a class
TEMPER = 0.5  # fraction of the log-determinant in the score
DEVIATIONS = 3.0  # above the mean reduction of a squared distance by the directions of a class, where it is cut
NARROW = 128  # features up to which directions have two bytes: they take little room, and corrections lose less

# The prior
WIDE = 2048  # features from which on the directions of the prior have one byte, not two: for room
PRIOR_CLASSES = 2000  # most classes of the first task that are looked at: for time
DIRECTIONS = 256  # most directions in which samples, or class means, are told from the others
LEAST_GAIN = 0.1  # relative change of a direction by the map; below it, the map leaves the direction alone
WIDER = 2.0  # factor of the variance of class means: new classes are farther apart than the first
IMAGINED = 20.0  # pseudo-classes of equal variance
SURE = 8  # classes of a first task from which on it says something of later ones
BROAD = 5.0  # pseudo-samples of the total variance
WITHIN = 0.5  # the fraction of it that is within classes
SIZES = (1, 2, 5, 10, 30, 100, 1000)  # numbers of samples for the default offsets
LATER = 0.02  # per feature: how much better the prior fits the classes of the first task
LATER_SAMPLES = 30  # with which a class of the first task has half of that lead
LEVEL = 0.2  # mean variance of class means before the first class
LEVEL_CLASSES = 3  # how many classes it counts as
UNLABELED = 4096  # unlabeled samples that are looked at: for time
LEADING = 256  # directions of them that are kept

# The trial
SHRINKAGES = (0.6, 0.4)  # of the covariance within classes; the first is the default
STRENGTHS = (2.0, 0.5, 1.0, 4.0)  # of the prior, in pseudo-samples per feature; the first is the default
TEMPERATURE = 0.35  # times the root of the number of features: log-densities of correlated features are too sure
FOLDS = 4  # one of which is treated as new classes
KNOTS = (1, 5, 20)  # numbers of samples of the classes treated as new
NEW = 1 / 3  # weight of the classes treated as new against the others
TRIAL_CLASSES = 100  # most of them in the trial
TRIAL_ROWS = 400  # most held-out samples of new, and of other, classes in a fold
TRIAL_DIRECTIONS = 128  # of the covariance within classes
TRIAL_EXACT = 64  # samples up to which a class is taken along all of them
TRIAL_RANK = 32  # directions of a class with more samples
FAR = 2.0  # deviations above the mean distance of samples from the center, from which on a sample is far

# The novelty of samples that are learned
TRIED = 512  # samples per class from which a held-out one is learned: for time
ASKED = 64  # how many of a class with more than the next number have their misfit measured: for time
AT_ONCE = 128  # samples that are left out one by one of a class along all of them: for time
SMALL = 10_000  # samples of a first task up to which the prior is left out of their novelty, too
FIRST_FOLDS = 4  # for which they are divided
FIRST_ASKED = 250  # about how many of them are asked, in whole folds: for time
COMPARED = 2048  # how many scores may be computed to measure the novelty of one class's samples: for time
NEAREST = 256  # other classes with full scores for a held-out sample; beyond these, one hardly ever is the best
QUANTILES = 32  # of equal weight, that are kept per class

# Descriptions
DESCRIBED = 3.0  # imagined described classes whose noise is that of one example
MOST_EXAMPLES = 20.0  # that a description counts as


# The correction of ``bayes-replay``
class Strength(NamedTuple):
    """How far to go from ``bayes`` (a scale of 1 and a large penalty) to logistic regression (0 and a small one)."""

    scale: float  # of the scores of ``bayes``
    penalty: float  # of the squared weights, in units of the summed log loss


DEFAULT = Strength(0.7, 300.0)
BOLD = Strength(0.25, 100.0)  # where held-out samples ask for it
CAREFUL = Strength(1.0, 1000.0)  # where the first task has too few classes or samples to ask
BOLDER = 2.0  # standard errors by which the bold strength must be better than the default
HALVES = 2  # folds of the samples, held out in turn to choose the strength
CHOICE_ROWS = 10_000  # most samples for this choice: for time
CORRECTED = 10  # kept samples of a class from which a correction is learned: with fewer it does harm
CORRECTED_CLASSES = 8  # of the first task, for a choice by held-out samples
STEPS = 15  # of L-BFGS
BIAS = 1e-3  # penalty of the bias, as a fraction of that of the weights
HOPELESS = 8.0  # logarithm of the odds beyond which a correction changes nothing
OWN_ROWS = 500  # most samples of a class on which its correction is learned: for time
OTHER_ROWS = 64  # most samples of a class on which the corrections of later ones are learned: for time
