# %% [markdown]
# # A month at a support desk
#
# A desk knows 50 topics. Each week tickets arrive about known topics and about new ones. This notebook runs the
# whole loop around a head: find what is new, choose what to label, compare the new version with the old one, promote it.
# It counts the labels that a person gives, and compares with labels of tickets drawn at random.
#
# Set `FEATURES` to a feature file of your own, such as CLINC150 made by
# `taer extract clinc150.csv --backbone minilm --out clinc150.safetensors`. Without one, the embedded drawings play the
# tickets. [Measured](../evidence/loop.md#a-month-at-a-support-desk) on CLINC150.

# %%
import os
from copy import deepcopy

import numpy as np

import taer
from taer.loop.compare import compare

FEATURES = os.environ.get("FEATURES")  # a path, or None
SEED = int(os.environ.get("SEED", "0"))
KNOWN, WEEKS, LABELS = 50, 4, 100  # labels that a person gives per week

data = taer.load_features(FEATURES)
names = np.array(data.classes)
rng = np.random.default_rng(SEED)
topics = rng.permutation(len(names))
X, y = np.asarray(data.train_x, np.float32), np.asarray(data.train_y)
X_test, y_test = np.asarray(data.test_x, np.float32), np.asarray(data.test_y)

# %% [markdown]
# ## The tickets
#
# Of each known topic, 40 % of the examples are labeled, and a fifth of these held out to compare versions. New topics
# begin in one of the four weeks. From then on every topic has the same number of tickets per week.

# %%
known = topics[:KNOWN]
begins = {int(topic): week for week, part in enumerate(np.array_split(topics[KNOWN:], WEEKS)) for topic in part}
learned: list[int] = []
held: list[int] = []
arrived: list[list[int]] = [[] for _ in range(WEEKS)]
for topic in topics.tolist():
    rows = rng.permutation(np.flatnonzero(y == topic)).tolist()
    per_week, some = len(rows) * 3 // 5 // WEEKS, len(rows) * 2 // 5
    if topic not in begins:
        held += rows[: some // 5]
        learned += rows[some // 5 : some]
    for week in range(begins.get(topic, 0), WEEKS):
        arrived[week] += rows[some + week * per_week : some + (week + 1) * per_week]
weeks = [rng.permutation(rows) for rows in arrived]

start = taer.Bayes().fit(X[learned], y[learned])
print(f"{len(learned)} labeled tickets of {KNOWN} topics, {len(held)} held out")
print("tickets per week:", ", ".join(str(len(rows)) for rows in weeks))

# %% [markdown]
# ## One week
#
# A person labels 100 tickets. `discover` proposes groups of no known topic. As most tickets are about known ones, only
# groups are taken whose median is more novel than 98 % of known tickets. In each the person labels the five tickets
# that `suggest` picks. Each gets its own label, so a group need not be pure. What is left of the 100 goes to tickets
# outside the groups.


# %%
def by_the_loop(head: taer.Bayes, rows: np.ndarray, count: int) -> np.ndarray:
    limit = deepcopy(head).novelty_threshold(false_alarms=0.02)
    groups = [
        group for group in head.discover(X[rows]).groups if np.median(head.novelty(X[rows[group.rows]])) > limit
    ]
    groups = groups[: count // 5]
    picked = [group.rows[head.suggest(X[rows[group.rows]], 5)] for group in groups]
    chosen = np.concatenate([*picked, np.empty(0, int)])
    grouped = np.concatenate([*(group.rows for group in groups), np.empty(0, int)])
    left = np.setdiff1d(np.arange(len(rows)), grouped)
    if len(chosen) < count:
        chosen = np.append(chosen, left[head.suggest(X[rows[left]], count - len(chosen))])
    print(f"groups proposed: {len(groups)},", end=" ")
    return rows[chosen]


def at_random(head: taer.Bayes, rows: np.ndarray, count: int) -> np.ndarray:
    return rng.permutation(rows)[:count]


def among_unknown(head: taer.Bayes, rows: np.ndarray, count: int) -> np.ndarray:
    """At random among those that the head finds most novel, three times as many as are labeled."""
    return rng.permutation(rows[np.argsort(-head.novelty(X[rows]))[: 3 * count]])[:count]


def every_ticket(head: taer.Bayes, rows: np.ndarray, count: int) -> np.ndarray:
    return rows


# %% [markdown]
# ## The month
#
# What was labeled is learned as one task. The new version is a candidate: `compare` lets both versions answer held-out
# tickets of the first 50 topics. `not_worse` says whether the candidate may be promoted without asking. Otherwise a
# person reads the sentence, and here promotes it in any case: the new topics are worth a point.

# %%
WAYS = {
    "by the loop": by_the_loop,
    "at random": at_random,
    "at random among the most novel": among_unknown,
    "every ticket": every_ticket,
}
heads = dict.fromkeys(WAYS, start)
given = dict.fromkeys(WAYS, 0)
accuracies: dict[str, list[float]] = {way: [] for way in WAYS}
for week, rows in enumerate(weeks):
    there = np.isin(y_test, [*known, *(topic for topic, first in begins.items() if first <= week)])
    print(f"week {week + 1}:", end=" ")
    for way, choose in WAYS.items():
        old = heads[way]
        chosen = choose(old, rows, LABELS)
        heads[way] = deepcopy(old).partial_fit(X[chosen], y[chosen])
        given[way] += len(chosen)
        accuracies[way].append(heads[way].score(X_test[there], y_test[there]))
        if way == "by the loop":
            found = compare(old, heads[way], X[held], y[held])
            fresh = [str(names[label]) for label in found.new_classes]
            verdict = "promoted" if found.not_worse else "a person is asked, and promotes it"
            print(f"new topics: {len(fresh)} ({', '.join(fresh[:3])}, …)\n  {found.sentence()}: {verdict}")

# %% [markdown]
# ## What the month brought
#
# Accuracy is on test tickets of the topics that have arrived by the end of each week.

# %%
print(f"{'tickets labeled':<32}{'labels':>7}{'topics':>8}" + "".join(f"  week {week + 1}" for week in range(WEEKS)))
for way, values in accuracies.items():
    cells = "".join(f"{100 * value:8.1f}" for value in values)
    print(f"{way:<32}{given[way]:7}{len(heads[way].classes_):8}{cells}")
assert accuracies["by the loop"][-1] > accuracies["at random"][-1]
