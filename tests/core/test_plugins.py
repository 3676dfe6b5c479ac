"""What other packages add by entry points, and what is said where that goes wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from plugins import EXAMPLE, ROOT, environment, install, install_example

from paleo.cluster import find_network

CROPPED = {
    "name": "cropped",
    "layers": {
        "data": {"type": "Input", "tensor": [4, 9, 7, 3]},
        "middle": {"type": "Crop", "parents": ["data"], "margin": 2},
        "scores": {"type": "InnerProduct", "parents": ["middle"], "num_outputs": 10},
    },
}
#: The tests that hold for whatever is registered.
CONTRACTS = (
    "tests/core/test_registries.py",
    "tests/core/test_properties.py",
    "tests/cluster/test_collectives.py",
    "tests/costs/test_cost_models.py",
    "tests/net/test_net_format.py",
    "tests/net/test_following.py",
    "tests/net/test_writer.py",
    "tests/net/layers/test_layer_properties.py",
    "tests/step/test_liveness.py",
    "tests/step/test_memory.py",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder in which the package of tests/plugin is installed, and a net of its type."""
    install_example(tmp_path)
    (tmp_path / "cropped.json").write_text(json.dumps(CROPPED))
    return tmp_path


def paleo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with the packages that are installed there."""
    return subprocess.run(
        [sys.executable, "-m", "paleo", *arguments],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )


def answered(folder: Path, *arguments: str) -> Any:
    """Return what a command answers as JSON."""
    done = paleo(folder, *arguments, "--format=json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_layer_type_is_read_from_a_net_file(folder: Path) -> None:
    (net,) = answered(folder, "summary", "cropped.json")["nets"]
    _, middle, scores = net["layers"]
    assert middle["output"] == [4, 9 - 2 * 2, 7 - 2 * 2, 3]
    assert scores["params"] == 5 * 3 * 3 * 10 + 10
    # Its own mistakes are said as those of Paleo's types.
    text = json.dumps(CROPPED)
    (folder / "wide.json").write_text(text.replace('"margin": 2', '"margin": 4'))
    (folder / "misspelt.json").write_text(text.replace('"Crop"', '"Corp"'))
    wide, misspelt = (
        paleo(folder, "summary", "wide.json"),
        paleo(folder, "summary", "misspelt.json"),
    )
    assert (wide.returncode, misspelt.returncode) == (1, 1)
    assert wide.stderr == (
        'paleo: wide.json: layer "middle": key "margin": a margin of 4 leaves nothing of 9x7\n'
    )
    assert "unknown layer type \"Corp\" (did you mean 'Crop'?)" in misspelt.stderr


@pytest.mark.slow
def test_a_layer_type_is_in_the_schema_and_has_a_section(folder: Path) -> None:
    schema = json.loads(paleo(folder, "nets", "--schema").stdout)
    assert schema["$defs"]["Crop"]["properties"]["margin"]["else"]["minimum"] == 1
    section = paleo(folder, "nets", "--layer=Crop").stdout
    assert section.startswith("### Crop\n\nThe middle of an image")
    assert "| `margin` | elements cut off on each side | required |\n" in section
    assert paleo(folder, "nets", "--layer=Corp").stderr.startswith(
        "paleo: unknown layer type 'Corp' (did you mean 'Crop'?)"
    )


@pytest.mark.slow
def test_a_collective_and_a_cost_model_are_chosen_by_name(folder: Path) -> None:
    arguments = ("cropped.json", "--scheme=Chain,OneToAll", "--num_workers=5", "--scaling=weak")
    (run,) = answered(folder, "simulate", *arguments, "--cost_model=bandwidth")["runs"]
    (row,) = run["rows"]
    # 2 (5 - 1) transfers of 460 parameters in 4 bytes, at 10 Gbit/s, each after a latency.
    seconds = 2 * (5 - 1) * (460 * 4 / 1.25e9 + find_network("ethernet").latency)
    assert row["communication_s"] == pytest.approx({"Chain": seconds, "OneToAll": seconds})
    # The default has Paleo's own alone, whatever is installed.
    run, *_ = answered(folder, "simulate", "cropped.json")["runs"]
    assert "Chain" not in run["rows"][0]["communication_s"]
    near = paleo(folder, "simulate", "nin", "--scheme=Chian", "--cost_model=bandwith")
    assert sorted(near.stderr.splitlines()) == [
        "paleo: unknown communication scheme 'Chian' (did you mean 'Chain'?)",
        "paleo: unknown cost model 'bandwith' (did you mean 'bandwidth'?)",
    ]


@pytest.mark.slow
def test_an_importer_reads_files_of_its_suffix(folder: Path) -> None:
    (folder / "small.dense").write_text("784 500 10\n")
    (net,) = answered(folder, "summary", "small.dense")["nets"]
    assert [layer["params"] for layer in net["layers"]] == [0, 784 * 500 + 500, 500 * 10 + 10]
    (folder / "faulty.dense").write_text("many\n")
    assert paleo(folder, "summary", "faulty.dense").stderr == (
        "paleo: faulty.dense: expected the sizes of layers, such as: 784 500 10\n"
    )


@pytest.mark.slow
def test_plugins_are_looked_up_when_they_are_needed_alone(folder: Path) -> None:
    code = dedent("""
        import sys, paleo
        from paleo.cli import cli
        cli(["simulate", "nin"], standalone_mode=False)
        assert "importlib.metadata" not in sys.modules
        assert "Chain" not in paleo.COLLECTIVES.built_in
        assert "Chain" in paleo.COLLECTIVES
        assert list(paleo.COLLECTIVES) == [*paleo.COLLECTIVES.built_in, "Chain"]
        assert "paleo_example" not in sys.modules
        assert paleo.COLLECTIVES["Chain"].transfers(3) == 4
        assert list(paleo.COLLECTIVES) == [*paleo.COLLECTIVES.built_in, "Chain"]
    """)
    subprocess.run(
        [sys.executable, "-c", code], check=True, env=environment(folder), stdout=subprocess.DEVNULL
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        (
            "import absent",
            "ModuleNotFoundError: No module named 'absent'",
        ),
        ("", "it registers nothing of this name"),
        (
            "from paleo import COLLECTIVES\nCOLLECTIVES.add('OneToAll', None)",
            "ValueError: there is a communication scheme 'OneToAll' already",
        ),
    ],
)
def test_a_broken_plugin_is_one_line_that_names_the_package(
    tmp_path: Path, module: str, why: str
) -> None:
    (tmp_path / "faulty.py").write_text(module)
    install(tmp_path, "paleo-faulty", {"paleo.collectives": {"Ring": "faulty"}}, "2.1")
    done = paleo(tmp_path, "simulate", "nin", "--scheme=Ring")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"paleo: paleo-faulty 2.1: its communication scheme 'Ring' (faulty) cannot be used: {why}\n"
    )
    # It is in nobody's way who does not use it.
    assert paleo(tmp_path, "simulate", "nin", "--scheme=OneToAll").returncode == 0


def test_an_importer_without_its_function_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text("")
    (tmp_path / "a.dense").write_text("1 1")
    install(tmp_path, "paleo-faulty", {"paleo.importers": {"dense": "faulty"}})
    assert paleo(tmp_path, "summary", "a.dense").stderr == (
        "paleo: paleo-faulty 1.0: its importer of files that end in 'dense' (faulty) cannot be "
        "used: it has no function named read\n"
    )


@pytest.mark.slow
def test_two_things_of_one_name_are_refused(folder: Path) -> None:
    install(folder, "another", {"paleo.collectives": {"Chain": "another"}})
    assert paleo(folder, "simulate", "nin", "--scheme=Chain").stderr == (
        "paleo: another 1.0 and paleo-example 1.0 both add a communication scheme 'Chain': "
        "uninstall one of them\n"
    )
    install(folder, "mine", {"paleo.cost_models": {"tiled": "mine"}})
    assert paleo(folder, "summary", "nin", "--cost_model=bandwidth", "--device=K40").stderr == (
        "paleo: mine 1.0 adds a cost model 'tiled', which Paleo has already: uninstall it, or "
        "rename what it adds\n"
    )


def contracts(folder: Path, *packages: Path) -> str:
    """Run the tests that hold for whatever is registered over Crop, Chain and bandwidth."""
    options = ["-p", "no:cacheprovider", "-k", "Crop or Chain or bandwidth or cropped"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *CONTRACTS, "--rootdir", str(folder)],
        cwd=folder,
        env=environment(*packages, folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_contracts_hold_for_plugins(folder: Path) -> None:
    assert " passed" in contracts(ROOT, folder)


@pytest.mark.slow
def test_one_file_adds_a_layer_type_a_collective_a_cost_model(tmp_path: Path) -> None:
    for name in ("paleo", "tests", "nets", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", ".gitignore"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / ".vscode", tmp_path / ".vscode")
    for name, place in (
        ("crop", "net/layers"),
        ("chain", "cluster/collectives"),
        ("bandwidth", "costs"),
    ):
        shutil.copy(EXAMPLE / "paleo_example" / f"{name}.py", tmp_path / "paleo" / place)
    assert " passed" in contracts(tmp_path, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", "import paleo; print(paleo.__file__, *paleo.LAYERS.built_in)"],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path) in done.stdout
    assert "Crop" in done.stdout
