"""The shape of the code: imports point down, nothing prints, files are short, start is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import paleo

PACKAGE = Path(paleo.__file__).parent
ROOT = PACKAGE.parent
MODULES = sorted(PACKAGE.rglob("*.py"))

#: From the ground up. A module may import those of its own level and below.
LEVELS = (
    ("errors", "quantity", "values", "version"),
    ("registry", "units", "tensor", "window", "extras"),
    ("work",),
    ("hardware",),
    ("layers", "collectives"),
    ("costs",),
    ("netspec",),
    ("graph", "netwriter"),
    ("fusion",),
    ("importers",),
    ("load", "schema", "estimate"),
    ("explain",),
    ("generators",),
    ("edit", "memory", "datasets", "parallelism", "rows", "software", "summary", "training"),
    ("executors",),
    ("scaling",),
    ("simulate",),
    ("metrics", "compare", "validate"),
    ("profile", "calibrate", "overview"),
    ("charts", "timeline"),
    ("report", "trace"),
    ("tables", "plots", "textchart"),
    ("__init__",),
    ("web",),
    ("cli",),
    ("__main__",),
)
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
MAY_PRINT = ("cli", "__main__", "web")
MAX_LINES = 600
FORBIDDEN_CALLS = {
    "print",
    "exit",
    "quit",
    "sys.exit",
    "logging.basicConfig",
    "os.putenv",
    "os.environ.update",
    "os.environ.setdefault",
    "sys.stdout.write",
    "sys.stderr.write",
    "SystemExit",
}


def unit(path: Path) -> str:
    """Return the part of the package that a module belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def upward_imports(path: Path, source: str) -> list[str]:
    own = LEVEL[unit(path)]
    found = []
    for name in imported(ast.parse(source)):
        parts = name.split(".")
        if parts[0] != "paleo":
            continue
        target = parts[1] if len(parts) > 1 else "__init__"
        if target in LEVEL and LEVEL[target] > own:
            found.append(name)
    return found


def forbidden_calls(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in FORBIDDEN_CALLS:
            found.append(ast.unparse(node.func))
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
            targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
            found += [
                "os.environ" for target in targets if ast.unparse(target).startswith("os.environ")
            ]
    return found


def ids(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", MODULES, ids=ids)
def test_imports_point_down_only(path: Path) -> None:
    assert upward_imports(path, path.read_text("utf-8")) == []


@pytest.mark.parametrize("path", MODULES, ids=ids)
def test_only_the_command_line_prints_or_exits(path: Path) -> None:
    if unit(path) not in MAY_PRINT:
        assert forbidden_calls(path.read_text("utf-8")) == []


def test_these_tests_can_fail() -> None:
    assert upward_imports(PACKAGE / "units.py", "from paleo.graph import build") != []
    assert upward_imports(PACKAGE / "units.py", "import paleo.cli") != []
    assert upward_imports(PACKAGE / "graph.py", "from paleo.units import parse") == []
    assert forbidden_calls("print(1)") == ["print"]
    assert forbidden_calls("import os\nos.environ['A'] = 'b'") == ["os.environ"]
    assert forbidden_calls("sys.exit(1)") == ["sys.exit"]
    assert forbidden_calls("raise SystemExit(1)") == ["SystemExit"]
    assert forbidden_calls("sys.stdout.write('a')") == ["sys.stdout.write"]


@pytest.mark.parametrize(
    "path", sorted([*MODULES, *(ROOT / "tests").glob("*.py")]), ids=lambda path: path.name
)
def test_no_file_is_long(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) < MAX_LINES


def loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_paleo_is_light() -> None:
    heavy = {"click", "numpy", "matplotlib", "torch", "tensorflow", "onnx", "logging", "tests"}
    assert heavy & loaded_by("import paleo") == set()
    # This test can fail.
    assert heavy & loaded_by("import paleo.cli") == {"click"}
    assert "numpy" in loaded_by("import paleo, numpy")


def test_a_small_simulation_needs_no_numpy() -> None:
    assert "numpy" not in loaded_by("import paleo; paleo.simulate('alex_v2')")


def test_importing_paleo_changes_neither_logging_nor_environment() -> None:
    code = (
        "import os, logging; before = dict(os.environ), list(logging.root.handlers)\n"
        "import paleo\n"
        "assert (dict(os.environ), list(logging.root.handlers)) == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_core_dependencies_are_three() -> None:
    allowed = {"numpy", "click", "six", "paleo"} | set(sys.stdlib_module_names)
    found = {
        name.split(".")[0]
        for path in MODULES
        for name in imported(ast.parse(path.read_text("utf-8")))
    }
    assert found <= allowed
    assert '"numpy>=1.26", "click>=8.2", "six>=1.16"' in (ROOT / "setup.py").read_text("utf-8")
