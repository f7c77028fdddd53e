# %% [markdown]
# # None of these
#
# A classifier always answers with one of its classes, even for a sample that belongs to none. `novelty` measures how
# little a sample looks like any known class, and `predict` can answer "none of these".

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score

import taer

data = taer.load_features()
X, y = np.asarray(data.train_x), data.train_y
X_test, y_test = np.asarray(data.test_x), data.test_y

# %% [markdown]
# ## Half of the classes are unknown

# %%
head = taer.Bayes().partial_fit(X[y < 50], y[y < 50])
novelty = head.novelty(X_test)
unknown = y_test >= 50
auroc = roc_auc_score(unknown, novelty)
print(f"AUROC {auroc:.3f}: the chance that an unknown drawing is more novel than a known one")
assert auroc > 0.6

figure, axis = plt.subplots(figsize=(6, 3))
for part, label in ((~unknown, "known classes"), (unknown, "unknown classes")):
    axis.hist(novelty[part], bins=40, alpha=0.6, label=label)
axis.set(xlabel="novelty", ylabel="drawings")
axis.legend(frameon=False)

# %% [markdown]
# ## Where to draw the line
#
# `novelty_threshold(X, false_alarms=0.05)` returns the novelty that 5 % of the samples in `X` exceed. `X` has samples of
# known classes that the head was not trained on; here, half of the known test drawings.

# %%
known = np.flatnonzero(~unknown)
threshold = head.novelty_threshold(X_test[known[::2]], false_alarms=0.05)
answers = head.predict(X_test, unknown=-1, threshold=threshold)
alarms, found = (answers[known[1::2]] == -1).mean(), (answers[unknown] == -1).mean()
print(f"rejected: {alarms:.1%} of the other known drawings, {found:.1%} of the unknown ones")
assert alarms < 0.1 < found

# %% [markdown]
# ## Teach it what it did not know
#
# The rejected drawings go to a person, who names some of them. After that they are known.

# %%
new = (y >= 50) & (y < 60)
head.partial_fit(X[new], y[new])
now_known = (y_test >= 50) & (y_test < 60)
after = head.novelty(X_test[now_known]).mean()
print(f"mean novelty of the ten new classes: {novelty[now_known].mean():.1f} before, {after:.1f} after")
assert after < novelty[now_known].mean()
