"""Every command and every program in the documentation runs, and prints what it says."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from plugins import EXAMPLE, environment, install_example

import paleo
from paleo.cli.main import COMMANDS as COMMAND_NAMES

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.alike
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PLUGINS = ROOT / "docs" / "plugins.md"
PARALLELISM = ROOT / "docs" / "parallelism.md"
SWEEPS = ROOT / "docs" / "sweeps.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SCRIPTS = str(Path(sys.executable).parent)

Block = tuple[str, str]


def blocks(path: Path) -> list[Block]:
    return BLOCK.findall(path.read_text("utf-8"))


SHOWN = [
    (path.name, first[1].strip(), second[1])
    for path in DOCS
    for first, second in zip(blocks(path), blocks(path)[1:], strict=False)
    if first[0] == "sh" and second[0] == "text"
]
#: Commands whose output is not shown, each once, with the first page that has it.
COMMANDS = [
    (page, command)
    for command, page in {
        line: path.name
        for path in reversed(DOCS)
        for kind, text in blocks(path)
        if kind == "sh"
        for line in text.splitlines()
        if line.startswith("paleo ") and not line.startswith("paleo serve")
    }.items()
    if command not in {shown for _, shown, _ in SHOWN}
]
PROGRAMS = [(path.name, text) for path in DOCS for kind, text in blocks(path) if kind == "python"]


#: Files that commands of docs/nets.md read, each shown on the page with its name in a comment;
#: the library that reading them takes.
FILES = {"tiny.prototxt": "google.protobuf", "tiny.py": "torch"}


#: Plan files of docs/parallelism.md, each the only block of its language there.
PLANS = {"train.sh": "bash", "ds_config.json": "json", "job.toml": "toml", "recipe.yaml": "yaml"}

#: A file that a command writes, after one of these options.
WRITTEN = re.compile(r" (-o|--plot|--trace)[ =](?!-)(\S+)")

#: What a command says of the step whose trace it has written.
STEP = re.compile(r"^paleo: (?:step\.json: .* events|serving\.json: .* requests)\n", re.MULTILINE)


def output(command: str, folder: Path = ROOT) -> str:
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**environment(folder), "PATH": SCRIPTS + os.pathsep + os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, STEP.sub("", done.stderr)) == (0, "")
    return done.stdout


@pytest.fixture
def folder(page: str, command: str, tmp_path: Path) -> Path:
    """Where a command is to run: in a folder with the files of the page if it reads them."""
    if page == PLUGINS.name:
        install_example(tmp_path)
        (net,) = [text for kind, text in blocks(PLUGINS) if kind == "json"]
        (tmp_path / "cropped.json").write_text(net)
        (sizes,) = re.findall(r"`digits\.dense`: `(.*)`", PLUGINS.read_text("utf-8"))
        (tmp_path / "digits.dense").write_text(sizes)
        return tmp_path
    if command.startswith("paleo sweep"):
        (text,) = [text for kind, text in blocks(SWEEPS) if kind == "toml"]
        (tmp_path / "grid.toml").write_text(text, "utf-8")
        return tmp_path
    if plan := re.search(r"--plan=(\S+)", command):
        if PLANS[plan[1]] == "yaml":
            pytest.importorskip("yaml", reason="needs PyYAML")
        (text,) = [text for kind, text in blocks(PARALLELISM) if kind == PLANS[plan[1]]]
        (tmp_path / plan[1]).write_text(text, "utf-8")
        return tmp_path
    if re.search(r"--plot[= ][^-\s]", command):
        pytest.importorskip("matplotlib", reason="needs Matplotlib")
        return tmp_path
    for package in re.findall(r"\b(timm|torchvision):", command):
        pytest.importorskip(package, reason=f"needs {package}")
    if "tiny" not in command:
        return tmp_path if WRITTEN.search(command) else ROOT
    texts = [text for _, text in blocks(ROOT / "docs" / "nets.md")]
    for name, library in FILES.items():
        if name in command or f"python:{Path(name).stem}" in command:
            pytest.importorskip(library, reason=f"needs {library}")
        (text,) = [text for text in texts if text.startswith(f"# {name}\n")]
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_run(page: str, command: str, folder: Path) -> None:
    if "--plot" in command and "--plot -" not in command:
        pytest.importorskip("matplotlib", reason="needs matplotlib")
    printed = output(command, folder)
    match = WRITTEN.search(command)
    if match and match[1] == "-o" and match[2].endswith(".json"):
        assert paleo.summarize(folder / match[2]).num_params > 0
    elif match:
        assert (folder / match[2]).stat().st_size > 1000
    else:
        assert printed


@pytest.mark.slow
@pytest.mark.parametrize(("page", "command", "shown"), SHOWN)
def test_output_is_as_shown(page: str, command: str, shown: str, folder: Path) -> None:
    assert output(command, folder) == shown


@pytest.mark.slow
@pytest.mark.parametrize(("page", "program"), PROGRAMS)
def test_programs_run_and_print_what_their_comments_say(page: str, program: str) -> None:
    if "import plots" in program:
        pytest.importorskip("matplotlib", reason="needs Matplotlib")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    said = re.findall(r"^print\(.*\)  # (.*)$", program, re.MULTILINE)
    printed = done.stdout.splitlines()
    assert [line for line in printed if line in said] == said


EXAMPLES = [
    example
    for name in paleo.__all__
    for example in doctest.DocTestFinder(recurse=False).find(
        getattr(paleo, name), name, globs={"paleo": paleo}
    )
    if example.examples
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_of_public_functions_give_what_they_say(example: doctest.DocTest) -> None:
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=said.append)
    assert said == []


def test_the_main_functions_have_examples() -> None:
    main = {"load", "loads", "edit", "summarize", "simulate", "compare", "metrics", "footprint"}
    assert main <= {example.name for example in EXAMPLES}


def test_the_readme_counts_nets_and_hardware() -> None:
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert f"one of {len(paleo.net_names())} predefined ones" in text
    devices, networks = len(paleo.device_names()), len(paleo.network_names())
    clusters = len(paleo.cluster_names())
    assert f"{devices} GPUs, TPUs and CPUs, {networks} networks, {clusters} clusters" in text


def test_the_readme_says_the_errors_that_the_page_on_accuracy_has() -> None:
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    page = (ROOT / "docs" / "accuracy.md").read_text("utf-8")
    _, _, rows = page.partition("### The cost models side by side")
    found = re.findall(
        r"^\| ([a-z+ ]+) \| [\d,]+ \| ([\d.]+) % \| [\d.]+ % \| ([\d.]+) % ", rows, re.MULTILINE
    )
    median = {kind: (round(float(tiled)), round(float(old))) for kind, tiled, old in found}
    nets = [median[kind] for kind in median if kind.startswith("net ")]
    gemm, convolution = median["gemm"], median["convolution"]
    ends = [f"{min(each)} to {max(each)}" for each in zip(*nets, strict=True)]
    assert (
        f"off by {gemm[0]} % in the median for matrix products, {convolution[0]} % for "
        f"convolutions and {ends[0]} % for passes and steps of whole nets (against {gemm[1]}, "
        f"{convolution[1]} and {ends[1]} % by `paleo2017`)"
    ) in text


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 250
    assert len(re.findall(r"^!\[", text, re.MULTILINE)) == 2


def test_there_is_something_to_run() -> None:
    assert len(COMMANDS) >= 10
    assert len(SHOWN) >= 2
    assert len(PROGRAMS) >= 3


def test_the_page_on_plugins_shows_the_package_as_it_is() -> None:
    page = PLUGINS.read_text("utf-8")
    files = [EXAMPLE / "pyproject.toml", *(EXAMPLE / "paleo_example").glob("[!_]*.py")]
    for path in files:
        assert f"\n{path.read_text('utf-8')}```" in page, path.name


def test_the_hardware_files_of_the_page_work(tmp_path: Path) -> None:
    texts = [text for kind, text in blocks(ROOT / "docs" / "hardware.md") if kind == "toml"]
    for name, text in zip(("mygpu", "mynet"), texts, strict=True):
        (tmp_path / f"{name}.toml").write_text(text)
    result = paleo.simulate("nin", device=tmp_path / "mygpu.toml", network=tmp_path / "mynet.toml")
    assert (result.runs[0].device, result.runs[0].network) == ("mygpu", "mynet")


def test_the_cluster_file_of_the_page_works(tmp_path: Path) -> None:
    (text,) = [text for kind, text in blocks(ROOT / "docs" / "clusters.md") if kind == "toml"]
    (tmp_path / "boxes.toml").write_text(text)
    cluster = paleo.find_cluster(tmp_path / "boxes.toml")
    assert (cluster.name, cluster.size, cluster.tiers[1].links) == ("boxes", 8, 2)


def test_links_between_pages_lead_somewhere() -> None:
    for path in [*DOCS, ROOT / "nets" / "README.md"]:
        text = path.read_text("utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
            file, _, anchor = target.partition("#")
            page = path.parent / file if file else path
            assert page.exists(), f"{path.name}: {target}"
            if anchor:
                heads = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
                slugs = [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads]
                assert anchor in slugs, f"{path.name}: {target}"


@pytest.mark.slow
def test_help_fits_a_terminal_of_80_columns() -> None:
    for command in ("", *COMMAND_NAMES, "generate squeezenet"):
        lines = output(f"{sys.executable} -m paleo {command} --help").splitlines()
        assert [line for line in lines if len(line) > 80] == []
