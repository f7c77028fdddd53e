"""``taer discover`` and ``taer learn --from-discovery``: from a table without labels to new classes."""

import csv
import json

import numpy as np
import pytest

import taer
from taer.cli.inputs import DEFAULTS, Reader
from taer.cli.pool import read_pool
from taer.features.sources.texts import separator
from tests.conftest import blobs


@pytest.fixture
def tickets(cli, backbones, tmp_path):
    """A head that knows a, c and e, and a table in which f and g are new."""
    rng = np.random.default_rng(0)

    def texts(letters, count):
        return [
            (letter * rng.integers(12, 19) + "bdh"[rng.integers(3)] * rng.integers(1, 4), letter)
            for letter in letters
            for _ in range(count)
        ]

    known = "".join(f"{text},{label}\n" for text, label in texts("ace", 30))
    (tmp_path / "known.csv").write_text(f"text,label\n{known}")
    pool = texts("acfg", 15)
    (tmp_path / "pool.csv").write_text(
        "id,text\n" + "".join(f"{row},{text}\n" for row, (text, _) in enumerate(pool))
    )
    assert cli("fit", "known.csv", "--backbone", "letters", "--out", "head")[0] == 0
    return [letter for _, letter in pool]


@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_groups_are_written_named_and_taught(cli, tickets, tmp_path, suffix):
    file = tmp_path / f"groups.{suffix}"
    code, out, err = cli("discover", "head", "pool.csv", "--out", file.name)
    assert (code, err) == (0, "")
    assert "belong to no group" in out
    groups = read(file)
    rows = [[tickets[int(row) - 1] for row in group["rows"]] for group in groups]
    assert all(set(letters) in ({"f"}, {"g"}) for letters in rows)
    assert {letters[0] for letters in rows} == {"f", "g"}
    assert all(len(group["typical"]) == 3 for group in groups)
    code, _, err = cli("learn", "head", "--from-discovery", file.name)
    assert code == 2
    assert "no group has a name" in err
    assert cli("discover", "head", "pool.csv", "--out", file.name)[0] == 0  # nothing is lost
    name(file, {group["group"]: letters[0] for group, letters in zip(groups, rows, strict=True)})
    code, _, err = cli("discover", "head", "pool.csv", "--out", file.name)
    assert (code, err) == (2, f"taer: {file.name}: exists, and 2 groups there have a name; name another file\n")
    code, out, err = cli("learn", "head", "--from-discovery", file.name)
    assert code == 0, err
    assert taer.load(tmp_path / "head").classes_.tolist() == list("acefg")
    assert cli("predict", "head", "ffffffffffffffb")[1] == "f\n"
    (tmp_path / "pool.csv").write_text("id,text\n1,aaab\n")
    code, _, err = cli("learn", "head", "--from-discovery", file.name)
    assert (code, "has changed since the discovery" in err) == (2, True)


def read(file):
    if file.suffix == ".json":
        return json.loads(file.read_text())["groups"]
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    return [
        row | {"rows": row["rows"].split(), "typical": [row[f"typical {place}"] for place in (1, 2, 3)]}
        for row in rows
    ]


def name(file, names):
    """What a user does with the file."""
    if file.suffix == ".json":
        content = json.loads(file.read_text())
        for group in content["groups"]:
            group["name"] = names[group["group"]]
        file.write_text(json.dumps(content))
        return
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    with file.open("w", newline="") as lines:
        table = csv.DictWriter(lines, rows[0])
        table.writeheader()
        table.writerows(row | {"name": names[row["group"]]} for row in rows)


def test_features_are_a_pool_and_mistakes_are_named(cli, tmp_path):
    X, y = blobs(12, 20)
    taer.Bayes().fit(X[y < 9], y[y < 9]).save(tmp_path / "head")
    np.save(tmp_path / "pool.npy", X.astype(np.float32))
    code, out, err = cli("discover", "head", "pool.npy")
    assert (code, err) == (0, "")
    assert " groups of 60 samples; 180 of 240 look like known classes" in out
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n")
    for arguments, message in [
        (("discover", "head", "nowhere.csv"), "no such file"),
        (("discover", "head", "pool.npy", "--out", "groups.txt"), "ends in .json or .csv"),
        (("discover", "head", "pool.npy", "--out", "mine.csv"), "not an earlier discovery"),
        (("learn", "head"), "expected EXAMPLES or --from-discovery"),
        (("learn", "head", "--from-discovery", "nowhere.json"), "no such file"),
        (("learn", "head", "--from-discovery", "mine.csv"), "that 'taer discover --out' wrote"),
    ]:
        code, _, err = cli(*arguments)
        assert (code, message in err) == (2, True), err


def test_without_groups_it_is_said_why(cli, tmp_path):
    X, y = blobs(12, 20)
    taer.Bayes().fit(X[y < 9], y[y < 9]).save(tmp_path / "head")
    pool = np.concatenate([X[y < 9][:50], X[y == 9][:3]])
    np.save(tmp_path / "pool.npy", pool.astype(np.float32))
    code, out, err = cli("discover", "head", "pool.npy", "--out", "groups.json")
    assert (code, err) == (0, "")
    found = taer.load(tmp_path / "head").discover(pool.astype(np.float32))
    assert found.known.sum() + found.too_few + found.scattered == len(pool)
    assert found.known.sum() >= 45
    assert found.too_few >= 3
    assert (
        f"no group is proposed: of 53 samples, {found.known.sum()} in groups that look known, {found.too_few} in groups "
        "that are of fewer than four distinct samples"
    ) in out
    assert out.endswith("; with 9 classes the head knows little of how classes differ: teach it more\n")
    code, _, err = cli("learn", "head", "--from-discovery", "groups.json")
    assert (code, err) == (2, "taer: groups.json: proposes no groups, so there is nothing to teach\n")


def test_a_small_head_that_knows_everything_is_not_to_learn_more(cli, tmp_path):
    X, y = blobs(9, 20)
    taer.Bayes().fit(X, y).save(tmp_path / "head")
    np.save(tmp_path / "pool.npy", X.astype(np.float32))
    code, out, _ = cli("discover", "head", "pool.npy")
    assert (code, out.splitlines()[-1]) == (
        0,
        "no group is proposed: of 180 samples, 180 in groups that look known",
    )


@pytest.fixture
def named(cli, tickets, tmp_path):
    """Discoveries in which a user has named all groups, as dictionaries."""
    assert cli("discover", "head", "pool.csv", "--out", "groups.json")[0] == 0
    content = json.loads((tmp_path / "groups.json").read_text())
    for group in content["groups"]:
        group["name"] = tickets[group["rows"][0] - 1]
    return content


def learned(cli, tmp_path, content):
    (tmp_path / "mine.json").write_text(json.dumps(content))
    return cli("learn", "head", "--from-discovery", "mine.json", "--out", "new")


def test_rows_may_be_removed_from_a_discovery(cli, named, tmp_path):
    first, *others = named["groups"]
    with (tmp_path / "pool.csv").open(newline="") as lines:
        texts = [line["text"] for line in csv.DictReader(lines)]
    first["rows"] = [row for row in first["rows"] if texts[row - 1] not in first["typical"]]
    code, out, err = learned(cli, tmp_path, named)
    assert (code, err) == (0, "")
    assert f"new: {sum(len(group['rows']) for group in named['groups'])} samples of 2 classes learned" in out
    first["rows"] = []
    assert learned(cli, tmp_path, named)[0] == 0
    assert first["name"] not in taer.load(tmp_path / "new").classes_
    for group in others:
        group["name"] = ""
    code, _, err = learned(cli, tmp_path, named)
    assert (code, err) == (
        2,
        "taer: mine.json: no rows are left in the groups with a name, so there is nothing to teach\n",
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": [1, "x"]}, "group 1: rows must be numbers from 1 to 60, got 'x'"),
        ({"rows": [True]}, "group 1: rows must be numbers from 1 to 60, got True"),
        ({"rows": [61]}, "group 1: rows must be numbers from 1 to 60, got 61"),
        ({"rows": None}, "group 1: rows must be a list of numbers, got None"),
        ({"name": 7}, "group 1: the name must be a text, got 7"),
        ({"typical": [[1]]}, "group 1: typical must be a list of texts"),
        ({"size": "many"}, "group 1: the size must be a number, got 'many'"),
    ],
)
def test_a_discovery_edited_by_mistake_is_refused_with_the_place(cli, named, tmp_path, change, message):
    before = (tmp_path / "head").read_bytes()
    named["groups"][0] |= change
    (tmp_path / "mine.json").write_text(json.dumps(named))
    code, _, err = cli("learn", "head", "--from-discovery", "mine.json")
    assert (code, err) == (2, f"taer: mine.json: expected a file that 'taer discover --out' wrote ({message})\n")
    assert (tmp_path / "head").read_bytes() == before


def test_rows_that_changed_places_are_noticed(cli, named, tmp_path):
    header, *lines = (tmp_path / "pool.csv").read_text().splitlines()
    (tmp_path / "pool.csv").write_text("\n".join([header, *reversed(lines)]) + "\n")
    code, _, err = learned(cli, tmp_path, named)
    assert (code, err) == (
        2,
        "taer: mine.json: pool.csv has changed since the discovery; run 'taer discover' again\n",
    )


def test_a_discovery_saved_with_semicolons_is_read(cli, tickets, tmp_path):
    assert cli("discover", "head", "pool.csv", "--out", "groups.csv")[0] == 0
    with (tmp_path / "groups.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    with (tmp_path / "groups.csv").open("w", newline="", encoding="utf-8-sig") as lines:
        table = csv.DictWriter(lines, rows[0], delimiter=";")
        table.writeheader()
        table.writerows(row | {"name": "new"} for row in rows)
    code, _, err = cli("learn", "head", "--from-discovery", "groups.csv")
    assert (code, err) == (0, "")
    assert "new" in taer.load(tmp_path / "head").classes_


@pytest.mark.parametrize("kind", ["texts", "features"])
def test_the_pool_is_looked_for_beside_the_discovery(cli, tickets, tmp_path, monkeypatch, kind):
    pool = "pool.csv"
    if kind == "features":
        X, y = blobs(12, 20)
        taer.Bayes().fit(X[y < 9], y[y < 9].astype(str)).save(tmp_path / "head")
        np.save(tmp_path / (pool := "pool.npy"), X.astype(np.float32))
    assert cli("discover", "head", pool, "--out", "groups.json")[0] == 0
    content = json.loads((tmp_path / "groups.json").read_text())
    content["groups"][0]["name"] = "new"
    (tmp_path / "groups.json").write_text(json.dumps(content))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, _, err = cli("learn", "../head", "--from-discovery", "../groups.json", "--out", "head")
    assert (code, err) == (0, "")
    assert "new" in taer.load("head").classes_
    (tmp_path / pool).unlink()
    code, _, err = cli("learn", "../head", "--from-discovery", "../groups.json")
    expected = (
        f"../groups.json: its pool {pool} is neither here nor beside it; put it there, or run this where it is"
    )
    assert (code, err) == (2, f"taer: {expected}\n")


def test_a_head_without_a_prior_cannot_discover(cli, tmp_path):
    X, y = blobs(3, 10)
    taer.make_head("ncm").fit(X, y).save(tmp_path / "head")
    np.save(tmp_path / "pool.npy", X.astype(np.float32))
    code, _, err = cli("discover", "head", "pool.npy")
    assert (code, "ncm cannot discover" in err) == (2, True)


def test_next_writes_a_table_to_fill_in_and_learn(cli, tickets, tmp_path):
    code, out, _ = cli("next", "head", "pool.csv", "--count", 2)
    assert code == 0
    rows = [int(line.split("\t")[0]) for line in out.splitlines()]
    assert {tickets[row - 1] for row in rows} == {"f", "g"}
    assert cli("next", "head", "pool.csv", "--count", 2, "--out", "next.csv")[0] == 0
    with (tmp_path / "next.csv").open(newline="") as lines:
        table = list(csv.DictReader(lines))
    assert [int(row["row"]) for row in table] == rows
    with (tmp_path / "next.csv").open("w", newline="") as lines:
        filled = csv.DictWriter(lines, table[0])
        filled.writeheader()
        filled.writerows(row | {"label": tickets[int(row["row"]) - 1]} for row in table)
    code, _, err = cli("next", "head", "pool.csv", "--out", "next.csv")
    assert (code, "maybe with labels" in err) == (2, True)
    assert cli("learn", "head", "next.csv")[0] == 0
    assert taer.load(tmp_path / "head").classes_.tolist() == list("acefg")


def fill_in(file, labels):
    """Write labels by row of the pool into a table of ``taer next``, and save it with semicolons."""
    mark = separator(file)
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter=mark))
    with file.open("w", newline="") as lines:
        table = csv.DictWriter(lines, rows[0], delimiter=";")
        table.writeheader()
        table.writerows(row | {"label": labels.get(int(row["row"]), " ")} for row in rows)
    return [int(row["row"]) for row in rows]


def test_rows_that_the_user_skipped_are_left_out(cli, tickets, tmp_path):
    assert cli("next", "head", "pool.csv", "--count", 6, "--out", "next.csv")[0] == 0
    rows = fill_in(tmp_path / "next.csv", {})
    code, _, err = cli("learn", "head", "next.csv")
    assert (code, err) == (2, "taer: next.csv: no row has a label yet; fill in the column label\n")
    fill_in(tmp_path / "next.csv", {row: tickets[row - 1] for row in rows[:2]})
    code, out, err = cli("learn", "head", "next.csv")
    assert (code, err) == (0, "taer: next.csv: 4 rows without a label left out\n")
    assert out.startswith("head: 2 samples of 2 classes learned")
    (tmp_path / "others.csv").write_text("text,label,guess\naaab,a,\naab,,\n")  # not of taer next
    code, _, err = cli("learn", "head", "others.csv")
    assert (code, err) == (2, "taer: others.csv: row 2 has no label\n")


def test_the_first_labels_are_suggested_without_a_head(cli, tickets, tmp_path, monkeypatch):
    code, out, err = cli("next", "pool.csv", "--backbone", "letters", "--count", 4)
    assert (code, err) == (0, "")
    lines = [line.split("\t") for line in out.splitlines()]
    assert sorted(tickets[int(row) - 1] for row, _ in lines) == list("acfg")
    monkeypatch.setitem(DEFAULTS, "text", "letters")
    assert cli("next", "pool.csv", "--count", 8, "--out", "next.csv")[0] == 0
    rows = fill_in(tmp_path / "next.csv", dict(enumerate(tickets, 1)))
    assert [int(row) for row, _ in lines] != rows
    assert cli("fit", "next.csv", "--out", "first")[0] == 0
    assert taer.load(tmp_path / "first").classes_.tolist() == list("acfg")
    for arguments, message in [
        (("head",), "head: a head; expected the pool after it"),
        (("head", "head", "pool.csv"), "expected a head and a pool, or a pool alone, got 3 arguments"),
    ]:
        code, _, err = cli("next", *arguments)
        assert (code, err) == (2, f"taer: {message}\n")


def test_features_in_a_file_are_not_loaded_whole(tmp_path):
    X, y = blobs(4, 30)
    np.save(tmp_path / "pool.npy", X.astype(np.float32))
    pool = read_pool(Reader(taer.Bayes().fit(X, y)), str(tmp_path / "pool.npy"))
    assert isinstance(pool.features(), np.memmap)
    assert (np.asarray(pool.features()) == pool.features(range(len(X)))).all()
