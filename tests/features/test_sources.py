"""Data sets in their published layouts, as small archives written here."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import tarfile
import zipfile
from typing import ClassVar

import numpy as np
import pytest

pytest.importorskip("pooch")
from PIL import Image

from taer.features.sources import archives, cifar100, core50, cub200, open_source


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def png(color: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (color, 0, 0)).save(file, "PNG")
    return file.getvalue()


class Python2Pickler(pickle._Pickler):
    """Writes byte strings as Python 2 did; CIFAR-100's files are that old."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, value):
        data = value if isinstance(value, bytes) else value.encode("latin1")
        self.write(b"T" + len(data).to_bytes(4, "little") + data)

    dispatch[bytes] = save_string
    dispatch[str] = save_string


def python2_pickle(value) -> bytes:
    file = io.BytesIO()
    Python2Pickler(file, 2).dump(value)
    return file.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


@pytest.fixture
def cifar_rows():
    rng = np.random.default_rng(0)
    return {
        part: (rng.integers(0, 256, (count, 3072), np.uint8), rng.integers(0, 3, count))
        for part, count in (("train", 7), ("test", 4))
    }


NAMES = ["apple", "aquarium_fish", "baby"]


@pytest.fixture
def cifar_binary(tmp_path, cifar_rows):
    path = tmp_path / "cifar-100-binary.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for part, (pixels, labels) in cifar_rows.items():
            rows = np.hstack([np.zeros((len(labels), 1)), labels[:, None], pixels]).astype(np.uint8)
            add(tar, f"cifar-100-binary/{part}.bin", rows.tobytes())
        add(tar, "cifar-100-binary/fine_label_names.txt", ("\n".join(NAMES) + "\n").encode())
    return path


@pytest.fixture
def cifar_python(tmp_path, cifar_rows):
    path = tmp_path / "cifar-100-python.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for part, (pixels, labels) in cifar_rows.items():
            content = {"data": pixels, "fine_labels": labels.tolist(), "coarse_labels": [0] * len(labels)}
            add(tar, f"cifar-100-python/{part}", python2_pickle(content))
        add(tar, "cifar-100-python/meta", python2_pickle({"fine_label_names": NAMES}))
    return path


@pytest.mark.parametrize("form", ["cifar_binary", "cifar_python"])
@pytest.mark.parametrize("packed", [True, False])
def test_cifar100_in_both_forms(request, tmp_path, cifar_rows, form, packed):
    root = request.getfixturevalue(form)
    if not packed:
        with tarfile.open(root) as tar:
            tar.extractall(tmp_path / "unpacked", filter="data")
        root = tmp_path / "unpacked"
    source = open_source("cifar100", root=root)
    assert source.classes == tuple(NAMES)
    for part in ("train", "test"):
        pixels, labels = cifar_rows[part]
        items = getattr(source, part)
        np.testing.assert_array_equal(items.labels, labels)
        expected = pixels[2].reshape(3, 32, 32).transpose(1, 2, 0)
        np.testing.assert_array_equal(np.asarray(items.read(2)), expected)


def test_both_forms_of_cifar100_are_the_same_data(cifar_binary, cifar_python):
    assert open_source("cifar100", root=cifar_binary).digest == open_source("cifar100", root=cifar_python).digest


class Hostile:
    """What an attacker would put into the archive: reading it runs a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("member", ["meta", "train", "test"])
def test_hostile_pickle_is_never_executed(tmp_path, member):
    witness = tmp_path / "executed"
    evil = pickle.dumps(Hostile(f"touch {witness}"))
    content = {"data": np.zeros((1, 3072), np.uint8), "fine_labels": [0]}
    good = {"meta": {"fine_label_names": NAMES}, "train": content, "test": content}
    path = tmp_path / "cifar-100-python.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, value in good.items():
            add(tar, f"cifar-100-python/{name}", evil if name == member else python2_pickle(value))
    with pytest.raises(ValueError, match=r"not a CIFAR-100 file: it asks for (posix|os)\.system"):
        open_source("cifar100", root=path)
    assert not witness.exists()
    pickle.loads(evil)  # the file is a real attack
    assert witness.exists()


@pytest.mark.parametrize("name", ["eval", "getattr", "__import__"])
def test_builtins_are_refused_too(name):
    with pytest.raises(ValueError, match=f"builtins.{name}"):
        cifar100._unpickle(f"cbuiltins\n{name}\n.".encode(), "meta")


@pytest.mark.parametrize(
    ("form", "member"),
    [(form, part) for form, parts in (
        ("cifar_binary", ("test.bin", "fine_label_names.txt")),
        ("cifar_python", ("train", "test")),
    ) for part in parts],
)  # fmt: skip
def test_a_cifar100_archive_that_lacks_a_member(request, tmp_path, form, member):
    whole, cut = request.getfixturevalue(form), tmp_path / "cut.tar.gz"
    with tarfile.open(whole) as old, tarfile.open(cut, "w:gz") as new:
        for entry in old:
            if not entry.name.endswith(f"/{member}"):
                new.addfile(entry, old.extractfile(entry))
    with pytest.raises(ValueError, match=rf"cut.tar.gz: lacks {member} of CIFAR-100. Fetch cifar-100"):
        open_source("cifar100", root=cut)


@pytest.mark.parametrize("meta", [{}, {"fine_label_names": 3}, {"fine_label_names": [1, 2]}])
def test_a_cifar100_archive_without_names_of_its_classes(tmp_path, cifar_python, meta):
    with tarfile.open(cifar_python) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    root = tmp_path / "unpacked" / "cifar-100-python"
    (root / "meta").write_bytes(python2_pickle(meta))
    with pytest.raises(ValueError, match="meta: lacks the names of the classes"):
        open_source("cifar100", root=root)


@pytest.mark.parametrize("labels", [[], [0, 1]])
def test_a_cifar100_part_with_too_few_labels(tmp_path, cifar_python, cifar_rows, labels):
    with tarfile.open(cifar_python) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    root = tmp_path / "unpacked" / "cifar-100-python"
    rows = cifar_rows["test"][0]
    (root / "test").write_bytes(python2_pickle({"data": rows, "fine_labels": labels}))
    with pytest.raises(ValueError, match=r"test: expected a label for each of 4 images, got"):
        open_source("cifar100", root=root)


def test_truncated_cifar100(tmp_path, cifar_binary):
    (tmp_path / "half.tar.gz").write_bytes(cifar_binary.read_bytes()[:3000])
    with pytest.raises(ValueError, match="not a whole tar archive"):
        open_source("cifar100", root=tmp_path / "half.tar.gz")


@pytest.fixture
def cub_archive(tmp_path):
    birds = ["001.Black_footed_Albatross", "002.Laysan_Albatross"]
    path = tmp_path / "CUB_200_2011.tgz"
    with tarfile.open(path, "w:gz") as tar:
        images, labels, split = [], [], []
        for number in range(1, 7):
            bird = (number - 1) // 3
            name = f"{birds[bird]}/{birds[bird][4:]}_{number:04}.jpg"
            add(tar, f"CUB_200_2011/images/{name}", png(number))
            images.append(f"{number} {name}")
            labels.append(f"{number} {bird + 1}")
            split.append(f"{number} {int(number % 3 != 0)}")
        classes = [f"{number} {bird}" for number, bird in enumerate(birds, 1)]
        for name, lines in (
            ("images", images), ("image_class_labels", labels), ("train_test_split", split), ("classes", classes)
        ):  # fmt: skip
            add(tar, f"CUB_200_2011/{name}.txt", "\n".join(lines).encode())
    return path


def test_cub200_by_its_split_files(cub_archive):
    source = open_source("cub200", root=cub_archive)
    assert source.classes == ("Black_footed_Albatross", "Laysan_Albatross")
    assert source.train.labels.tolist() == [0, 0, 1, 1]
    assert source.test.labels.tolist() == [0, 1]
    assert [source.test.read(row).getpixel((0, 0))[0] for row in (0, 1)] == [3, 6]
    assert source.test.where(0).endswith("Black_footed_Albatross_0003.jpg")
    assert open_source("cub200", root=cub_archive).digest == source.digest


def test_cub200_with_a_missing_image(tmp_path, cub_archive):
    with tarfile.open(cub_archive) as tar:
        tar.extractall(tmp_path / "cub", filter="data")
    next((tmp_path / "cub").rglob("*_0002.jpg")).unlink()
    with pytest.raises(ValueError, match=r"_0002\.jpg: listed in images\.txt, but not there"):
        open_source("cub200", root=tmp_path / "cub")


@pytest.mark.parametrize("packed", [True, False])
def test_core50_by_its_file_names(tmp_path, packed):
    path = tmp_path / "core50_128x128.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for session in (1, 2, 3, 7, 10, 11):
            for item in (1, 6, 50):
                name = f"core50_128x128/s{session}/o{item}/C_{session:02}_{item:02}_000.png"
                archive.writestr(name, png(session * 10 + item % 10))
        archive.writestr("core50_128x128/readme.txt", "no image")
    root = path
    if not packed:
        root = tmp_path / "core50"
        zipfile.ZipFile(path).extractall(root)
    source = open_source("core50", root=root)
    assert len(source.classes) == 50
    assert [source.classes[item] for item in (0, 5, 49)] == ["plug adapter 1", "mobile phone 1", "remote control 5"]
    assert (len(source.train), len(source.test)) == (9, 9)
    assert sorted(set(source.test.labels.tolist())) == [0, 5, 49]
    shades = {source.test.read(row).getpixel((0, 0))[0] // 10 for row in range(9)}
    assert shades == {3, 7, 10}


@pytest.mark.parametrize(("name", "module"), [("cifar100", cifar100), ("cub200", cub200), ("core50", core50)])
def test_without_a_network_the_error_says_what_to_do(monkeypatch, name, module):
    monkeypatch.setattr(module, "URL", "http://localhost:9/archive.zip")
    with pytest.raises(ValueError, match=rf"{name} could not be downloaded from http://localhost:9.*as root=PATH"):
        open_source(name)


def test_checksum_of_a_download(monkeypatch, tmp_path, cifar_binary):
    import hashlib
    import threading
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("localhost", 0), partial(Quiet, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(cifar100, "URL", f"http://localhost:{server.server_port}/{cifar_binary.name}")
    found = hashlib.md5(cifar_binary.read_bytes()).hexdigest()
    try:
        with pytest.raises(ValueError, match=f"expected md5 03b5dce0.*, found {found}"):
            open_source("cifar100")
        monkeypatch.setattr(cifar100, "CHECKSUM", f"md5:{found}")
        assert open_source("cifar100").classes == tuple(NAMES)
    finally:
        server.shutdown()
        server.server_close()
    assert open_source("cifar100").classes == tuple(NAMES)  # from the cache, with the server gone
    assert (archives.cache_folder() / "cifar100" / cifar_binary.name).is_file()


def test_image_folder_with_its_own_split(drawings):
    source = open_source(drawings)
    assert source.classes == ("circle", "square")
    assert (len(source.train), len(source.test)) == (12, 6)
    assert source.train.labels.tolist() == [0] * 6 + [1] * 6


def test_image_folder_without_a_split(drawings):
    tree = drawings / "train"
    for whole in (open_source(tree), open_source(tree, test_fraction=0)):
        assert (len(whole.train), len(whole.test)) == (12, 0)  # nothing is held out unless it is asked for
    source = open_source(tree, test_fraction=0.34)
    assert np.bincount(source.test.labels).tolist() == [2, 2]
    assert np.bincount(source.train.labels).tolist() == [4, 4]
    assert {source.train.where(row) for row in range(8)}.isdisjoint(source.test.where(row) for row in range(4))
    assert open_source(tree, test_fraction=0.34).digest == source.digest


def test_digest_follows_the_content_not_the_place(drawings, tmp_path):
    before = open_source(drawings).digest
    moved = drawings.rename(tmp_path / "elsewhere")
    assert open_source(moved).digest == before
    path = next(moved.rglob("*.png"))
    path.write_bytes(png(1))
    assert open_source(moved).digest != before


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_table_of_texts(tmp_path, suffix):
    rows = [("a cat, asleep", "cat", "train"), ("a dog", "dog", "train"), ("the cat", "cat", "test")]
    path = tmp_path / f"pets.{suffix}"
    if suffix == "csv":
        path.write_text("body,kind,part\n" + "".join(f'"{text}",{kind},{part}\n' for text, kind, part in rows))
    else:
        pytest.importorskip("pyarrow")
        import pyarrow
        import pyarrow.parquet

        columns = dict(zip(("body", "kind", "part"), map(list, zip(*rows, strict=True)), strict=True))
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    names = {"text_column": "body", "label_column": "kind"}
    source = open_source(path, split_column="part", **names)
    assert source.kind == "text"
    assert source.classes == ("cat", "dog")
    assert [source.train.read(row) for row in (0, 1)] == ["a cat, asleep", "a dog"]
    assert source.test.where(0) == f"{path} row 3"
    with pytest.raises(ValueError, match="no column text; it has body, kind, part"):
        open_source(path)
    assert len(open_source(path, **names).test) == 0
    with pytest.raises(ValueError, match="must say train or test, got cat, dog"):
        open_source(path, split_column="kind", **names)


@pytest.mark.parametrize("how", [{"split_column": "part"}, {"test_fraction": 0.5}])
def test_a_table_of_nothing_but_a_header(tmp_path, how):
    (tmp_path / "empty.csv").write_text("text,label,part\n")
    with pytest.raises(ValueError, match=r"empty.csv: no rows"):
        open_source(tmp_path / "empty.csv", **how)


def test_a_cell_without_end(tmp_path):
    """A quote that is never closed takes in the rest of the file."""
    path = tmp_path / "long.csv"
    path.write_text('text,label\na,b\n"' + "word " * 30_000 + '",b\n')
    with pytest.raises(ValueError, match=r"long.csv: line 3: .* 131,072 characters"):
        open_source(path, test_fraction=0.5)
    path.write_bytes("text,label\ncafé,b\n".encode("latin1"))
    with pytest.raises(ValueError, match=r"long.csv: not UTF-8"):
        open_source(path, test_fraction=0.5)


@pytest.mark.parametrize("kind", ["image", "text"])
def test_hugging_face_data_set_in_a_local_folder(tmp_path, kind, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")

    folder = tmp_path / "data"
    folder.mkdir()
    for split, count in (("train", 4), ("test", 2)):
        labels = [row % 2 for row in range(count)]
        if kind == "image":
            columns = {"picture": [{"bytes": png(row), "path": None} for row in range(count)], "label": labels}
            features = {"picture": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
        else:
            columns = {
                "text": [f"text {row}" for row in range(count)],
                "label": [("cat", "dog")[k] for k in labels],
            }
            features = {"text": datasets.Value("string"), "label": datasets.Value("string")}
        table = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
        table.to_parquet(folder / f"{split}-00000-of-00001.parquet")
    source = open_source(f"hf:{folder}")
    assert source.kind == kind
    assert source.classes == ("cat", "dog")
    assert source.test.labels.tolist() == [0, 1]
    assert open_source(f"hf:{folder}").digest == source.digest
    third = source.train.read(3)
    assert (third.getpixel((0, 0))[0] if kind == "image" else third) == (3 if kind == "image" else "text 3")


def test_hub_out_of_reach(monkeypatch):
    datasets = pytest.importorskip("datasets")

    asked = []

    def refuse(name, revision):
        asked.append((name, revision))
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(ValueError, match=r"hf:nobody/nothing could not be loaded .*no route.*local folder"):
        open_source("hf:nobody/nothing")
    with pytest.raises(ValueError, match=r"hf:nobody/nothing@1a2b could not be loaded"):
        open_source("hf:nobody/nothing@1a2b")
    assert asked == [("nobody/nothing", None), ("nobody/nothing", "1a2b")]


def test_what_is_no_data_set(tmp_path, drawings):
    with pytest.raises(ValueError, match=r"not a data set\. Expected cifar100, cub200, core50, a folder"):
        open_source("imagenet")
    with pytest.raises(ValueError, match="no images here"):
        open_source(tmp_path / "drawings" / "train" / "circle", test_fraction=0.5)
    with pytest.raises(ValueError, match="no such file or folder"):
        open_source("cub200", root=tmp_path / "absent")
    with pytest.raises(ValueError, match=r"the test fraction must be below 1 and not negative, got 1.5"):
        open_source(drawings / "train", test_fraction=1.5)


def test_the_only_item_of_a_class_is_for_training(tmp_path):
    path = tmp_path / "pets.csv"
    path.write_text("text,label\na cat,cat\nthe cat,cat\nthe dog,dog\n")
    source = open_source(path, test_fraction=0.5)
    assert source.classes == ("cat", "dog")
    assert sorted(source.train.labels.tolist()) == [0, 1]
    assert source.test.labels.tolist() == [0]
    path.write_text("text,label\nthe cat,cat\nthe dog,dog\n")
    assert len(open_source(path, test_fraction=0.5).test) == 0


def test_a_table_without_a_split_is_all_for_training(tmp_path):
    path = tmp_path / "five.csv"
    path.write_text("text,label\na cat,cat\nthe cat,cat\nthe dog,dog\n")
    for source in (open_source(path), open_source(path, test_fraction=0)):
        assert (len(source.train), len(source.test), source.classes) == (3, 0, ("cat", "dog"))


def test_a_column_named_split_is_used_unless_told_otherwise(tmp_path):
    path = tmp_path / "five.csv"
    path.write_text("text,label,split\na cat,cat,train\nthe cat,cat,test\n")
    assert [len(part) for part in (open_source(path).train, open_source(path).test)] == [1, 1]
    assert len(open_source(path, test_fraction=0).train) == 2
    path.write_text("text,label,split\na cat,cat,left\n")
    with pytest.raises(ValueError, match=r"split must say train or test, got left; .*test_fraction=0 all rows"):
        open_source(path)


def test_a_folder_with_train_alone_has_no_test_part(drawings):
    shutil.rmtree(drawings / "test")
    source = open_source(drawings)
    assert (source.classes, len(source.train), len(source.test)) == (("circle", "square"), 12, 0)
