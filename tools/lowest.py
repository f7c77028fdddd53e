"""Print the lowest versions that pyproject.toml allows for the core and its tests, as pip constraints."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
for line in [*project["dependencies"], *project["optional-dependencies"]["test"]]:
    requirement = Requirement(line)
    (bound,) = (spec.version for spec in requirement.specifier if spec.operator == ">=")
    print(f"{requirement.name}=={bound}")
