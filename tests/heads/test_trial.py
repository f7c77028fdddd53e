"""The trial of ``bayes`` beside plain definitions: its episodes, its fit, what it chooses, and what becomes of that."""

from __future__ import annotations

import numpy as np
import pytest

from taer.heads.bayes import trial
from taer.heads.bayes.constants import DIRECTIONS, FAR, NEW, STRENGTHS, TEMPER, TEMPERATURE, TRIAL_DIRECTIONS
from taer.heads.bayes.density import Classes, Space, Spread, log_densities, summarize, view_of
from taer.heads.bayes.prior import (
    Pseudo,
    covariance_within,
    default_offsets,
    doubt,
    spread_of_means,
    stored,
    whitening,
)
from taer.heads.bayes.trial import Chosen, Fit


def samples(n_classes, per_class, width=6, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(n_classes), per_class))
    centers = rng.normal(size=(n_classes, width))
    return 1.5 * centers[y] + noise * rng.normal(size=(len(y), width)), y


def pseudo_of(rows, samples=5.0):
    return Pseudo(samples, float(np.var(rows, axis=0).mean()), np.zeros((0, rows.shape[1])))


# When there is a trial


@pytest.mark.parametrize(("n_classes", "per_class"), [(7, 40), (8, 1)])
def test_with_few_classes_or_samples_the_defaults_are_taken(n_classes, per_class):
    rows, y = samples(n_classes, per_class)
    found = trial.chosen(rows, y, pseudo_of(rows))
    assert found[:2] == (0.6, 2.0)
    assert found.temperature == 0.35 * np.sqrt(6)
    assert found.knots is None
    assert found.far.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("counts", "few"), [([2] * 8, [1]), ([9] * 8, [1]), ([10] * 7 + [50], [1, 5]), ([40] * 9, [1, 5, 20])]
)
def test_new_classes_have_as_many_samples_as_half_of_the_smallest(monkeypatch, counts, few):
    seen = []
    monkeypatch.setattr(trial, "_measured", lambda *given: seen.append(given) or "measured")
    y = np.repeat(np.arange(len(counts)), counts)
    rows = np.ones((len(y), 2))
    assert trial.chosen(rows, y, pseudo_of(rows)) == "measured"
    assert seen[0][3] == few
    assert seen[0][0] is rows


def test_what_is_chosen_becomes_the_prior_the_more_so_the_more_classes(monkeypatch):
    given = []
    monkeypatch.setattr(trial, "stored", lambda *parts: given.append(parts) or stored(*parts))
    knots, far = np.array([[0.0, 1.0, 4.0], [2.0, -1.0, 3.0]]), np.array([7.0, 0.5])
    for n_classes in (4, 10, 40):
        rows, y = samples(n_classes, 6, width=5)
        rows[y == 0] += 9  # the mean of class means is not that of the samples
        rows, y = rows[3:], y[3:]
        pseudo = pseudo_of(rows)
        prior = trial.fitted_prior(rows, y, pseudo, Chosen(0.4, 3.0, 0.7, knots, far))
        map_, spread, strength, offsets, temperature, distance = given.pop()
        within = covariance_within(rows, y, 5, pseudo, DIRECTIONS)
        means = np.stack([rows[y == label].mean(axis=0) for label in range(n_classes)])
        np.testing.assert_allclose(map_.center, means.mean(axis=0))
        assert map_.scale == whitening(within, 0.4, means.mean(axis=0)).scale
        expected = spread_of_means(means, np.bincount(y).astype(float), within, map_)
        np.testing.assert_allclose(spread.psi, expected.psi, rtol=1e-9)
        np.testing.assert_allclose(spread.rest, expected.rest, rtol=1e-9)
        share = max(0, 1 - doubt(n_classes))
        default = default_offsets(spread, within, pseudo)
        np.testing.assert_array_equal(offsets[0], knots[0])
        expected = share * knots[1] + (1 - share) * np.interp(knots[0], default[0], default[1])
        np.testing.assert_allclose(offsets[1], expected, rtol=1e-12)
        assert (strength, temperature) == (3.0, 0.7)
        assert distance is far
        assert (prior.strength, prior.temperature) == (3.0, 0.7)
        trial.fitted_prior(rows, y, pseudo, Chosen(0.4, 3.0, 0.7, None, far))
        np.testing.assert_array_equal(given.pop()[3], default)


# Episodes


@pytest.fixture
def wide():
    """Eleven classes of 8 to 28 samples."""
    rng = np.random.default_rng(3)
    y = rng.permutation(np.repeat(np.arange(11), [8, 9, 10, 11, 12, 14, 16, 20, 23, 24, 28]))
    return 1.5 * rng.normal(size=(11, 7))[y] + rng.normal(size=(len(y), 7)), y


def expected_episodes(rows, y, shots, pseudo, shrinkage):
    """Each fold in loops: what is asked, its classes, and the scores for a strength, by number of samples shown."""
    rng = np.random.default_rng(0)
    members = [rng.permutation(np.flatnonzero(y == label)) for label in range(y.max() + 1)]
    for fold in range(4):
        is_new = [label % 4 == fold for label in range(len(members))]
        held = [each[: max(1, len(each) // (4 if late else 5))] for each, late in zip(members, is_new, strict=True)]
        left = [each[len(out) :] for each, out in zip(members, held, strict=True)]
        asked = np.concatenate(
            [*(out for out, late in zip(held, is_new, strict=True) if not late),
             *(out for out, late in zip(held, is_new, strict=True) if late)]
        )  # fmt: skip
        known = [label for label in range(len(members)) if not is_new[label]]
        train = np.concatenate([left[label] for label in known])
        numbered = np.array([known.index(label) for label in y[train]])
        within = covariance_within(rows[train], numbered, rows.shape[1], pseudo, TRIAL_DIRECTIONS)
        means = np.stack([rows[left[label]].mean(axis=0) for label in known])
        map_ = whitening(within, shrinkage, means.mean(axis=0))
        counts = np.array([float(len(left[label])) for label in known])
        spread = spread_of_means(means, counts, within, map_)
        z = map_(rows)
        space = Space(z[asked], np.square(z[asked]).sum(axis=1), z[asked] @ spread.directions.T)

        def scores(strength, z=z, left=left, is_new=is_new, space=space, spread=spread):
            def of(seen):
                view = view_of(space, Classes.of(spread.width, summarize(seen, len(seen))), spread)
                return log_densities(space, view, strength * rows.shape[1], spread)[:, 0]

            classes = list(zip(left, is_new, strict=True))
            return np.stack(
                [np.stack([of(z[each[:k] if late else each]) for each, late in classes], axis=1) for k in shots]
            )

        yield y[asked], is_new, scores, z[asked], spread


@pytest.mark.parametrize("shrinkage", [0.6, 0.4])
def test_episodes_are_what_they_say(wide, shrinkage):
    rows, y = wide
    pseudo, shots = pseudo_of(rows), [1, 4, 28]
    found = trial._episodes(rows, y, shots, 7, pseudo)
    assert list(found) == [0.6, 0.4]
    expected = expected_episodes(rows, y, shots, pseudo, shrinkage)
    for one, (target, is_new, scores, z, spread) in zip(found[shrinkage], expected, strict=True):
        np.testing.assert_array_equal(one.target, target)
        np.testing.assert_array_equal(one.new, is_new)
        assert list(one.shown) == shots
        assert one.asked.rows.dtype == np.float32
        np.testing.assert_allclose(one.asked.rows, z, atol=1e-5)
        np.testing.assert_allclose(one.spread.psi, spread.psi, rtol=1e-9)
        for strength in (0.5, 2.0):
            np.testing.assert_allclose(one.scores(strength), scores(strength), rtol=1e-4, atol=1e-3)


def test_large_classes_are_taken_along_some_directions(wide, monkeypatch):
    rows, y = wide
    seen = []

    class Watched(Classes):
        @classmethod
        def shown(cls, samples, rank, exact, width):
            seen.append((max(map(len, samples)), rank, exact))
            return Classes.shown(samples, rank, exact, width)

    monkeypatch.setattr(trial, "Classes", Watched)
    trial._episodes(rows, y, [1, 28], 7, pseudo_of(rows))
    assert {(rank, exact) for _, rank, exact in seen} == {(32, 64)}


def test_few_of_many_held_out_samples_are_asked_evenly(wide, monkeypatch):
    rows, y = wide
    whole = trial._episodes(rows, y, [1], 7, pseudo_of(rows))[0.6]
    monkeypatch.setattr(trial, "TRIAL_ROWS", 5)
    for few, all_of_it in zip(trial._episodes(rows, y, [1], 7, pseudo_of(rows))[0.6], whole, strict=True):
        late = all_of_it.new[all_of_it.target]
        expected = [group[:: -(-len(group) // 5)] for group in (all_of_it.target[~late], all_of_it.target[late])]
        np.testing.assert_array_equal(few.target, np.concatenate(expected))
    np.testing.assert_array_equal(trial._some(np.arange(5)), np.arange(5))
    np.testing.assert_array_equal(trial._some(np.arange(6)), [0, 2, 4])
    assert len(trial._some(np.arange(0))) == 0


# The fit


def loss_of(scores, target, new, width, temperature, offsets):
    """The weighted log loss in loops."""
    late = np.array([new[row, label] for row, label in enumerate(target)])
    total = np.zeros(scores.shape[:2])
    for shot in range(len(scores)):
        for row, label in enumerate(target):
            logits = (scores[shot, row] + offsets[shot] * new[row]) / temperature
            weight = NEW / late.sum() if late[row] else (1 - NEW) / (~late).sum()
            total[shot, row] = -weight * (
                logits[label] - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
            )
    return total


@pytest.fixture
def task():
    """Scores of 60 held-out samples for 9 classes, of which 3 are new to the first half and 2 to the other."""
    rng = np.random.default_rng(0)
    target = rng.integers(0, 9, 60)
    new = np.zeros((60, 9), bool)
    new[:30, :3] = new[30:, 3:5] = True
    scores = 3 * rng.normal(size=(2, 60, 9))
    scores[:, np.arange(60), target] += 3
    scores[0] -= 4 * new  # with one sample, new classes are crowded out
    scores[1] += 1 * new
    return scores, target, new


def test_the_fit_has_the_lowest_loss(task):
    scores, target, new = task
    found = trial._fit(scores, target, new, 6)
    assert 0.25 < found.temperature < 256
    np.testing.assert_allclose(
        found.losses, loss_of(*task, 6, found.temperature, found.offsets), rtol=1e-6, atol=1e-12
    )
    least = found.losses.sum()
    for change in (0.97, 1.03):
        assert loss_of(*task, 6, found.temperature * change, found.offsets).sum() > least
        for shot in (0, 1):
            moved = found.offsets.copy()
            moved[shot] *= change
            assert loss_of(*task, 6, found.temperature, moved).sum() > least
    assert found.offsets[0] > 2
    assert found.offsets[1] < 0
    np.testing.assert_array_equal(found.labels, target)
    np.testing.assert_array_equal(found.best, scores[1].max(axis=1))


def test_the_fit_has_the_right_slopes(task, monkeypatch):
    scores, target, new = task
    given = {}

    def watched(objective, start, **options):
        given.update(objective=objective, start=start, **options)
        return minimize(objective, start, **options)

    minimize = trial.minimize
    monkeypatch.setattr(trial, "minimize", watched)
    trial._fit(scores, target, new, 6)
    np.testing.assert_allclose(given["start"], [1 / (TEMPERATURE * np.sqrt(6)), 0, 0])
    assert given["bounds"] == [(1 / 256, 4.0), (-0.5, 0.5), (-0.5, 0.5)]
    at = np.array([0.3, 0.1, -0.2])
    _, slopes = given["objective"](at)
    for each in range(3):
        step = 1e-6 * np.eye(3)[each]
        difference = given["objective"](at + step)[0] - given["objective"](at - step)[0]
        np.testing.assert_allclose(slopes[each], difference / 2e-6, rtol=1e-6)


def test_the_fit_has_bounds(task):
    _, target, new = task
    sure = np.where(np.arange(9) == target[:, None], 1.0, 0.0)[None]
    assert trial._fit(sure, target, new, 6).temperature == 1 / 4
    assert trial._fit(-100 * sure, target, new, 6).temperature == 256
    crowded = trial._fit(sure - 900 * new, target, new, 6)
    np.testing.assert_allclose(crowded.offsets, 6 * 0.5 * crowded.temperature, rtol=1e-6)


def test_a_trial_without_samples_of_new_classes_is_fitted_on_the_others(task):
    scores, target, _ = task
    found = trial._fit(scores, target, np.zeros((60, 9), bool), 6)
    np.testing.assert_allclose(found.losses.sum(), loss_of_all(scores, target, found.temperature), rtol=1e-6)


@pytest.mark.parametrize("lonely", [True, False])
def test_one_sample_has_the_whole_weight_of_its_kind(task, lonely):
    scores, target, new = task
    new = np.zeros_like(new)
    new[:, target[0]] = True
    rows = np.flatnonzero((target == target[0]) == lonely)
    rows = np.append(rows[:1], np.flatnonzero((target == target[0]) != lonely))
    given = scores[:, rows], target[rows], new[rows]
    assert (given[2][np.arange(len(rows)), given[1]] == lonely).sum() == 1
    found = trial._fit(*given, 6)
    np.testing.assert_allclose(
        found.losses, loss_of(*given, 6, found.temperature, found.offsets), rtol=1e-6, atol=1e-12
    )


def loss_of_all(scores, target, temperature):
    logits = scores / temperature
    own = logits[:, np.arange(len(target)), target]
    top = logits.max(axis=2)
    return (1 - NEW) * (np.log(np.exp(logits - top[:, :, None]).sum(axis=2)) + top - own).mean(axis=1).sum()


# What is chosen


def fits_of(losses, labels=None):
    """Fits whose losses, summed over numbers of samples, are these."""
    labels = np.arange(len(next(iter(losses.values())))) if labels is None else labels
    halves = {key: np.stack([0.25 * np.array(each), 0.75 * np.array(each)]) for key, each in losses.items()}
    return {key: Fit(1.0, np.zeros(2), each, labels, np.zeros(len(labels))) for key, each in halves.items()}


def test_a_strength_must_be_clearly_better_than_the_default():
    base = np.array([1.0, 1.2, 0.8, 1.0])
    default = STRENGTHS[0]
    for gain, taken in ((0.4, True), (-0.4, False)):
        fits = fits_of({default: base, 0.5: base - gain, 1.0: base - gain / 2, 4.0: base + 9})
        assert trial._chosen_strength(fits) == (0.5 if taken else default)
    spread = np.array([0.4, 0.0, 0.0, 0.0])  # 0.1 on average, of which the deviation is 0.17: two errors are 0.17
    assert trial._chosen_strength(fits_of({default: base, 0.5: base - spread})) == default
    better = np.array([0.2, 0.1, 0.1, 0.1])  # 0.125, two errors are 0.043
    assert trial._chosen_strength(fits_of({default: base, 0.5: base - better})) == 0.5
    level = np.array([0.25, 0.05, 0.05, 0.05])  # exactly 0.1, two errors are 0.087
    assert trial._chosen_strength(fits_of({default: base, 0.5: base - level})) == 0.5
    assert trial._chosen_strength(fits_of({default: base, 0.5: base})) == default  # no gain
    assert trial._chosen_strength(fits_of({default: base, 0.5: base, 4.0: base - better})) == 4.0


def test_the_gain_of_a_strength_is_that_of_classes_not_of_samples():
    labels = np.array([0, 0, 0, 0, 1, 3])  # of class 2 no sample was held out
    gain = np.array([0.4, 0.4, 0.4, 0.4, -0.1, 0.1])
    base = np.ones(6)
    found = trial._chosen_strength(fits_of({STRENGTHS[0]: base, 0.5: base - gain}, labels))
    by_class = np.array([0.4, -0.1, 0.0, 0.1])
    assert by_class.mean() < 2 * by_class.std() / 2  # but over samples it is beyond two errors
    assert gain.mean() > 2 * gain.std() / np.sqrt(6)
    assert found == STRENGTHS[0]
    alone = np.array([0.1, 0.1, 0.1, 0.1, 0.7, 0.1])  # a class with one sample counts as much as one with four
    found = trial._chosen_strength(fits_of({STRENGTHS[0]: base, 0.5: base - alone}, np.array([0, 0, 0, 0, 1, 2])))
    assert found == STRENGTHS[0]
    many = np.array([0.3, 0.3, 0.3, 0.3, 0.2, 0.3])
    labels = np.array([0, 0, 0, 0, 1, 2])
    assert trial._chosen_strength(fits_of({STRENGTHS[0]: base, 0.5: base - many}, labels)) == 0.5


def test_far_is_two_deviations_beyond_the_mean_distance_from_the_center(wide):
    rows, y = wide
    pseudo, strength = pseudo_of(rows), 1.0
    episodes = trial._episodes(rows, y, [1, 28], 7, pseudo)[0.6]
    distances, blanks, known = [], [], []
    for target, is_new, _, z, spread in expected_episodes(rows, y, [1], pseudo, 0.6):
        psi = spread.rest * np.eye(7) + (spread.directions.T * (spread.psi - spread.rest)) @ spread.directions
        total = np.eye(7) + psi  # of any sample around the center
        distances.append(np.einsum("ij,jk,ik->i", z, np.linalg.inv(total), z))
        height = -0.5 * (1 - TEMPER) * np.linalg.slogdet(total)[1]
        blanks.append(height - 7 * np.log1p(distances[-1] / 7))
        known.append(~np.array(is_new)[target])
    distances, blanks, known = map(np.concatenate, (distances, blanks, known))
    best = np.random.default_rng(0).normal(size=len(known))
    mean, unit = trial._far(episodes, strength, best)
    np.testing.assert_allclose(mean, distances.mean() + FAR * distances.std(), rtol=1e-4)
    np.testing.assert_allclose(unit, (blanks - best)[known].std() / distances.std(), rtol=1e-3)


def test_equal_distances_have_no_unit():
    spread = Spread(np.eye(4)[:1], np.array([0.5]), 0.25, 4)
    rows = np.repeat(np.eye(4)[1:2], 6, axis=0)
    space = Space(rows, np.ones(6), np.zeros((6, 1)))
    episode = trial.Episode(space, np.array([0, 1] * 3), np.array([True, False]), None, {}, np.arange(2), spread)
    mean, unit = trial._far([episode], 2.0, np.arange(6.0))
    np.testing.assert_allclose(mean, 1 / 1.25)
    assert unit == 0
    nearly = space._replace(squares=1e4 + np.array([0, 1e-3] * 3))
    assert trial._far([episode._replace(asked=nearly)], 2.0, np.arange(6.0))[1] == 0
    apart = space._replace(squares=1e4 + np.array([0, 1.0] * 3))
    assert trial._far([episode._replace(asked=apart)], 2.0, np.arange(6.0))[1] > 0


def expected_choice(rows, y, pseudo, few):
    """What the trial chooses, from episodes in loops and the fits of all shrinkages and strengths."""
    rows = rows - rows.mean(axis=0)
    counts, width = np.bincount(y), rows.shape[1]
    shots, fits, best = [*few, counts.max()], {}, None
    for shrinkage in (0.6, 0.4):
        episodes = list(expected_episodes(rows, y, shots, pseudo, shrinkage))
        for strength in STRENGTHS:
            scores = np.concatenate([each[2](strength) for each in episodes], axis=1)
            target = np.concatenate([each[0] for each in episodes])
            new = np.concatenate([np.tile(each[1], (len(each[0]), 1)) for each in episodes])
            fits[shrinkage, strength] = trial._fit(scores, target, new, width)
    best = min((0.6, 0.4), key=lambda each: fits[each, 2.0].losses.sum())
    strength = trial._chosen_strength({each: fits[best, each] for each in STRENGTHS})
    return best, strength, fits[best, strength], max(np.median(counts), 2 * few[-1])


@pytest.mark.parametrize("case", ["equal", "correlated", "different"])
def test_the_trial_chooses_by_held_out_samples(case):
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat(np.arange(12), [10] * 6 + [24] * 6))
    centers, noise = 1.5 * rng.normal(size=(12, 6))[y], rng.normal(size=(len(y), 6))
    scale = {"equal": 1.0, "correlated": np.geomspace(8, 0.1, 6), "different": np.exp(rng.normal(size=(12, 6)))[y]}
    rows = centers + scale[case] * noise
    pseudo = pseudo_of(rows)
    found = trial.chosen(rows, y, pseudo)
    shrinkage, strength, fit, many = expected_choice(rows, y, pseudo, [1, 5])
    assert (found.shrinkage, found.strength) == (shrinkage, strength)
    np.testing.assert_allclose(found.temperature, fit.temperature, rtol=1e-2)
    np.testing.assert_allclose(found.knots[0], np.log([1, 5, many]))
    np.testing.assert_allclose(found.knots[1], fit.offsets, rtol=2e-2, atol=2e-2)


def test_the_trial_does_not_depend_on_where_and_how_large_rows_are(wide):
    """To the last bit for other powers of two; pseudo-samples with rows of their own are scaled with them."""
    rows, y = wide
    unlabeled = np.random.default_rng(1).normal(size=(20, 7))
    for pseudo in (pseudo_of(rows), Pseudo(30.0, 0.0, unlabeled)):
        one = trial.chosen(rows, y, pseudo)
        for factor in (2.0**-70, 2.0**60):
            scaled = Pseudo(pseudo.samples, pseudo.variance * factor**2, pseudo.rows * factor)
            other = trial.chosen(rows * factor, y, scaled)
            assert other[:3] == one[:3]
            np.testing.assert_array_equal(other.knots, one.knots)
            np.testing.assert_array_equal(other.far, one.far)
        far_off = trial.chosen(rows + 1e6 * np.arange(1, 8), y, pseudo)
        assert far_off[:2] == one[:2]
        np.testing.assert_allclose(far_off.temperature, one.temperature, rtol=1e-4)
        np.testing.assert_allclose(far_off.far, one.far, rtol=1e-4)


def test_with_fewer_rows_than_features_their_coordinates_are_enough(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 4)
    rows = 0.3 * rng.normal(size=(8, 60))[y] + rng.normal(size=(32, 60)) * np.geomspace(3, 0.1, 60)
    given = rows, y, Pseudo(9.0, 0.0, rng.normal(size=(9, 60)))
    found, seen, coordinates = trial.chosen(*given), [], trial.coordinates
    monkeypatch.setattr(trial, "coordinates", lambda rows: seen.append((rows, coordinates(rows))) or rows)
    same = trial.chosen(*given)
    ((whole, fewer),) = seen
    assert (whole.shape, fewer.shape[0], fewer.shape[1] < 42) == ((41, 60), 41, True)
    assert found[:2] == same[:2]
    np.testing.assert_allclose(found.temperature, same.temperature, rtol=1e-3)
    np.testing.assert_allclose(found.far, same.far, rtol=1e-3)
    np.testing.assert_allclose(found.knots, same.knots, rtol=1e-2, atol=1e-2)


def test_many_classes_are_looked_at_evenly(wide, monkeypatch):
    rows, y = samples(12, 10)
    monkeypatch.setattr(trial, "TRIAL_CLASSES", 9)
    found = trial.chosen(rows, y, pseudo_of(rows))
    kept = np.linspace(0, 11, 9).astype(int)
    picks = np.isin(y, kept)
    alone = trial.chosen(rows[picks], np.searchsorted(kept, y[picks]), pseudo_of(rows))
    assert found[:3] == alone[:3]
    np.testing.assert_array_equal(found.knots, alone.knots)
    np.testing.assert_array_equal(found.far, alone.far)
    np.testing.assert_array_equal(found.knots[0], np.log([1, 5, 10]))
