"""Groups of samples of new classes, on Gaussian classes whose answer is known."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import taer
from taer.loop.discover import _if_known, class_scatter, refined
from taer.loop.evidence import Evidence

WIDTH, KNOWN = 24, 12


def centers() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(20, WIDTH)) * 3


def samples(classes, per_class: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(classes, per_class))
    return centers()[y] + rng.normal(size=(len(y), WIDTH)), y


@pytest.fixture(scope="module", params=[taer.Bayes, taer.BayesReplay])
def head(request):
    return request.param().fit(*samples(range(KNOWN), 20))


@pytest.fixture(scope="module")
def bayes():
    return taer.Bayes().fit(*samples(range(KNOWN), 20))


def test_new_classes_are_found_and_known_ones_left_alone(head):
    X, y = samples(range(6, 17), 25, seed=2)
    found = head.discover(X)
    new = y >= KNOWN
    assert len(found.groups) == 5
    assert (found.labels[new] >= 0).mean() > 0.95
    assert (found.labels[~new] >= 0).mean() < 0.05
    assert found.known[~new].mean() > 0.95
    assert adjusted_rand_score(y[new], found.labels[new]) > 0.95


def test_groups_and_labels_agree(bayes):
    X, _ = samples(range(12, 16), 20, seed=3)
    found = bayes.discover(X)
    assert [group.size for group in found.groups] == sorted((group.size for group in found.groups), reverse=True)
    for number, group in enumerate(found.groups):
        assert sorted(group.rows) == np.flatnonzero(found.labels == number).tolist()
        assert len(group.typical) == 3
        assert set(group.typical) <= set(group.rows)
        assert 0.9 < group.sure <= 1
        assert group.distinct == group.size


def test_the_order_of_the_rows_does_not_matter(bayes):
    X, _ = samples(range(8, 18), 15, seed=4)
    order = np.random.default_rng(0).permutation(len(X))
    found, again = bayes.discover(X), bayes.discover(X[order])
    assert adjusted_rand_score(found.labels[order], again.labels) == 1
    assert sorted(group.sure for group in found.groups) == sorted(group.sure for group in again.groups)


def test_nothing_new_gives_no_groups(bayes):
    X, _ = samples(range(KNOWN), 10, seed=5)
    found = bayes.discover(X)
    assert found.groups == []
    assert (found.labels == -1).all()


def test_copies_are_no_class_and_do_not_change_the_groups(bayes):
    X, _ = samples([13, 14], 20, seed=6)
    rng = np.random.default_rng(0)
    copied = np.repeat(X[:1] + 20, 30, axis=0)
    nearly = copied + rng.normal(size=copied.shape) * 1e-3
    assert bayes.discover(copied).groups == []
    assert bayes.discover(nearly).groups == []
    once, twice = bayes.discover(X), bayes.discover(np.concatenate([X, X]))
    assert (once.labels == twice.labels[: len(X)]).all()
    assert (twice.labels[: len(X)] == twice.labels[len(X) :]).all()
    assert [group.distinct for group in twice.groups] == [group.size for group in once.groups]
    assert not {row % len(X) for row in twice.groups[0].typical[:1]} & {
        row % len(X) for row in twice.groups[0].typical[1:]
    }


def test_scattered_samples_are_not_proposed(bayes):
    X, _ = samples([13, 14], 20, seed=7)
    noise = np.random.default_rng(8).normal(size=(30, WIDTH)) * 6
    found = bayes.discover(np.concatenate([X, noise]))
    assert len(found.groups) == 2
    assert (found.labels[len(X) :] >= 0).mean() < 0.1
    assert found.too_few + found.scattered + found.known.sum() == (found.labels < 0).sum()


def test_what_is_left_out_is_counted(bayes):
    spread = np.random.default_rng(12).normal(size=(40, WIDTH))
    found = bayes.discover(np.concatenate([centers()[13] + 1.5 * spread, centers()[14] + spread[:3]]))
    assert (found.groups, found.scattered, found.too_few, found.known.sum()) == ([], 40, 3, 0)


def test_a_group_is_a_class_up_to_a_limit_of_its_scatter(bayes):
    """Samples around the center of a new class: as wide as a class, somewhat wider, and wider than the limit."""
    spread = np.linalg.qr(np.random.default_rng(11).normal(size=(40, WIDTH)))[0] * np.sqrt(39)  # variance one
    spread -= spread.mean(axis=0)
    for scale, n_groups in ((1.0, 1), (1.1, 1), (1.3, 0)):
        assert len(bayes.discover(centers()[13] + scale * spread).groups) == n_groups


def some_of_each(y: np.ndarray, classes: np.ndarray, start: int, end: int) -> np.ndarray:
    return np.concatenate([np.flatnonzero(y == label)[start:end] for label in classes])


def unseen_scatter(head, X: np.ndarray, y: np.ndarray) -> float:
    directions, psi, *_ = head.prior_.spread
    space = head._in_prior(X) @ directions.T
    each = [space[y == label].var(axis=0, ddof=1) for label in np.unique(y)]
    return float(np.average(np.mean(each, axis=0), weights=psi / (1 + psi)))


@pytest.mark.parametrize(("n_classes", "per_class"), [(10, 20), (20, 20), (30, 5)])
def test_the_scatter_of_a_class_is_that_of_samples_that_were_not_learned(n_classes, per_class):
    sketches = taer.load_features()
    X, y = np.asarray(sketches.train_x), np.asarray(sketches.train_y)
    classes = np.random.default_rng(0).permutation(100)[:n_classes]
    rows, unseen = some_of_each(y, classes, 0, per_class), some_of_each(y, classes, per_class, per_class + 20)
    head = taer.Bayes().fit(X[rows], y[rows])
    truth = unseen_scatter(head, X[unseen], y[unseen])
    assert truth > 1.7  # far from one, which it would be if the prior were the true one
    assert class_scatter(head) == pytest.approx(truth, rel=0.15)
    head = taer.Bayes()  # only the samples of the first task have a part in the prior
    for part in np.split(classes, 5):
        head.partial_fit(X[rows][np.isin(y[rows], part)], y[rows][np.isin(y[rows], part)])
    assert class_scatter(head) == pytest.approx(unseen_scatter(head, X[unseen], y[unseen]), rel=0.25)


@pytest.mark.parametrize("order", [7, 10])
def test_a_small_head_proposes_new_classes(order):
    """Twelve classes of twenty sketches; the pool has fourteen others. A sketch is often unlike others of its class."""
    sketches = taer.load_features()
    X, y = np.asarray(sketches.train_x), np.asarray(sketches.train_y)
    classes = np.random.default_rng(order).permutation(100)
    known, new = some_of_each(y, classes[:12], 0, 20), some_of_each(y, classes[12:26], 0, 20)
    found = taer.Bayes().fit(X[known], y[known]).discover(X[new])
    shares = [np.bincount(y[new][group.rows]) / group.size for group in found.groups]
    assert len({share.argmax() for share in shares if share.max() > 0.5}) >= 7


def test_new_classes_are_found_beside_known_ones_that_look_like_them():
    """Half of new sketches look known by themselves; groups of them are more novel than groups of known ones."""
    sketches = taer.load_features()
    X, y = np.asarray(sketches.train_x), np.asarray(sketches.train_y)
    classes = np.random.default_rng(10).permutation(100)
    learned, known, new = (
        some_of_each(y, classes[:40], 20, 60),
        some_of_each(y, classes[:40], 0, 20),
        some_of_each(y, classes[40:], 0, 20),
    )
    head = taer.Bayes().fit(X[learned], y[learned])
    found = head.discover(np.concatenate([X[known], X[new]]))
    proposed = found.labels >= 0
    assert (head.novelty(X[new]) <= head.novelty_threshold(false_alarms=0.1)).mean() > 0.5
    assert proposed[len(known) :].mean() > 0.4
    assert proposed[: len(known)].mean() < 0.3
    assert (head.discover(X[known]).labels >= 0).mean() < 0.1


@pytest.mark.parametrize("count", [1, 4, 25])
def test_medians_of_known_classes_are_as_likely_as_is_said(count):
    class Head:
        class novelties_:
            novelties = np.linspace([-1.0, 4.0], [1.0, 6.0], 64, axis=1)  # two classes, uniform
            tried = np.array([50.0, 50.0])

    rng = np.random.default_rng(0)
    medians = np.median(rng.uniform(-1, 1, (4000, count)) + rng.choice([0, 5], (4000, 1)), axis=1)
    chance = _if_known(Head, medians, np.full(4000, count))
    for limit in (0.05, 0.2, 0.5, 0.8):
        assert (chance <= limit).mean() == pytest.approx(limit, abs=0.04)


def test_a_pool_larger_than_what_is_searched_gives_the_same_groups(bayes, monkeypatch):
    from taer.loop import discover, evidence

    X, _ = samples(range(12, 18), 40, seed=9)
    whole = bayes.discover(X)
    monkeypatch.setattr(discover, "SEARCHED", 60)
    monkeypatch.setattr(evidence, "SEARCHED", 60)
    parts = bayes.discover(X)
    assert len(whole.groups) == 6
    assert adjusted_rand_score(whole.labels, parts.labels) > 0.98


def test_merging_raises_the_likelihood_and_ends_where_no_merge_would():
    from taer.loop.evidence import Evidence, merged, sums_of

    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 8)
    rows = (rng.normal(size=(4, 6)) * 4)[y] + rng.normal(size=(len(y), 6))
    evidence = Evidence(np.full(6, 16.0), 1.0)
    labels = merged(evidence, np.ones(len(y), np.int64), rows)
    assert adjusted_rand_score(y, labels) == 1
    counts, sums = sums_of(rows, labels)
    total = evidence.of(counts, sums).sum()
    assert total > evidence.alone(rows).sum()
    for other in range(1, 4):
        assert evidence.of(counts[[0, other]].sum(keepdims=True), sums[[0, other]].sum(axis=0)[None])[0] < (
            evidence.of(counts[[0, other]], sums[[0, other]]).sum()
        )


def test_the_evidence_of_a_group_is_that_of_a_gaussian():
    from scipy.stats import multivariate_normal

    from taer.loop.evidence import Evidence

    rows, psi = np.random.default_rng(0).normal(size=(3, 1)), 2.5
    shared = multivariate_normal(np.zeros(3), np.eye(3) + psi).logpdf(rows[:, 0])
    apart = multivariate_normal(np.zeros(3), np.eye(3)).logpdf(rows[:, 0])
    found = Evidence(np.array([psi]), 1.0).of(np.array([3]), rows.sum(axis=0)[None])[0]
    assert found == pytest.approx(shared - apart, rel=1e-5)


def test_few_classes_and_single_samples_can_be_asked():
    X, y = samples(range(3), 1)
    one = taer.Bayes().fit(X, y)
    found = one.discover(samples(range(12, 15), 12, seed=3)[0])
    assert found.labels.shape == (36,)
    assert taer.Bayes().fit(X[:1], y[:1]).discover(X).groups == []


@pytest.mark.parametrize(
    ("X", "message"),
    [(np.zeros((0, WIDTH)), "0 sample"), (np.zeros((3, 5)), "5 features"), (np.full((4, WIDTH), np.nan), "NaN")],
)
def test_bad_input_is_refused(bayes, X, message):
    with pytest.raises(ValueError, match=message):
        bayes.discover(X)


def test_groups_of_texts_have_words_that_are_rare_in_the_rest_of_the_pool(bayes):
    X, y = samples([0, 1, 12, 13], 20, seed=2)
    said = {12: "have to cancel the card", 13: "the rate of the month"}
    texts = [said.get(label, "we have to ask for the day of the trip") for label in y.tolist()]
    found = bayes.discover(X, texts)
    assert {int(y[group.rows[0]]): set(group.words[:2]) for group in found.groups} == {
        12: {"cancel", "card"},
        13: {"rate", "month"},
    }
    assert all(group.words == () for group in bayes.discover(X).groups)
    with pytest.raises(ValueError, match="expected one text per sample, got 80 samples and 79 texts"):
        bayes.discover(X, texts[1:])


def test_a_discovery_changes_nothing_in_the_head(bayes):
    before = {name: id(value) for name, value in vars(bayes).items()}
    bayes.discover(samples([13], 20)[0])
    assert {name: id(value) for name, value in vars(bayes).items()} == before


def test_the_room_is_not_loaded_by_others():
    code = (
        "import sys, numpy as np, taer; taer.Bayes().fit(np.eye(3), [0, 1, 2]).predict(np.eye(3)); "
        "assert not any(name.startswith('taer.loop') for name in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_samples_of_large_groups_go_to_the_nearest_mean_and_others_stay():
    rng = np.random.default_rng(0)
    points = np.repeat([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]], [20, 20, 3], axis=0) + 0.3 * rng.normal(size=(43, 2))
    labels = np.repeat([0, 1, 2], [20, 20, 3])
    wrong = labels.copy()
    wrong[[0, 1, 39]] = 1, 1, 0
    evidence = Evidence(np.array([9.0, 9.0]), 1.0)
    assert refined(evidence, points, wrong).tolist() == labels.tolist()
    alone = np.arange(43)
    assert refined(evidence, points, alone).tolist() == alone.tolist()
