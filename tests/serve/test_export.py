"""All examples of a service as a table."""

from __future__ import annotations

import csv
import io
import sqlite3
import tracemalloc

import numpy as np
import pytest
from PIL import Image

from taer.cli import main
from taer.serve.export import export
from tests.serve.backbones import Letters, Pixels
from tests.serve.conftest import png, vectors

FOLDER = "service"


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 0


def table(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_texts_with_labels_states_and_times(open_service, tmp_path, capsys):
    client = open_service(backbone=Letters())
    for label, letter in (("cards, lost", "a"), ("loans", "b")):
        client.post(
            "/examples", json={"label": label, "texts": [f'{letter * n} "quoted",\nü' for n in range(1, 9)]}
        )
    assert client.post("/learn").json()["held_back"] == 4
    client.post("/examples", json={"label": "new", "texts": ["zz"]})
    client.patch("/examples/1", json={"label": "loans"})
    client.delete("/examples/2")
    out = tmp_path / "examples.csv"
    run("export", tmp_path / FOLDER, "--out", out)
    assert "16 examples" in capsys.readouterr().out
    rows = table(out)
    assert [int(row["id"]) for row in rows] == [1, *range(3, 18)]
    assert (rows[0]["label"], rows[0]["text"]) == ("loans", 'a "quoted",\nü')
    assert {row["kind"] for row in rows} == {"text"}
    states = {int(row["id"]): (row["state"], row["version"]) for row in rows}
    assert states[3] == ("learned", "1")
    assert [number for number, (state, _) in states.items() if state == "held out"] == [4, 8, 12, 16]
    assert states[17] == ("waiting", "")
    assert all(row["added"].startswith("20") and row["added"].endswith("+00:00") for row in rows)
    sent = client.get("/examples.csv")
    assert sent.headers["content-type"].startswith("text/csv")
    assert list(csv.DictReader(io.StringIO(sent.text, newline=""))) == rows
    assert client.get("/examples.csv", headers={"Authorization": "Bearer wrong"}).status_code == 401
    with pytest.raises(ValueError, match="is there already"):
        export(tmp_path / FOLDER, out)


def test_vectors_are_in_parquet(client, tmp_path, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    X = np.array(vectors(0, 50), np.float32)
    client.service.add_examples("a", X)
    out = tmp_path / "examples.parquet"
    done = export(tmp_path / FOLDER, out)
    assert (done.examples, done.vectors, done.images) == (50, 50, None)
    found = parquet.read_table(out).to_pydict()
    np.testing.assert_array_equal(np.array(found["vector"], np.float32), X)
    assert found["state"] == ["waiting"] * 50
    assert found["version"] == [None] * 50
    run("export", tmp_path / FOLDER, "--out", tmp_path / "examples.csv")
    assert "50 came as vectors, which only a .parquet file has" in capsys.readouterr().err


def test_vectors_are_those_of_the_backbone_that_answers(open_service, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    client = open_service(backbone=Letters())
    for label, letter in (("first", "a"), ("second", "b")):
        client.post("/examples", json={"label": label, "texts": [letter, letter * 2, letter * 3]})
    client.post("/learn")
    client.stop()

    class Twice(Letters):
        name = "twice"

        def __call__(self, items, /):
            return 2 * super().__call__(items)

    again = open_service(backbone=Twice(), relearn=True)
    export(tmp_path / FOLDER, tmp_path / "examples.parquet")
    found = parquet.read_table(tmp_path / "examples.parquet").to_pydict()
    np.testing.assert_array_equal(found["vector"][0], again.get("/examples/1").json()["vector"])
    np.testing.assert_array_equal(found["vector"][0], Twice()(["a"])[0])


def test_images_are_files_beside_the_table(open_service, tmp_path):
    client = open_service(backbone=Pixels())
    client.post("/examples", json={"label": "red", "images": [png(Image.new("RGB", (9, 9), "red"))] * 2})
    done = export(tmp_path / FOLDER, tmp_path / "all.csv")
    assert done.images == tmp_path / "all-images"
    rows = table(tmp_path / "all.csv")
    assert [row["image"] for row in rows] == ["all-images/1.jpg", "all-images/2.jpg"]
    assert Image.open(tmp_path / rows[1]["image"]).size == (9, 9)
    sent = list(csv.DictReader(io.StringIO(client.get("/examples.csv").text)))
    assert client.get(f"/{sent[1]['image']}").json()["image"]


def test_a_table_has_no_backbone_in_front(client, tmp_path, cli):
    code, _, err = cli("export", FOLDER, "--out", "a.csv", "--backbone", "letters")
    assert code == 2
    assert "--backbone is for the graph of a head" in err
    assert not (tmp_path / "a.csv").exists()


def test_what_is_no_service_is_refused_and_nothing_is_left(client, tmp_path):
    for folder, out, words in (
        (tmp_path / FOLDER, "examples.xlsx", r"\.csv or \.parquet"),
        (tmp_path, "a.csv", "not the folder of a service"),
    ):
        with pytest.raises(ValueError, match=words):
            export(folder, tmp_path / out)
    client.stop()
    with sqlite3.connect(tmp_path / FOLDER / "taer.db") as database:
        database.execute("PRAGMA user_version = 1")
    database.close()
    with pytest.raises(ValueError, match="schema 1"):
        export(tmp_path / FOLDER, tmp_path / "a.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == [FOLDER]


def test_memory_does_not_follow_the_number_of_examples(client, tmp_path):
    client.service.add_examples("a", np.zeros((64, 16_000), np.float32), ["x" * 10_000] * 64)
    for _ in range(5):
        client.service.store.add_examples("a", np.zeros((600, 4), np.float32), ["x" * 10_000] * 600)
    tracemalloc.start()
    export(tmp_path / FOLDER, tmp_path / "a.csv")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "a.csv").stat().st_size > 30e6
    assert peak < 15e6
