"""CUB-200-2011 with its official split, from its archive or the unpacked folder."""

from __future__ import annotations

from pathlib import Path

from taer.features.sources.archives import download, unpacked
from taer.features.sources.base import Source, file_hashes, files_digest, files_part

URL = "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz"
CHECKSUM = "sha256:0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081"
REMEDY = "Fetch CUB_200_2011.tgz on another machine and pass it, or the folder it unpacks to, as root=PATH"


def open_cub200(root: Path | None) -> Source:
    """Birds of 200 species, with the class numbers of ``classes.txt`` and the split of ``train_test_split.txt``."""
    path = root or download("cub200", URL, CHECKSUM, REMEDY)
    folder = unpacked(path, "cub200") if path.is_file() else path
    if (folder / "CUB_200_2011").is_dir():
        folder = folder / "CUB_200_2011"
    names = _table(folder / "classes.txt")
    paths = _table(folder / "images.txt")
    label_of = _table(folder / "image_class_labels.txt")
    is_train = _table(folder / "train_test_split.txt")
    class_ids = {key: index for index, key in enumerate(names)}
    files: dict[str, list[Path]] = {"1": [], "0": []}
    labels: dict[str, list[int]] = {"1": [], "0": []}
    for key, name in paths.items():
        try:
            files[is_train[key]].append(folder / "images" / name)
            labels[is_train[key]].append(class_ids[label_of[key]])
        except KeyError:
            raise ValueError(f"{folder}: the split files disagree about image {key} ({name})") from None
    everything = files["1"] + files["0"]
    if missing := next((path for path in everything if not path.is_file()), None):
        raise ValueError(f"{missing}: listed in images.txt, but not there; unpack the archive again")
    return Source(
        "cub200",
        "image",
        tuple(name.partition(".")[2] or name for name in names.values()),
        files_part(files["1"], labels["1"]),
        files_part(files["0"], labels["0"]),
        files_digest(folder, file_hashes(everything)),
        "for non-commercial research and education; images belong to their photographers",
    )


def _table(path: Path) -> dict[str, str]:
    if not path.is_file():
        raise ValueError(f"{path.parent}: no CUB-200-2011 here: {path.name} is missing. {REMEDY}")
    rows = (line.split(maxsplit=1) for line in path.read_text().splitlines() if line.strip())
    return {key: value.strip() for key, value in rows}
