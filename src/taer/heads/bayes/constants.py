"""The choices of the method: what each does. ``docs/how/bayes.md`` has how each was chosen and what it changes.

Numbers that only guard against rounding, or keep work in the cache, are beside their code.
"""

# The density of a class
TEMPER = 0.5  # fraction of the log-determinant in the score
DEVIATIONS = 3.0  # above the mean reduction of a squared distance by the directions of a class, where it is cut
NARROW = (
    128  # features up to which directions have two bytes: they take little room, and repeated corrections lose less
)

# The prior
WIDE = 2048  # features from which on the directions of the prior have one byte, not two: for room
DIRECTIONS = 256  # most directions in which samples, or class means, are told from the others
LEAST_GAIN = 0.1  # relative change of a direction by the map; below it, the map leaves the direction alone
WIDER, IMAGINED = 2.0, 20.0  # new classes are farther apart than the first; pseudo-classes of equal variance
SURE = 8  # classes of a first task from which on it says something of later ones
BROAD, WITHIN = 5.0, 0.5  # pseudo-samples of the total variance, and the fraction of it that is within classes
SIZES = (1, 2, 5, 10, 30, 100, 1000)  # numbers of samples for the default offsets
LATER, LATER_SAMPLES = 0.02, 30  # per feature: how much better the prior fits the classes of the first task
LEVEL, LEVEL_CLASSES = (
    0.2,
    3,
)  # the mean variance of class means before the first class, and how many classes it counts as
UNLABELED, LEADING = (
    4096,
    256,
)  # unlabeled samples that are looked at, and directions of them that are kept: for time

# The trial
SHRINKAGES = (0.6, 0.4)  # of the covariance within classes; the first is the default
STRENGTHS = (2.0, 0.5, 1.0, 4.0)  # of the prior, in pseudo-samples per feature; the first is the default
TEMPERATURE = 0.35  # times the root of the number of features: log-densities of correlated features are too sure
FOLDS = 4  # one of which is treated as new classes
KNOTS = (1, 5, 20)  # numbers of samples of the classes treated as new
NEW = 1 / 3  # weight of the classes treated as new against the others
TRIAL_CLASSES, TRIAL_ROWS = 100, 400  # most of them in the trial
TRIAL_DIRECTIONS = 128  # of the covariance within classes
TRIAL_RANK, TRIAL_EXACT = 32, 64  # directions of a class with more samples than these; all that fewer have
FAR = 2.0  # deviations above the mean distance of samples from the center, from which on a sample is far

# The novelty of samples that are learned
HELD_OUT = 8  # folds of the samples of a class; with four, sets of 80 % hold 1 point too many
TRIED, ASKED = (
    512,
    32,
)  # samples per class from which a held-out one is learned, and whose misfit is measured: for time
AT_ONCE = 64  # samples up to which all folds of a class are learned at once, along all samples: for time
SMALL, FIRST_FOLDS = (
    500,
    4,
)  # samples of a first task up to which the prior is left out of their novelty, too; folds
COMPARED = 2048  # how many scores may be computed to measure the novelty of one class's samples: for time
NEAREST = 256  # other classes with full scores for a held-out sample; beyond these, one hardly ever is the best
