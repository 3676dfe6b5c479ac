"""The shape of the code: ten wings, imports that point one way, no circles, and a few bans."""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import paleo

PACKAGE = Path(paleo.__file__).parent
ROOT = PACKAGE.parent
MODULES = sorted(PACKAGE.rglob("*.py"))

#: Those that make layers or build what they do in a framework know the types of layers.
KNOW_LAYERS = ("paleo.net.layers", "paleo.net.importers", "paleo.measure.executors")
#: A module imports from its own wing and from those before it.
WINGS = ("core", "net", "cluster", "costs", "step", "studies", "measure", "views", "web", "cli")
MAY_PRINT = ("cli", "web")
MAX_LINES = 600
MAX_COMMAND_LINES = 120
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


def module_name(path: Path) -> str:
    parts = ["paleo", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path.read_text("utf-8") for path in MODULES}


def wing(module: str) -> str:
    """Return the wing of a module, "" for those at the top."""
    part = module.split(".")[1] if "." in module else ""
    return part if part in WINGS else ""


@functools.cache
def nodes(source: str) -> list[ast.AST]:
    """Return the nodes of its tree: many tests ask, of all modules."""
    return list(ast.walk(ast.parse(source)))


def imported(source: str) -> Iterator[str]:
    """Yield what is imported, also for types alone or inside of functions."""
    for node in nodes(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                yield inside if inside in SOURCES else node.module or ""


def upward_imports(module: str, source: str) -> list[str]:
    """Return what a module of a wing imports from a later one, or from the top."""
    if not wing(module):
        return []
    allowed = WINGS[: WINGS.index(wing(module)) + 1]
    return [
        name
        for name in imported(source)
        if name.split(".")[0] == "paleo" and wing(name) not in allowed
    ]


def circle(imports: Mapping[str, set[str]]) -> list[str]:
    """Return modules that import one another in a circle, [] if there are none."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def types_asked(source: str) -> list[str]:
    """Return the layer types that code asks for, where a trait of the layer would say it."""
    types = {
        alias.asname or alias.name
        for node in nodes(source)
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("paleo.net.layers.")
        for alias in node.names
    }
    asked = []
    for node in nodes(source):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            names = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
            asked += sorted(names & types)
    return asked


def forbidden_calls(source: str) -> list[str]:
    found = []
    for node in nodes(source):
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


def test_the_package_is_ten_wings() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert folders - {"nets"} == set(WINGS)  # an installed package has nets beside them
    files = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert files == {"__init__.py", "__main__.py", "py.typed"}


def test_every_folder_is_a_package() -> None:
    """One without an `__init__.py` is imported from a checkout, and left out of a wheel."""
    assert [path for path in MODULES if not path.with_name("__init__.py").exists()] == []


@pytest.mark.parametrize("name", WINGS)
def test_a_wing_says_what_it_is_for(name: str) -> None:
    said = ast.get_docstring(ast.parse((PACKAGE / name / "__init__.py").read_text("utf-8")))
    assert said is not None
    assert "In come" in said
    assert "out go" in said or "Out go" in said


def test_tests_stand_as_the_wings_do() -> None:
    folders = {
        path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")
    }
    assert {folder.parts[0] for folder in folders if folder.parts} == set(WINGS)
    for folder in folders:
        assert (PACKAGE / folder).is_dir(), folder


def test_imports_point_to_earlier_wings_only() -> None:
    upward = {name: upward_imports(name, source) for name, source in SOURCES.items()}
    assert {name: names for name, names in upward.items() if names} == {}


def test_no_imports_go_in_a_circle() -> None:
    imports = {
        name: set(imported(source)) & SOURCES.keys() - {name} for name, source in SOURCES.items()
    }
    # A package names what its modules hold, so they may not read it from there.
    assert circle(imports) == []


def test_only_the_command_line_prints_or_exits() -> None:
    calls = {name: forbidden_calls(source) for name, source in SOURCES.items()}
    assert {
        name: names
        for name, names in calls.items()
        if names and wing(name) not in MAY_PRINT and name != "paleo.__main__"
    } == {}


def test_texts_of_files_are_printed_by_what_escapes_them() -> None:
    """Help is the only other text, and the progress line moves the cursor itself."""
    prints = {"print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write"}
    calls = {
        name: [
            ast.unparse(node)
            for node in nodes(source)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in prints
        ]
        for name, source in SOURCES.items()
        if wing(name) == "cli" and name not in ("paleo.cli.printing", "paleo.cli.progress")
    }
    others = {call for found in calls.values() for call in found}
    assert others == {"click.echo(ctx.get_help(), err=True)"}


def test_no_rule_follows_from_the_type_of_a_layer() -> None:
    asked = {name: types_asked(source) for name, source in SOURCES.items()}
    assert {
        name: types for name, types in asked.items() if types and not name.startswith(KNOW_LAYERS)
    } == {}


def test_these_tests_can_fail() -> None:
    asks = "from paleo.net.layers.reshape import Input\nisinstance(layer, Input | int)"
    assert types_asked(asks) == ["Input"]
    assert upward_imports("paleo.core.units", "from paleo.net.graph import build") != []
    assert upward_imports("paleo.core.units", "import paleo.cli") != []
    assert upward_imports("paleo.step.plan", "from paleo import simulate") != []
    assert upward_imports("paleo.net.graph", "from paleo.core.units import parse") == []
    assert circle({"a": {"b"}, "b": {"a"}}) != []
    assert circle({"a": {"b"}, "b": set()}) == []
    assert forbidden_calls("print(1)") == ["print"]
    assert forbidden_calls("import os\nos.environ['A'] = 'b'") == ["os.environ"]
    assert forbidden_calls("sys.exit(1)") == ["sys.exit"]
    assert forbidden_calls("raise SystemExit(1)") == ["SystemExit"]
    assert forbidden_calls("sys.stdout.write('a')") == ["sys.stdout.write"]


def test_no_file_is_long() -> None:
    paths = [*MODULES, *(ROOT / "tests").rglob("*.py")]
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in paths}
    assert [path for path, count in lines.items() if count >= MAX_LINES] == []


@pytest.mark.parametrize("path", sorted((PACKAGE / "cli" / "commands").glob("*.py")), ids=ids)
def test_a_command_is_options_one_call_and_one_view(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= MAX_COMMAND_LINES


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


def test_public_names_fit_a_screen_and_nothing_is_imported_before_it_is_used() -> None:
    shown = "import paleo, sys; print(dir(paleo)); print([m for m in sys.modules if 'paleo.' in m])"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    names, modules = done.stdout.splitlines()
    assert modules == "[]"
    assert len(names) < 80 * 24
    assert len(dir(paleo)) <= 60
    for name in dir(paleo):
        assert f"`{name}`" in (paleo.__doc__ or ""), name


def test_type_checkers_see_the_names_that_are_found_when_they_are_used() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    seen = {
        alias.asname: node.module
        for node in imports
        for alias in node.names
        if alias.asname == alias.name
    }
    assert seen == paleo._MODULES
    assert set(dir(paleo)) | {"__version__"} == set(seen)
    for name in seen:
        assert getattr(paleo, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'simulation'"):
        paleo.simulation  # noqa: B018


#: The settings that only pricing needs, and in how many modules of the package each may be named.
PRICING = ("fuse", "use_pipeline", "conv_library", "workspace", "use_only_gemm", "ppp_comp")
MOST_MODULES = 6
#: `paleo.step.memory` and what shows its answers have a `workspace` of their own: bytes that a
#: library holds, a setting of `paleo memory` alone, which no price depends on.
OF_MEMORY = "memory"


@functools.cache
def words(source: str) -> set[str]:
    """Return what stands in code as a name, an attribute, a keyword or a text."""
    keys = ("id", "attr", "arg", "value", "name", "target")
    named = (getattr(node, key, None) for node in nodes(source) for key in keys)
    return {word for word in named if isinstance(word, str)}


def naming(name: str) -> list[str]:
    """Return the modules that name a setting, but for those of another of that name."""
    return [
        module
        for module, source in SOURCES.items()
        if name in words(source) and not (name == "workspace" and OF_MEMORY in module.split("."))
    ]


@pytest.mark.parametrize("name", PRICING)
def test_a_setting_that_only_pricing_needs_is_named_in_few_modules(name: str) -> None:
    assert "paleo.step.settings" in naming(name)
    assert len(naming(name)) <= MOST_MODULES, naming(name)


def test_importing_paleo_changes_neither_logging_nor_environment() -> None:
    code = (
        "import os, logging; before = dict(os.environ), list(logging.root.handlers)\n"
        "import paleo\n"
        "assert (dict(os.environ), list(logging.root.handlers)) == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_core_dependencies_are_three() -> None:
    allowed = {"numpy", "click", "six", "paleo"} | set(sys.stdlib_module_names)
    found = {name.split(".")[0] for source in SOURCES.values() for name in imported(source)}
    assert found <= allowed
    assert '"numpy>=1.26", "click>=8.2", "six>=1.16"' in (ROOT / "setup.py").read_text("utf-8")
