"""``taer extract --append``: of data that grew, only what is new is computed."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

import taer
from tests.conftest import Letters

ROWS = [("aaab", "a"), ("aab", "a"), ("ccd", "c"), ("cccd", "c")]


def write(path, rows):
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))


@pytest.fixture
def seen(monkeypatch):
    """The texts that are encoded."""
    found, plain = [], Letters.__call__
    monkeypatch.setattr(Letters, "__call__", lambda self, items: (found.extend(items), plain(self, items))[1])
    return found


def extract(cli, *more):
    return cli("extract", "t.csv", "--backbone", "letters", "--out", "t.safetensors", *more)


def test_only_new_rows_are_extracted(cli, backbones, seen, tmp_path):
    write(tmp_path / "t.csv", ROWS)
    extract(cli)
    seen.clear()
    grown = [
        ("eef", "e"),
        *ROWS[:1],
        ("aab", "c"),
        *ROWS[2:],
        ("eeeef", "e"),
        ("eef", "e"),
    ]  # and one label corrected
    write(tmp_path / "t.csv", grown)
    code, out, err = extract(cli, "--append")
    assert (code, err) == (0, "")
    assert out == "t.safetensors: 7 train, 0 test, 3 classes, 8 features (3 extracted now)\n"
    assert sorted(seen) == ["eeeef", "eef", "eef"]
    appended = taer.load_features(tmp_path / "t.safetensors")
    assert not (tmp_path / "t.safetensors.parts").exists()
    (tmp_path / "t.safetensors").unlink()
    extract(cli)
    anew = taer.load_features(tmp_path / "t.safetensors")
    assert appended.fingerprint == anew.fingerprint
    assert appended.meta["extraction"] == anew.meta["extraction"]
    assert extract(cli, "--append")[1].endswith("(already there, nothing to do)\n")


def test_rows_that_moved_between_the_parts_are_not_extracted_again(cli, backbones, seen, tmp_path):
    write(tmp_path / "t.csv", ROWS)
    extract(cli, "--test-fraction", 0.5)
    seen.clear()
    assert extract(cli, "--append")[1].startswith(
        "t.safetensors: 4 train, 0 test, 2 classes, 8 features (0 extracted"
    )
    assert seen == []
    write(tmp_path / "t.csv", [*ROWS, ("aaaaaab", "a"), ("cccccd", "c")])
    extract(cli, "--append", "--test-fraction", 0.5)
    assert len(seen) == 2
    found = taer.load_features(tmp_path / "t.safetensors")
    assert (len(found.train_x), len(found.test_x)) == (2, 4)


def test_a_folder_that_grew(cli, backbones, tmp_path):
    def photo(label, number):
        path = tmp_path / "photos" / label / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number * 20,) * 3).save(path)

    for number in (1, 2):
        photo("dark", number)
    command = ("extract", "photos", "--backbone", "gray", "--out", "p.safetensors")
    cli(*command)
    photo("dark", 0)
    photo("light", 9)
    assert cli(*command)[2].endswith("if its items are among these, --append adds what is new\n")
    assert "4 train, 0 test, 2 classes, 8 features (2 extracted now)" in cli(*command, "--append")[1]
    found = taer.load_features(tmp_path / "p.safetensors")
    np.testing.assert_allclose(found.train_x[:, 0] + 0.5, np.array([0, 20, 40, 180]) / 255, atol=1e-6)


def test_what_cannot_be_appended_to_is_refused(cli, backbones, file, tmp_path):
    write(tmp_path / "t.csv", ROWS)
    code, _, err = cli("extract", "t.csv", "--backbone", "letters", "--out", file, "--append")
    assert (code, "nothing can be appended to these features: of no known backbone" in err) == (2, True)
