"""Render the recipe with the names that conda-forge gives to compilers, and compare it with the package."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from rattler_build import Stage0Recipe, VariantConfig

HERE = Path(__file__).parent
VARIANTS = {
    "python": ["3.11.* *_cpython"],
    "c_compiler": ["gcc"],
    "rust_compiler": ["rust"],
    "c_stdlib": ["sysroot"],
    "c_stdlib_version": ["2.17"],
}


def names(requirements: list[str]) -> set[str]:
    """Return requirements as conda and pip both write them, but for case and blanks."""
    return {one.lower().replace(" ", "") for one in requirements}


def for_python(requirements: list[str], version: str) -> list[str]:
    """Return the requirements of a version of Python, without the markers that say so."""
    found = map(Requirement, requirements)
    return [
        f"{one.name}{one.specifier}"
        for one in found
        if one.marker is None or one.marker.evaluate({"python_version": version})
    ]


(rendered,) = Stage0Recipe.from_file(HERE / "recipe.yaml").render(VariantConfig(VARIANTS))
recipe = rendered.recipe.to_dict()
project = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text())["project"]
version = tomllib.loads((HERE.parents[1] / "Cargo.toml").read_text())["workspace"]["package"]["version"]
if names(recipe["requirements"]["run"]) != names([*for_python(project["dependencies"], "3.11"), "python"]):
    raise SystemExit("recipe.yaml and pyproject.toml name other dependencies")
if recipe["package"] != {"name": "rankplan", "version": version}:
    raise SystemExit("recipe.yaml and Cargo.toml state other versions")
print(f"rankplan {version}: rendered")
