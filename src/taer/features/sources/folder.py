"""A folder of images: one subfolder per class, or no subfolders and no labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from taer.features.sources.base import NOTHING, Source, files_digest, files_part, split_by_name

_SUFFIXES = {
    ".png",
    ".jpg",
    ".jpeg",
    ".webp",
    ".bmp",
    ".gif",
    ".tif",
    ".tiff",
    ".ppm",
    ".pgm",
    ".heic",
    ".heif",
    ".avif",
}


def open_folder(root: Path, test_fraction: float | None) -> Source:
    """``train/CLASS/*`` and ``test/CLASS/*``, or one tree ``CLASS/*`` from which a fraction is held out for test.

    If all images are in the folder itself, they have no labels.
    """
    if (root / "train").is_dir() and (root / "test").is_dir():
        if test_fraction is not None:
            raise ValueError(
                f"{root}: already has train/ and test/, so no test fraction is set aside; leave it out"
            )
        train, test = labeled_images(root / "train"), labeled_images(root / "test")
        classes = sorted({name for name, _ in train})
        if unknown := sorted({name for name, _ in test} - set(classes)):
            raise ValueError(f"{root}: classes in test/ that train/ lacks: {', '.join(unknown[:5])}")
    elif test_fraction is None and (paths := _flat(root)):
        return Source(root.resolve().name, "image", (), NOTHING, files_part(paths), files_digest(root, paths))
    else:
        everything = labeled_images(root)
        classes = sorted({name for name, _ in everything})
        if test_fraction is None:
            raise ValueError(
                f"{root}: expected train/CLASS/* and test/CLASS/*; for one tree CLASS/* say how much of it "
                "is for test, such as test_fraction=0.2"
            )
        names = [path.relative_to(root).as_posix() for _, path in everything]
        label_of = {name: label for label, name in enumerate(classes)}
        for_test = split_by_name(names, [label_of[name] for name, _ in everything], test_fraction)
        train, test = ([everything[row] for row in np.flatnonzero(rows)] for rows in (~for_test, for_test))

    label_of = {name: label for label, name in enumerate(classes)}
    train_part, test_part = (
        files_part([path for _, path in part], [label_of[name] for name, _ in part]) for part in (train, test)
    )
    paths = [path for part in (train, test) for _, path in part]
    return Source(root.resolve().name, "image", tuple(classes), train_part, test_part, files_digest(root, paths))


def labeled_images(root: Path) -> list[tuple[str, Path]]:
    """(class, path) of every image, sorted by name; subfolders of a class belong to it."""
    found = [
        (folder.name, path)
        for folder in sorted(root.iterdir())
        if folder.is_dir() and not folder.name.startswith(".")
        for path in images_below(folder)
    ]
    if not found:
        raise ValueError(f"{root}: no images here; expected one subfolder per class, with .png, .jpg, … in it")
    return found


def images_below(folder: Path) -> list[Path]:
    """The images in a folder and its subfolders, sorted by name."""
    return [path for path in sorted(folder.rglob("*")) if is_image(path)]


def _flat(root: Path) -> list[Path]:
    """The images in a folder, if its subfolders have none."""
    images = images_below(root)
    return images if all(path.parent == root for path in images) else []


def is_image(path: Path) -> bool:
    return path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")
