"""An SBOM (CycloneDX, JSON) of the package as installed in an environment, with the files that are bundled in it.

``python tools/sbom.py PYTHON OUT`` where PYTHON is the environment's interpreter. The same environment gives the same
bytes.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from bundled import ROOT, Bundled, bundled


def component(file: Bundled) -> dict[str, object]:
    content = (ROOT / file.path).read_bytes()
    return {
        "bom-ref": file.path,
        "type": "data" if file.path.endswith((".safetensors", ".json", ".toml")) else "file",
        "name": file.path.removeprefix("src/"),
        "copyright": file.holder,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
        "licenses": [{"license": {"id": file.license}}],
    }


def main(python: str, out: Path) -> None:
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject", ROOT / "pyproject.toml"]
    command += ["--mc-type", "library", "--output-reproducible", "--sv", "1.6", "--of", "JSON", python]
    made = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
    sbom = json.loads(made.stdout)
    # the environment has the package itself, too: it is what the SBOM is about, not a part
    sbom["components"] = [part for part in sbom["components"] if part["name"] != "taer"]
    sbom["metadata"]["component"]["components"] = [component(file) for file in bundled()]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(sbom, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    check(out.read_text())
    print(f"{out}: {len(sbom['components'])} packages, {len(bundled())} bundled files")


def check(text: str) -> None:
    """Against the schema of CycloneDX, without a network."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"not a CycloneDX document: {problem}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
