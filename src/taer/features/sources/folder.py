"""A folder of images: one subfolder per class, or no subfolders and no labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from taer.features.sources.base import NOTHING, Source, file_hashes, files_digest, files_part, split_by_name

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
    """``train/CLASS/*`` and ``test/CLASS/*``, or one tree ``CLASS/*`` from which a fraction may be held out for test.

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
        hashes = file_hashes(paths)
        unlabeled = files_part(paths, hashes=hashes)
        return Source(root.resolve().name, "image", (), NOTHING, unlabeled, files_digest(root, hashes))
    else:
        everything = labeled_images(_tree(root))
        classes = sorted({name for name, _ in everything})
        names = [path.relative_to(root).as_posix() for _, path in everything]
        label_of = {name: label for label, name in enumerate(classes)}
        for_test = split_by_name(names, [label_of[name] for name, _ in everything], test_fraction or 0)
        train, test = ([everything[row] for row in np.flatnonzero(rows)] for rows in (~for_test, for_test))

    label_of = {name: label for label, name in enumerate(classes)}
    hashes = file_hashes([path for part in (train, test) for _, path in part])
    train_part, test_part = (
        files_part([path for _, path in part], [label_of[name] for name, _ in part], hashes)
        for part in (train, test)
    )
    return Source(root.resolve().name, "image", tuple(classes), train_part, test_part, files_digest(root, hashes))


def _tree(root: Path) -> Path:
    """The folder above the classes: ``train`` if there is nothing beside it."""
    folders = [folder.name for folder in root.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
    return root / "train" if folders == ["train"] and not _flat(root / "train") else root


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
