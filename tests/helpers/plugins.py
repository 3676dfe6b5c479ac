"""Installs packages into folders, as pip does, without pip: files and their metadata."""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: A package with a layer type, a collective, a cost model and an importer.
EXAMPLE = ROOT / "tests" / "plugin"


def install(
    folder: Path, name: str, groups: Mapping[str, Mapping[str, str]], version: str = "1.0"
) -> None:
    """Write the metadata of a distribution whose modules are in a folder."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def install_example(folder: Path) -> None:
    """Install the package of tests/plugin into a folder."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]
    shutil.copytree(EXAMPLE / "paleo_example", folder / "paleo_example")
    install(folder, project["name"], project["entry-points"], project["version"])


def environment(*folders: Path) -> dict[str, str]:
    """Return an environment in which Python finds what is installed in folders."""
    path = [*map(str, folders), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
