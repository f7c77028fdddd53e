"""A service from Python, and ``taer teach``."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from PIL import Image

import taer.client
from taer.cli import main
from taer.client import AsyncClient, Client, ServiceError
from taer.serve import schemas
from tests.serve.conftest import TOKEN, vectors


@pytest.mark.parametrize("name", ["ClassProbability", "Prediction", "Predictions", "Added", "Corrected", "Purged"])
def test_types_are_those_of_the_service(name):
    assert set(getattr(taer.client, name).__annotations__) == set(getattr(schemas, name).model_fields)


def test_both_clients_have_the_same_verbs():
    verbs = [{name for name in vars(kind) if not name.startswith("_")} for kind in (Client, AsyncClient)]
    assert verbs[0] == verbs[1]
    assert len(verbs[0]) > 15


def test_every_verb(serve):
    server = serve()
    with Client(server.url, TOKEN) as client:
        for label in (0, 1, 2):
            client.add(f"class {label}", np.array(vectors(label), np.float32))
        assert client.learn()["version"] == 1
        answer = client.predict(vectors(1, 2), top=2)
        assert [one["label"] for one in answer["predictions"]] == ["class 1", "class 1"]
        assert len(answer["predictions"][0]["probabilities"]) == 2
        assert client.rename("class 2", "a / b")["version"] == 2
        assert [example["id"] for example in client.examples("a / b", limit=2)["examples"]] == [17, 18]
        assert client.example(17)["label"] == "a / b"
        assert client.relabel(17, "class 1") == {"version": 3}
        assert client.delete(18) == {"version": 4}
        assert client.forget("a / b")["version"] == 5
        assert client.rollback(2)["current"] == 2
        client.add("new", [vectors(3, 1)[0]])
        assert client.discard() == 1
        assert client.purge([17])["versions"] == [1, 2, 3, 4, 5]
        assert len(client.classes()["classes"]) == 3
        assert client.history()["current"] == 0
        assert client.confusion()["cells"] == []
        assert client.drift()["answered"] == 2
        assert client.health()["status"] == "ok"
        with pytest.raises(ServiceError, match="nothing was learned yet") as error:
            client.predict(vectors(0, 1))
        assert error.value.status == 409
        with pytest.raises(ValueError, match="exactly one"):
            client.predict()


def test_without_waiting_in_line(serve, tmp_path):
    server = serve(program=("-m", "tests.serve.pixels_server"))

    async def ask():
        async with AsyncClient(server.url, TOKEN) as client:
            for label, colour in (("dark", "black"), ("light", "white")):
                Image.new("RGB", (20, 10), colour).save(tmp_path / f"{label}.png")
                await client.add(label, images=[tmp_path / f"{label}.png"] * 4)
            await client.learn()
            answers = await asyncio.gather(*(client.predict(np.full((1, 64), shade)) for shade in (0.0, 1.0)))
            return [answer["predictions"][0]["label"] for answer in answers]

    assert asyncio.run(ask()) == ["dark", "light"]


def test_teach_many_texts_at_once(open_service, tmp_path, monkeypatch, capsys):
    from tests.serve.backbones import Letters

    service = open_service(backbone=Letters())
    monkeypatch.setattr("httpx2.Client", lambda **options: service)
    monkeypatch.setattr(service, "close", lambda: None)
    table = tmp_path / "examples.csv"
    table.write_text("text,label\n" + "".join(f"a{'b' * (n % 3)},first\nf,last\n" for n in range(70)))
    with pytest.raises(SystemExit) as done:
        main(["teach", "http://127.0.0.1", str(table), "--token", TOKEN])
    assert done.value.code == 0
    assert capsys.readouterr().out == "version 1: 140 examples of 2 classes; 2 classes in all\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [("question,label\na,b\n", "no column text"), ("text,label\n", "no rows"), (None, "cannot be read")],
)
def test_a_table_that_cannot_be_taught(tmp_path, capsys, content, words):
    table = tmp_path / "examples.csv"
    if content is not None:
        table.write_text(content)
    with pytest.raises(SystemExit) as done:
        main(["teach", "http://127.0.0.1:1", str(table), "--token", "x"])
    assert done.value.code == 2
    assert words in capsys.readouterr().err
