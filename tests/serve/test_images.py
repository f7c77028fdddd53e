"""Photos of a phone: scaled down by the server, within bounds of memory, and refused in words beyond them."""

from __future__ import annotations

import base64
import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from taer.serve import inputs as images
from taer.serve.inputs import MAX_IMAGE_BYTES, BadInput
from tests.serve.backbones import Pixels
from tests.serve.conftest import png


def photo(width, height, **options):
    """A JPEG file with light above and dark below, as large as a camera's."""
    rows = np.linspace(230, 20, height)[:, None] + np.random.default_rng(0).normal(0, 18, (height, width))
    file = io.BytesIO()
    Image.fromarray(rows.clip(0, 255).astype(np.uint8)).convert("RGB").save(file, "JPEG", **options)
    return file.getvalue()


def sent(content):
    return base64.b64encode(content).decode()


def test_a_photo_of_12_megapixels_and_8_megabytes(open_service):
    content = photo(4032, 3024, quality=95)
    assert 7e6 < len(content) < 10e6
    client = open_service(backbone=Pixels())
    for label, image in (("photo", sent(content)), ("dark", png(Image.new("RGB", (40, 30), "black")))):
        answer = client.post("/examples", json={"label": label, "images": [image] * (1 if label == "photo" else 3)})
        assert answer.status_code == 200, answer.text
    client.post("/learn")
    found = client.post("/predict", json={"images": [sent(content)]}).json()
    assert found["predictions"][0]["label"] == "photo"
    kept = Image.open(io.BytesIO(base64.b64decode(client.get("/examples/1").json()["image"])))
    assert kept.size == (512, 384)
    small = Image.open(io.BytesIO(content)).resize((8, 8))
    np.testing.assert_allclose(
        client.get("/examples/1").json()["vector"], np.asarray(small.convert("L")).ravel() / 255, atol=0.02
    )


def test_where_a_photo_was_taken_is_not_kept():
    exif = Image.Exif()
    exif[0x010E] = "at home"
    assert b"at home" in (content := photo(60, 40, exif=exif))
    assert b"at home" not in images.small_copy(images.decode(sent(content)))


@pytest.mark.parametrize(
    ("mode", "format"),
    [("RGB", "PNG"), ("P", "PNG"), ("RGBA", "PNG"), ("1", "PNG"), ("L", "WEBP"), ("P", "GIF")],
)
def test_large_files_of_every_kind_are_scaled_down(mode, format):
    base = Image.linear_gradient("L").resize((2000, 1500))
    shown = images.decode(png(base.convert(mode), format))
    assert (shown.mode, shown.size) == ("RGB", (1024, 768))
    gray = np.asarray(shown.convert("L").resize((1, 8)), float).ravel()
    if mode != "1":
        assert (np.diff(gray) > 0).all()


@pytest.mark.parametrize("side", [1500, 4096])
def test_sixteen_bits_of_gray_are_scaled_down(side):
    values = np.repeat(np.linspace(0, 65535, side).astype(np.uint16)[:, None], side, axis=1)
    shown = images.decode(png(Image.fromarray(values)))
    assert shown.size == (1024, 1024)
    gray = np.asarray(shown.convert("L"), float)[:, 0]
    np.testing.assert_allclose(gray, np.linspace(0, 255, 1024), atol=2)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda: photo(500, 400, quality=95) + bytes(MAX_IMAGE_BYTES), "11.1 MB, and a file may have 11 MB"),
        (
            lambda: photo(6000, 4300, progressive=True),
            "26 megapixels (6000 × 4300), and a photo may have 64 as JPEG",
        ),
    ],
)
def test_what_is_too_large_is_told_in_the_units_of_a_photo(content, words):
    with pytest.raises(BadInput) as error:
        images.decode(sent(content()))
    assert words in str(error.value)
    assert str(error.value).endswith("scale it down")


def test_memory_does_not_follow_the_size_of_a_photo(tmp_path):
    file = tmp_path / "photo.jpg"
    Image.new("RGB", (9000, 7000), "red").save(file)  # 63 megapixels, 189 MB as pixels
    program = f"""
import base64, resource
from taer.serve import inputs as images
small = images.decode(base64.b64encode(open({str(tmp_path / "small.jpg")!r}, "rb").read()).decode())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
images.decode(base64.b64encode(open({str(file)!r}, "rb").read()).decode())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    Image.new("RGB", (30, 20)).save(tmp_path / "small.jpg")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 80_000  # kB
