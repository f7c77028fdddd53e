# %% [markdown]
# # Two sites merged
#
# Two hospitals, factories or branches each have data that must not leave the site. Each trains its own head. Heads whose
# state is sums over samples can be added: the sum equals a head that has seen all samples. Only the heads are exchanged,
# not the samples.

# %%
import copy

import numpy as np

import taer

data = taer.load_features()
X, y = np.asarray(data.train_x), data.train_y
X_test, y_test = np.asarray(data.test_x), data.test_y

# %% [markdown]
# ## Each site has half of every class
#
# `slda` stores counts, means and one covariance.

# %%
north_rows = np.arange(len(y)) % 2 == 0
north = taer.SLDA().fit(X[north_rows], y[north_rows])
south = taer.SLDA().fit(X[~north_rows], y[~north_rows])
both = north + south

alone = taer.SLDA().fit(X, y)
for name, head in {"north": north, "south": south, "merged": both, "all in one place": alone}.items():
    print(f"{name:<18}{head.score(X_test, y_test):.1%}")
agreement = (both.predict(X_test) == alone.predict(X_test)).mean()
print(f"{agreement:.1%} of the answers of the merged head are those of one that saw everything")
assert agreement > 0.99

# %% [markdown]
# ## Each site has its own classes
#
# Heads that fix something in their first task, such as `lda-frozen`, can be merged if both started as copies of one head.
# Give `merge` that base, so that its samples count once.

# %%
base = taer.LDAFrozen().fit(X[y < 60], y[y < 60])
old_scores = base.scores(X_test, range(60))
north, south = copy.deepcopy(base), copy.deepcopy(base)
in_north, in_south = (y >= 60) & (y < 80), y >= 80
north.partial_fit(X[in_north], y[in_north])
south.partial_fit(X[in_south], y[in_south])
both = north.merge(south, base=base)

print(f"{len(both.classes_)} classes, {both.score(X_test, y_test):.1%}")
assert (both.scores(X_test, range(60)) == old_scores).all()
one_by_one = copy.deepcopy(base).partial_fit(X[in_north], y[in_north]).partial_fit(X[in_south], y[in_south])
agreement = (both.predict(X_test) == one_by_one.predict(X_test)).mean()
print(f"{agreement:.1%} of the answers are those of a head that learned both sites one after the other")
assert agreement > 0.99

# %% [markdown]
# ## A wrong label
#
# The same sums can be subtracted. `unlearn` removes single samples, so a wrong label can be corrected without new training.

# %%
head = taer.SLDA().fit(X, y)
mistaken, wrong = X[:5], np.full(5, 99)
before = head.scores(X_test)
head.partial_fit(mistaken, wrong)
assert not np.allclose(head.scores(X_test), before, atol=1e-3)
head.unlearn(mistaken, wrong)
assert np.allclose(head.scores(X_test), before, atol=1e-3)
print(f"largest difference after taking five samples back: {np.abs(head.scores(X_test) - before).max():.1e}")
