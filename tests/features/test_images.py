"""The image decoder, and memory that does not depend on the shape of an image."""

from __future__ import annotations

import base64
import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, ImageDraw, features

import taer
from taer.features.backbones.base import ImageTransform
from taer.features.images import decode_image
from taer.features.sources import open_source
from tests.features.conftest import drawing


def photo(orientation: int) -> bytes:
    """A JPEG that a camera held at an angle would write."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(drawing("circle", np.random.default_rng(0)), "JPEG", exif=exif)


def encoded(image: Image.Image, format: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def cutout(mode: str) -> Image.Image:
    """A black disc on nothing, whose hidden pixels are black, too."""
    ink = Image.new("L", (40, 30), 0)
    ImageDraw.Draw(ink).ellipse((5, 5, 25, 25), fill=255)
    image = Image.new("RGBA", (40, 30), (0, 0, 0, 0))
    image.putalpha(ink)
    return image.convert(mode)


class Pixels:
    """A backbone whose features are the pixels."""

    name, kind = "pixels", "image"

    def __call__(self, items):
        return np.stack([np.asarray(item, np.float32).ravel() for item in items])


FILES = {
    "upright": photo(1),
    "turned": photo(6),
    "mirrored": photo(5),
    "transparent": encoded(cutout("RGBA")),
    "transparent gray": encoded(cutout("LA")),
    "transparent palette": encoded(Image.new("P", (40, 30), 0), transparency=0),
    "transparent color": encoded(Image.new("RGB", (40, 30), "black"), transparency=(0, 0, 0)),
    "sixteen bits": encoded(Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40) * 50)),
    "moving": encoded(drawing("line", np.random.default_rng(0)), "GIF"),
}


@pytest.mark.parametrize("name", list(FILES))
def test_extract_and_the_service_see_the_same_pixels(name, tmp_path):
    samples = pytest.importorskip("taer.serve.inputs")
    from taer.serve.inputs import Items

    for part in ("train", "test"):
        (tmp_path / part / "class").mkdir(parents=True)
        (tmp_path / part / "class" / "any.png").write_bytes(FILES[name])
    extracted = open_source(tmp_path).train.read(0)
    items = Items(images=[base64.b64encode(FILES[name]).decode()])
    served = samples.with_sources(items, Pixels(), None)[0]
    np.testing.assert_array_equal(np.asarray(extracted).reshape(1, -1), served)


def test_a_photo_stands_upright():
    turned = decode_image(FILES["turned"])
    assert turned.size == (30, 40)
    np.testing.assert_array_equal(turned, decode_image(FILES["upright"]).transpose(Image.Transpose.ROTATE_270))


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("transparent")])
def test_what_is_transparent_is_white(name):
    pixels = np.asarray(decode_image(FILES[name]))
    assert pixels[0, 0].tolist() == [255, 255, 255]
    if name in ("transparent", "transparent gray"):
        assert pixels[15, 15].tolist() == [0, 0, 0]


@pytest.mark.parametrize("format", ["PNG", "TIFF", "PPM"])
def test_sixteen_bits_of_gray_are_scaled_to_eight(format):
    values = np.arange(0, 65536, 256, dtype=np.uint16).reshape(16, 16)
    if format == "PPM":  # older versions of Pillow read these and cannot write them
        file = b"P5 16 16 65535\n" + values.astype(">u2").tobytes()
    else:
        file = encoded(Image.fromarray(values), format)
    pixels = np.asarray(decode_image(file))
    np.testing.assert_array_equal(pixels[..., 0].ravel(), np.arange(256))


def test_postscript_is_never_run(tmp_path, monkeypatch):
    """Pillow would run Ghostscript on it, whatever the name of the file."""
    ran = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *arguments, **options: ran.append(arguments))
    for part in ("train", "test"):
        (tmp_path / part / "class").mkdir(parents=True)
        drawing("circle", np.random.default_rng(0)).save(tmp_path / part / "class" / "any.eps")
        (tmp_path / part / "class" / "any.eps").rename(tmp_path / part / "class" / "any.png")
    with pytest.raises(ValueError, match="PNG, JPEG, WebP, HEIC, AVIF, GIF, BMP, TIFF or PPM"):
        open_source(tmp_path).train.read(0)
    assert not ran


def test_the_header_says_which_decoder(drawings, tiny_onnx, tmp_path):
    features = taer.extract(drawings, str(tiny_onnx), tmp_path / "features.safetensors")
    assert features.meta["preprocess"].startswith("decode 3, resize 18 bilinear, crop 16 × 16")


@pytest.mark.parametrize("resample", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(640, 480), (333, 500), (32, 32), (999, 1333), (248, 251), (30, 480)])
def test_ordinary_images_are_resized_whole_then_cropped(size, resample):
    """Bit for bit what torchvision does: the order of Pillow's two passes depends on the sizes it is asked for."""
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8))
    width, height = (int(256 * side / min(size)) for side in size)
    left, top = round((width - 224) / 2), round((height - 224) / 2)
    whole = image.resize((width, height), Image.Resampling[resample.upper()])
    found = ImageTransform(256, (224, 224), resample, (0.5,) * 3, (0.5,) * 3)(image)
    np.testing.assert_array_equal(found, whole.crop((left, top, left + 224, top + 224)))


def test_the_crop_of_a_strip_shows_its_middle():
    ramp = np.repeat(np.arange(250, dtype=np.uint8)[None], 10, axis=0)
    found = ImageTransform(16, (16, 16), "bilinear", (0.5,) * 3, (0.5,) * 3)(Image.fromarray(ramp).convert("RGB"))
    assert abs(found.mean() - 124.5) < 1
    assert found[0, 0, 0] < found[0, -1, 0] <= found[0, 0, 0] + 10


def test_a_crop_larger_than_the_image_is_padded_with_black():
    pixels = ImageTransform(20, (30, 40), "bilinear", (0.5,) * 3, (0.5,) * 3)(Image.new("RGB", (50, 40), "white"))
    assert pixels.shape == (30, 40, 3)
    assert pixels[5:25, 8:32].min() == 255  # 25 × 20 pixels of the image
    assert pixels[:5].max() == pixels[:, :7].max() == pixels[25:].max() == pixels[:, 33:].max() == 0


@pytest.mark.parametrize("size", [(1, 4096), (4096, 1), (1, 1_000_000)])
def test_a_strip_costs_no_more_than_the_input_of_the_network(size):
    """The shorter side of 1 × 4096 pixels, resized to 256, would be an image of 256 × 1,048,576."""
    program = f"""
import resource, sys
from PIL import Image
from taer.features.backbones.base import ImageTransform
from taer.features.images import decode_image
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> (10 * (sys.platform == "darwin"))
transform = ImageTransform(256, (224, 224), "bilinear", (0.5,) * 3, (0.5,) * 3)
transform(Image.new("RGB", (640, 480)))
before = peak()
assert transform(decode_image({encoded(Image.new("RGB", size, "red"))!r})).shape == (224, 224, 3)
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) < 30_000  # KiB


def made_of_nothing(width: int, height: int) -> bytes:
    """A PNG file of one color: a thousand pixels per byte."""
    return encoded(Image.new("1", (width, height)))


@pytest.mark.parametrize("size", [(8001, 8000), (16_000, 10_000), (16_000, 16_000)])
@pytest.mark.parametrize("format", ["PNG", "WEBP"])
def test_an_image_with_too_many_pixels_is_refused_before_they_are_decoded(size, format, tmp_path, monkeypatch):
    file = made_of_nothing(*size) if format == "PNG" else webp_header(*size)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("it was decoded"))
    for part in ("train", "test"):
        (tmp_path / part / "class").mkdir(parents=True)
        (tmp_path / part / "class" / "any.png").write_bytes(file)
    with pytest.raises(ValueError, match=r"an image of (more than )?\d+ megapixels.*scale it down"):
        open_source(tmp_path).train.read(0)


def webp_header(width: int, height: int) -> bytes:
    """A lossless WebP file that announces a size; its pixels are cut off."""
    bits = (width - 1) | (height - 1) << 14
    body = b"WEBPVP8L" + (5 + 250).to_bytes(4, "little") + b"\x2f" + bits.to_bytes(4, "little") + bytes(251)
    return b"RIFF" + len(body).to_bytes(4, "little") + body


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_large_transparent_image_takes_no_more_than_its_pixels_twice(tmp_path):
    Image.new("RGBA", (5000, 4000), (255, 0, 0, 100)).save(tmp_path / "large.png")  # 80 MB
    Image.new("RGBA", (5, 4)).save(tmp_path / "small.png")
    program = f"""
from pathlib import Path
from taer.features.images import decode_image
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
decode_image(Path({str(tmp_path / "small.png")!r}).read_bytes())
before = peak()
decode_image(Path({str(tmp_path / "large.png")!r}).read_bytes())
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) < 200_000  # kB


def heic() -> bytes:
    heif = pytest.importorskip("pillow_heif", reason="needs pillow-heif, which the extra images brings")
    heif.register_heif_opener(thumbnails=False)
    return encoded(Image.linear_gradient("L").convert("RGB"), "HEIF", quality=90)


def avif() -> bytes:
    if not features.check("avif"):
        pytest.skip("needs Pillow 11.3 or newer")
    return encoded(Image.linear_gradient("L").convert("RGB"), "AVIF", quality=90)


@pytest.mark.parametrize("make", [heic, avif])
def test_photographs_of_telephones_are_read(make, tmp_path):
    file = make()
    for part in ("train", "test"):
        (tmp_path / part / "class").mkdir(parents=True)
        (tmp_path / part / "class" / f"any.{make.__name__}").write_bytes(file)
    found = np.asarray(open_source(tmp_path).train.read(0))
    assert found.shape == (256, 256, 3)
    np.testing.assert_allclose(found[..., 0], np.asarray(Image.linear_gradient("L")), atol=12)
    served = pytest.importorskip("taer.serve.inputs").decode(base64.b64encode(file).decode())
    np.testing.assert_array_equal(found, np.asarray(served))


@pytest.mark.parametrize(
    ("brand", "words"),
    [(b"heic", r"needs pillow-heif: pip install 'taer\[images\]'"), (b"avif", "needs Pillow 11.3")],
)
def test_what_such_a_photograph_needs_is_told(brand, words, monkeypatch):
    from PIL import Image as pillow

    for format in ("HEIF", "AVIF"):
        monkeypatch.delitem(pillow.OPEN, format, raising=False)
    file = b"\x00\x00\x00\x18ftyp" + brand + bytes(100)
    with pytest.raises(ValueError, match=words):
        decode_image(file)
    images = pytest.importorskip("taer.serve.inputs")
    with pytest.raises(images.BadInput, match=words):
        images.decode(base64.b64encode(file).decode())
