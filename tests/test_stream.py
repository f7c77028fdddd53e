"""Protocols and class orders."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import taer
from taer.experiment import Run, execute
from taer.stream import class_order, class_stream, read_sessions, sample_stream
from taer.stream.kinds import make_stream


@pytest.mark.parametrize(
    ("order", "n", "start"),
    [
        (0, 10, "4 1 7 5 3 9 0 8 6 2"),
        (0, 100, "44 19 93 90 71 69 37 95 53 91"),
        (1, 100, "45 15 90 32 35 63 17 72 79 96"),
        (2, 100, "48 97 1 81 90 49 10 8 7 20"),
        ("1993", 100, "68 56 78 8 23 84 90 65 74 76"),
        ("icarl", 100, "87 0 52 58 44 91 68 97 51 15"),
    ],
)
def test_published_orders(order, n, start):
    found = class_order(order, n)
    assert found[:10] == [int(word) for word in start.split()]
    assert sorted(found) == list(range(n))


@pytest.mark.parametrize("seed", [0, 1, 7, 12345])
@pytest.mark.parametrize("n", [2, 10, 100, 200])
def test_torch_orders_are_torchs(seed, n):
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    assert class_order(seed, n) == torch.randperm(n).tolist()


def test_equal_tasks_cover_everything_once(features):
    stream = class_stream(features, tasks=5)
    assert [len(task) for task in stream.tasks] == [2] * 5
    assert sorted(stream.order) == list(range(10))
    tasks = list(stream)
    assert sum(len(task.X_train) for task in tasks) == len(features.train_y)
    assert sum(len(task.X_test) for task in tasks) == len(features.test_y)
    for task in tasks:
        assert set(task.y_train) == set(task.y_test) == set(task.classes)
        rows = np.flatnonzero(np.isin(features.train_y, task.classes))
        np.testing.assert_array_equal(task.X_train, features.train_x[rows])


def test_orders_of_numpy(features):
    order = np.random.default_rng(0).permutation(10)
    stream = class_stream(features, tasks=5, order=order)
    assert stream == class_stream(features, tasks=5, order=order.tolist())
    result = execute(Run(stream, "ncm", {"normalize": np.str_("none")}, seed=np.int64(1)))
    assert json.loads(json.dumps(result))["seed"] == 1


def test_half_of_the_classes_first(features):
    stream = class_stream(features, first=4, tasks=3, order=list(range(10)))
    assert stream.tasks == ((0, 1, 2, 3), (4, 5), (6, 7), (8, 9))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tasks": 3}, "10 classes do not divide into 3 equal tasks"),
        ({"tasks": 0}, "at least one task"),
        ({"tasks": 6, "first": 5}, "the 5 classes after the first task are too few for 6 tasks"),
        ({"first": 4, "tasks": 3, "shots": 0}, "at least one sample, got 0 shots"),
        ({"first": 10, "tasks": 1}, "first task must have 1 … 9"),
        ({"first": 0, "tasks": 1}, "first task must have 1 … 9"),
        ({"order": "icarl"}, "each of 0 … 9 once"),
        ({"order": "alphabetical"}, "unknown class order"),
        ({"order": [0, 1, 2]}, "each of 0 … 9 once"),
        ({"order": [0] * 10}, "each of 0 … 9 once"),
    ],
)
def test_impossible_streams_are_refused(features, arguments, message):
    with pytest.raises(ValueError, match=message):
        class_stream(features, **arguments)


def test_natural_order_is_the_order_of_the_classes():
    assert class_order("natural", 7) == list(range(7))


def test_tasks_after_the_first_are_as_even_as_possible(features):
    stream = class_stream(features, first=3, tasks=3, order="natural")
    assert stream.tasks == ((0, 1, 2), (3, 4, 5), (6, 7), (8, 9))


def test_later_tasks_have_a_few_drawn_samples_per_class(features):
    stream = class_stream(features, first=4, tasks=3, order="natural", shots=5, seed=1)
    first, *later = list(stream)
    assert len(first.y_train) == 4 * 30
    for task in later:
        assert np.bincount(task.y_train)[list(task.classes)].tolist() == [5, 5]
    for t, rows in enumerate(stream.rows):
        np.testing.assert_array_equal(features.train_y[list(rows)], list(stream)[t].y_train)
    assert [len(task.y_test) for task in stream] == [40, 20, 20, 20]  # all are tested


def test_the_seed_alone_draws_the_samples(features):
    def drawn(order="natural", shots=5, seed=0):
        stream = class_stream(features, first=4, tasks=3, order=order, shots=shots, seed=seed)
        return {label: {row for rows in stream.rows[1:] for row in rows if features.train_y[row] == label}
                for label in range(10)}  # fmt: skip

    assert drawn() == drawn()
    assert drawn() != drawn(seed=1)
    assert all(drawn(shots=2)[label] < drawn()[label] for label in range(4, 10))
    assert drawn(order=[0, 1, 2, 3, 9, 8, 7, 6, 5, 4]) == drawn()  # the order of classes draws nothing else
    assert all(len(rows) == 30 for label, rows in drawn(shots=99).items() if label > 3)  # a class gives what it has


def test_given_samples_are_the_tasks(features):
    first, second = (np.flatnonzero(np.isin(features.train_y, labels)) for labels in ([1, 4], [7]))
    stream = sample_stream(features, [first.tolist(), second[4::-1].tolist()])
    assert stream.tasks == ((1, 4), (7,))
    np.testing.assert_array_equal(list(stream)[1].X_train, features.train_x[second[:5]])
    result = execute(Run(stream, "ncm"))
    assert len(result["classes"]) == 3  # others are not tested
    assert np.sum(result["confusion"]) == 30
    same = sample_stream(features, [first[::-1], second[:5]])
    assert Run(same, "ncm").file_name == Run(stream, "ncm").file_name


def test_samples_decide_a_run(features):
    streams = [
        class_stream(features, first=4, tasks=3, order="natural"),
        class_stream(features, first=4, tasks=3, order="natural", shots=5),
        class_stream(features, first=4, tasks=3, order="natural", shots=5, seed=1),
        class_stream(features, first=4, tasks=3, order="natural", shots=4),
    ]
    assert len({Run(stream, "ncm").file_name for stream in streams}) == 4


@pytest.mark.parametrize(
    ("sessions", "message"),
    [
        ([[0, 300]], "session 0 names row 300, but features has the training rows 0 … 299"),
        ([[0], [-1]], "session 1 names row -1"),
        ([[0, 0]], "session 0 names a row twice"),
        ([[0], []], "session 1 has no rows"),
        ([], "there are no sessions"),
    ],
)
def test_impossible_samples_are_refused(features, sessions, message):
    with pytest.raises(ValueError, match=message):
        sample_stream(features, sessions)


def test_a_class_may_return_but_each_session_needs_a_new_one(features):
    a, b = np.flatnonzero(features.train_y == 6)[:2].tolist()
    c = int(np.flatnonzero(features.train_y == 2)[0])
    stream = sample_stream(features, [[a], [b, c]])
    assert stream.tasks == ((6,), (2,))
    assert stream.classes_of(1) == (2, 6)
    assert stream.returning
    with pytest.raises(ValueError, match="session 1 has only classes of earlier sessions"):
        sample_stream(features, [[a], [b]])


# Streams without clear tasks


@pytest.fixture(scope="module")
def many():
    """40 classes of 50 samples."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(40), 50))
    X = np.eye(40, dtype=np.float32)[y] + 0.1 * np.random.default_rng(1).normal(size=(2000, 40)).astype(np.float32)
    names = [f"class{label}" for label in range(40)]
    return taer.FeatureSet(X, y, X[::5], y[::5], tuple(names))


def counts(stream):
    """Training samples by session and class."""
    labels = stream.features.train_y
    return np.stack([np.bincount(labels[list(rows)], minlength=40) for rows in stream.rows])


def every_row_once(stream):
    return sorted(row for rows in stream.rows for row in rows) == list(range(len(stream.features.train_y)))


@pytest.mark.parametrize(("kind", "still", "leaving"), [("blurry", 20, 25), ("blurry-30-50", 12, 175)])
def test_a_blurry_stream_has_its_shares(many, kind, still, leaving):
    """i-Blurry-N-M: N % of the classes stay in one session; M % of the other samples of each are spread evenly."""
    stream = make_stream(many, kind, sessions=4)
    found, order = counts(stream), class_order(0, 40)
    for t, own in enumerate(np.array_split(order[:still], 4)):
        assert (found[t, own] == 50).all()
    home = np.array_split(order[still:], 4)
    assert found.sum(axis=1).tolist() == [500] * 4  # as many come as leave
    away = [int(np.delete(found[:, group], t, axis=0).sum()) for t, group in enumerate(home)]
    # about a quarter falls back into its own session
    assert all(0.6 * leaving <= number <= leaving for number in away)
    assert every_row_once(stream)
    assert stream.returning
    assert stream.kind == {"blurry": "blurry-50-10"}.get(kind, kind)


def test_sessions_of_si_blurry_have_random_sizes(many):
    """As in the authors' sampler: classes of both sorts are cut at random, and as many samples leave a session as come."""
    stream, order = make_stream(many, "si-blurry", sessions=4, seed=2), class_order(0, 40)
    found = counts(stream)
    own, blurry = found[:, order[:20]], found[:, order[20:]]
    assert np.isin(own, (0, 50)).all()
    sizes = (own > 0).sum(axis=1)
    assert sizes.sum() == 20
    assert sizes.min() >= 1
    homes = blurry.sum(axis=1) / 50  # classes at home: none of the four sessions has too few samples to leave
    assert homes.tolist() == np.round(homes).tolist()
    assert len(set(homes)) > 1
    home = np.repeat(np.arange(4), homes.astype(int))
    away = int((blurry * (np.arange(4)[:, None] != home)).sum())
    assert 50 <= away <= 100  # of 1,000, a tenth leaves
    assert len({tuple(len(task) for task in make_stream(many, "si-blurry", 4, 0, s).tasks) for s in range(5)}) > 1
    for seed in range(20):  # also if a session has no class that could leave
        assert every_row_once(make_stream(many, "si-blurry-20-90", 6, 0, seed))


def test_classes_of_a_recurring_stream_come_back_with_other_samples(many):
    stream = make_stream(many, "recurring", sessions=4)
    found = counts(stream)
    for t, group in enumerate(np.array_split(class_order(0, 40), 4)):
        assert (found[:t, group] == 0).all()
        assert (found[t, group] == (50 if t == 3 else 25)).all()
        assert (found[t + 1 :, group] >= 25 // 3).all()
    assert [len(stream.classes_of(t)) - len(stream.tasks[t]) for t in range(4)] == [0, 10, 20, 30]
    assert every_row_once(stream)


@pytest.mark.parametrize("kind", ["long-tailed", "long-tailed-ordered"])
def test_a_long_tail_has_its_ratio(many, kind):
    X, y = np.repeat(many.train_x, 4, axis=0), np.repeat(many.train_y, 4)
    wide = taer.FeatureSet(X, y, many.test_x, many.test_y, many.classes)
    stream = make_stream(wide, kind, sessions=4)
    found = counts(stream).sum(axis=0)
    assert (found.max(), found.min()) == (200, 2)
    by_arrival = found[class_order(0, 40)]
    assert (np.diff(by_arrival) <= 0).all() == (kind == "long-tailed-ordered")
    assert np.sort(found)[::-1][10] == round(200 * 100 ** (-10 / 39))
    assert not stream.returning


@pytest.mark.parametrize("kind", ["online", "blurry"])
def test_a_stream_without_boundaries_has_batches_of_ten(many, monkeypatch, kind):
    """Every sample once; a batch never mixes two sessions, but nothing else marks where one ends."""
    stream = make_stream(many, kind, sessions=4)
    assert stream.batch == 10
    assert every_row_once(stream)
    sizes, learn = [], taer.NCM.partial_fit
    monkeypatch.setattr(taer.NCM, "partial_fit", lambda head, X, y: (sizes.append(len(y)), learn(head, X, y))[1])
    result = execute(Run(stream, "ncm", {}, 0))
    assert sizes == [10] * 200
    assert [n for n, _ in result["anytime"]] == list(range(100, 2001, 100))
    mean = np.mean([accuracy for _, accuracy in result["anytime"]])
    assert result["A_AUC"] == pytest.approx(mean)


def test_scores_of_a_frozen_head_are_measured_again_when_its_classes_return(many):
    """The accuracy of the last phase is that of the head, not of columns kept from before."""
    noisy = many.train_x + np.random.default_rng(2).normal(size=many.train_x.shape).astype(np.float32)
    many = taer.FeatureSet(noisy, many.train_y, noisy[::5], many.train_y[::5], many.classes)
    stream = make_stream(many, "recurring", sessions=4)
    head = taer.NCM()
    for task in stream:
        head.partial_fit(task.X_train, task.y_train)
    assert execute(Run(stream, "ncm", {}, 0))["last"] == pytest.approx(head.score(many.test_x, many.test_y))


def test_the_order_of_samples_and_the_kind_decide_a_result(many):
    names = {Run(make_stream(many, kind, 4, 0, seed), "ncm", {}, 0).file_name
             for kind in ("online", "blurry", "recurring") for seed in (0, 1)}  # fmt: skip
    assert len(names) == 6
    online = make_stream(many, "online", 4)
    turned = dataclasses.replace(online, rows=tuple(rows[::-1] for rows in online.rows))
    assert Run(online, "ncm", {}, 0).file_name != Run(turned, "ncm", {}, 0).file_name


@pytest.mark.parametrize(
    ("kind", "sessions", "message"),
    [
        ("foggy", 4, "unknown stream 'foggy'; there are online, blurry"),
        ("blurry", 30, "take at most 20 sessions"),
        ("si-blurry-25-10", 11, "25 % of the 40 classes are too few for 11 sessions .* take at most 10 sessions"),
        ("blurry-0-10", 4, "expected blurry-N-M with 1 … 100 percent"),
        ("blurry-50-101", 4, "expected blurry-N-M with"),
        ("blurry-50", 4, "there are online, .* blurry-N-M"),
        ("online", 0, "at least one session"),
        ("recurring", 41, "40 classes are too few for 41 sessions"),
    ],
)
def test_impossible_kinds_are_refused(many, kind, sessions, message):
    with pytest.raises(ValueError, match=message):
        make_stream(many, kind, sessions)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no JSON", "expected JSON such as"),
        ("[1, 2]", "expected JSON such as"),
        ('{"sessions": [[1], [2]]}', "expected JSON such as"),
        ('{"sessions": {}}', "expected JSON such as"),
        ('{"sessions": {"0": [1], "2": [2]}}', "expected sessions named 0 … 1, got 0, 2"),
        ('{"sessions": {"0": [1.5]}}', "session 0 must be a list of row numbers"),
        ('{"sessions": {"0": [1], "1": "all"}}', "session 1 must be a list of row numbers"),
        ('{"sessions": {"0": [true]}}', "session 0 must be a list of row numbers"),
    ],
)
def test_files_that_are_no_sessions_are_refused(tmp_path, text, message):
    path = tmp_path / "sessions.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_sessions(path)


def test_sessions_come_by_number(tmp_path):
    sessions = {str(t): [t] for t in reversed(range(12))}
    (tmp_path / "sessions.json").write_text(json.dumps({"source": "anyone", "sessions": sessions}))
    assert read_sessions(tmp_path / "sessions.json") == [[t] for t in range(12)]
