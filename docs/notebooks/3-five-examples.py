# %% [markdown]
# # A class from five examples
#
# You have thousands of examples of the old classes and five of the new one. Most classifiers then ignore the new
# class. This notebook compares four heads on 60 classes of drawings with 80 examples each, and 10 new classes with
# only 1, 5 or 20.

# %%
import warnings
from copy import deepcopy

import matplotlib.pyplot as plt
import numpy as np

import taer

data = taer.load_features()  # 100 classes of drawings, seen by a small frozen network
X, y = np.asarray(data.train_x), data.train_y
X_test, y_test = np.asarray(data.test_x), data.test_y
old_test, new_test = y_test < 60, (y_test >= 60) & (y_test < 70)

# %% [markdown]
# ## One new task
#
# The first task is the same for every number of examples, so it is learned once and copied.


# %%
def first_of(label: int, count: int) -> np.ndarray:
    return np.flatnonzero(y == label)[:count]


HEADS = ("bayes", "taer", "ncm", "gauss-chain")
SHOTS = (1, 5, 20)
found = {}
for name in HEADS:
    base = taer.make_head(name, **({"random_state": 0} if name == "taer" else {})).partial_fit(X[y < 60], y[y < 60])
    for shots in SHOTS:
        rows = np.concatenate([first_of(label, shots) for label in range(60, 70)])
        with warnings.catch_warnings(record=True) as caught:
            head = deepcopy(base).partial_fit(X[rows], y[rows])
        if caught and shots == 5:
            print(caught[0].message, end="\n\n")
        found[name, shots] = [head.score(X_test[part], y_test[part]) for part in (old_test, new_test)]

print("examples per new class   " + "".join(f"{shots:>14}" for shots in SHOTS))
for name in HEADS:
    print(
        f"{name:<12} old / new    " + "".join("{:>8.0%} /{:>4.0%}".format(*found[name, shots]) for shots in SHOTS)
    )

# %% [markdown]
# A head that cannot use few examples warns, as `gauss-chain` does here. `head.card.few_shot` is False for such heads.

# %%
figure, axis = plt.subplots(figsize=(6, 3.2))
for name in HEADS:
    axis.plot(SHOTS, [100 * found[name, shots][1] for shots in SHOTS], marker="o", label=name)
axis.set(
    xscale="log",
    xticks=SHOTS,
    xticklabels=SHOTS,
    xlabel="examples per new class",
    ylabel="new classes, accuracy (%)",
)
axis.legend(frameon=False)
assert found["bayes", 5][1] > found["gauss-chain", 5][1]

# %% [markdown]
# ## More examples later
#
# Call `partial_fit` again when more examples of a class arrive. Only the scores of that class change.

# %%
head = taer.Bayes().partial_fit(X[y < 60], y[y < 60]).partial_fit(X[first_of(60, 5)], y[first_of(60, 5)])
others = head.scores(X_test, range(60))
accuracy = [head.score(X_test[y_test == 60], y_test[y_test == 60])]
rest = np.setdiff1d(np.flatnonzero(y == 60), first_of(60, 5))
head.partial_fit(X[rest], y[rest])
accuracy.append(head.score(X_test[y_test == 60], y_test[y_test == 60]))
assert (head.scores(X_test, range(60)) == others).all()
print(f"{data.classes[60]}: {accuracy[0]:.0%} with 5 examples, {accuracy[1]:.0%} with {5 + len(rest)}")
