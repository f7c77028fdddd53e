"""The constants of the head: what each does. ``docs/how/bayes.md`` has how each was chosen and what it changes."""

# The density of a class
TEMPER = 0.5  # fraction of the log-determinant in the score
DEVIATIONS = 3.0  # above the mean reduction of a squared distance by the directions of a class, where it is cut

# The prior
DIRECTIONS = 256  # most directions in which samples, or class means, are told from the others
LEAST_GAIN = 0.1  # relative change of a direction by the map; below it, the map leaves the direction alone
WIDER, IMAGINED = 2.0, 20.0  # new classes are farther apart than the first; pseudo-classes of equal variance
SURE = 8  # classes of a first task from which on it says something of later ones
BROAD, WITHIN = 5.0, 0.5  # pseudo-samples of the total variance, and the fraction of it that is within classes
SIZES = (1, 2, 5, 10, 30, 100, 1000)  # numbers of samples for the default offsets
LATER, LATER_SAMPLES = 0.02, 30  # per feature: how much better the prior fits the classes of the first task

# The trial
SHRINKAGES = (0.6, 0.4)  # of the covariance within classes; the first is the default
STRENGTHS = (2.0, 0.5, 1.0, 4.0)  # of the prior, in pseudo-samples per feature; the first is the default
TEMPERATURE = 0.35  # times the root of the number of features: log-densities of correlated features are too sure
FOLDS = 4  # one of which is treated as new classes
KNOTS = (1, 5, 20)  # numbers of samples of the classes treated as new
NEW = 1 / 3  # weight of the classes treated as new against the others
TRIAL_CLASSES, TRIAL_ROWS = 100, 400  # most of them in the trial
TRIAL_DIRECTIONS, TRIAL_RANK = 128, 32  # of the covariance within classes, and of each class
FAR = 2.0  # deviations above the mean distance of samples from the center, from which on a sample is far
