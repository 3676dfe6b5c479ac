"""The scripts reproduce what was published, and docs/reproduction.md is what they make."""

from __future__ import annotations

import csv
import importlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paleo.core.errors import PaleoError

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.alike, pytest.mark.slow]
SCRIPTS = ROOT / "scripts"
#: How far each page says that it is from the demo, at most.
DEMO = {"inception": 0.003, "mxnet": 0.004, "alexnet_scalability": 0.007}
EXPERIMENTS = sorted(path.stem for path in (SCRIPTS / "published").glob("*.csv"))

sys.path.insert(0, str(SCRIPTS))
formulas: Any = importlib.import_module("formulas")
beside: Any = importlib.import_module("beside")
sys.path.remove(str(SCRIPTS))

Figures = dict[tuple[str, str], dict[str, str]]


def run(script: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(script)],
        cwd=folder,  # not the repository: scripts work from any folder
        env={**os.environ, "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run all scripts; return the folder with their results, and the page as page.md."""
    folder = tmp_path_factory.mktemp("reproduced")
    done = run(SCRIPTS / "all.sh", folder, RESULTS=str(folder), PAGE=str(folder / "page.md"))
    assert done.returncode == 0, done.stderr
    (folder / "printed.txt").write_text(done.stdout, "utf-8")
    return folder


def rows(reproduced: Path, experiment: str) -> list[dict[str, str]]:
    with (reproduced / f"{experiment}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def column(reproduced: Path, experiment: str, table: str, quantity: str) -> dict[str, float]:
    """Return Paleo's figure of each configuration."""
    return {
        row["configuration"]: float(row["paleo"])
        for row in rows(reproduced, experiment)
        if row["table"].startswith(table) and row["quantity"] == quantity and row["paleo"]
    }


def near(*values: float) -> list[Any]:
    """Values of as many digits as figures of this page have."""
    return [pytest.approx(value, rel=4e-4) for value in values]


def test_the_page_is_what_the_scripts_make(reproduced: Path) -> None:
    made = (reproduced / "page.md").read_text("utf-8")
    shown = (ROOT / "docs" / "reproduction.md").read_text("utf-8")
    assert made == shown, "docs/reproduction.md is stale: run scripts/all.sh"


def test_scripts_print_their_tables_and_keep_every_answer(reproduced: Path) -> None:
    printed = (reproduced / "printed.txt").read_text("utf-8")
    for experiment in EXPERIMENTS:
        assert all(row["table"] in printed for row in rows(reproduced, experiment))
        assert list((reproduced / experiment).glob("*.json"))
        assert not list((reproduced / experiment).glob("*.part"))


def test_every_experiment_has_a_script_figures_prose_and_a_place_in_all() -> None:
    scripts = {path.stem for path in SCRIPTS.glob("*.sh")} - {"common", "all"}
    prose = {path.stem for path in (SCRIPTS / "published").glob("*.md")} - {"header"}
    listed = re.search(r'^experiments="([^"]*)"', (SCRIPTS / "all.sh").read_text(), re.MULTILINE)
    assert listed
    assert set(EXPERIMENTS) == scripts == prose == set(listed[1].split())


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_figure_of_others_has_its_standing_and_source(experiment: str) -> None:
    with (SCRIPTS / "published" / f"{experiment}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            standings = ("printed", "recollected", "computed", "equation")
            assert (row["standing"] in standings) == bool(row["published"]), row
            assert bool(row["source"]) == bool(row["published"]), row
            assert bool(row["measured_source"]) == bool(row["measured"]), row


def test_recollected_figures_are_marked(reproduced: Path) -> None:
    page = (reproduced / "page.md").read_text("utf-8")
    read = {
        row["published"].removesuffix(".0")
        for experiment in EXPERIMENTS
        for row in rows(reproduced, experiment)
        if row["standing"] == "recollected" and row["agrees"] != ""
    }
    assert {"117.6", "15.5", "96.31", "14.37"} <= read
    assert all(f"| {figure} (r) |" in page for figure in read)


# What was published, as numbers.


def test_table_3_firecaffe(reproduced: Path) -> None:
    speedups = column(reproduced, "firecaffe", "Table 3", "Speedup over one GPU")
    assert [*speedups.values()] == near(15.50, 25.29, 51.68)
    hours = column(reproduced, "firecaffe", "Table 3", "Training time")
    assert [*hours.values()] == near(117.61, 7.586, 4.650, 2.276)


def test_table_4_hybrid_parallelism(reproduced: Path) -> None:
    hours = column(reproduced, "hybrid", "Table 4", "Training time")
    assert [*hours.values()] == near(96.94, 49.88, 25.58, 14.45)
    without_update = column(reproduced, "hybrid", "Table 4", "Training time, update left out")
    assert [*without_update.values()] == near(96.31, 49.57, 25.42, 14.37)


def test_figures_of_the_reference_implementation_and_the_demo(reproduced: Path) -> None:
    found = {"reference": 0, "demo": 0}
    for experiment in EXPERIMENTS:
        for row in rows(reproduced, experiment):
            if row["standing"] == "computed":
                kind = row["source"].split()[0]
                found[kind] += 1
                # Printed with four digits where the source is no file of figures.
                exact = len(row["published"]) > 6
                limit = DEMO[experiment] if kind == "demo" else 1e-6 if exact else 5e-4
                assert abs(float(row["against_published"])) <= limit, row
    # Steps, curves and layers; 6 curves of 7 worker counts under 3 schemes.
    assert found["reference"] > 100
    assert found["demo"] == 6 * 7 * 3


@pytest.mark.parametrize(
    ("experiment", "table"),
    [
        ("inception", "Figure 5"),
        ("inception", "Speedup on K20"),
        ("mxnet", "AlexNet, batch 512"),
        ("mxnet", "Inception v3, batch 32"),
        ("alexnet_scalability", "Batch 2048, weak"),
        ("alexnet_scalability", "Batch 256, weak"),
    ],
)
def test_curves_of_weak_scaling_grow(reproduced: Path, experiment: str, table: str) -> None:
    curves = [
        [*column(reproduced, experiment, table, scheme).values()]
        for scheme in ("OneToAll", "tree", "butterfly")
    ]
    for slower, faster in itertools.pairwise(curves):
        assert all(a <= b for a, b in zip(slower, faster, strict=True))
    for curve in curves:
        assert curve[0] == 1
        assert curve == sorted(curve)


def test_the_measured_speedup_of_inception_lies_between_the_schemes(reproduced: Path) -> None:
    one_to_all, tree = (
        column(reproduced, "inception", "Figure 5", scheme)["100 GPUs"]
        for scheme in ("OneToAll", "tree")
    )
    assert one_to_all < 56 < tree


@pytest.mark.parametrize(
    ("table", "peaks"),
    [("Batch 2048, strong", (4, 16, 32)), ("Batch 256, strong", (2, 2, 4))],
)
def test_curves_of_strong_scaling_have_a_peak(
    reproduced: Path, table: str, peaks: tuple[int, ...]
) -> None:
    for scheme, peak in zip(("OneToAll", "tree", "butterfly"), peaks, strict=True):
        curve = column(reproduced, "alexnet_scalability", table, scheme)
        assert max(curve, key=curve.__getitem__) == f"{peak} GPUs"


def test_dissertation_table_3_1(reproduced: Path) -> None:
    compared = [
        row
        for row in rows(reproduced, "thesis_chapter3")
        if row["table"].startswith("Table 3.1") and row["quantity"] != "Data, all layers"
    ]
    far = {
        (row["quantity"], row["configuration"])
        for row in compared
        if abs(float(row["against_published"])) > 0.1
    }
    assert len(compared) == 6 + 7 + 7 + 6
    assert far == {
        # The printed ratio is not that of the printed data and weights.
        ("Data to weights", "AlexNet"),
        ("Data to weights", "AlexNet without groups"),
        # The printed weights are with the auxiliary classifiers.
        ("Weights", "GoogLeNet"),
        ("Data to weights", "GoogLeNet"),
        # The printed computation is without groups.
        ("Forward and backward pass", "AlexNet"),
    }
    # A classifier: a 1x1 convolution to 128 channels of 4x4, then 2048 to 1024 to 1000.
    heads = [(channels + 1) * 128 + 2049 * 1024 + 1025 * 1000 for channels in (512, 528)]
    assert sum(heads) == 6_379_728


def test_dissertation_equations_3_3_and_3_4(reproduced: Path) -> None:
    table = "Equations 3.3 and 3.4"
    server = [*column(reproduced, "thesis_chapter3", table, "OneToAll").values()]
    tree = [*column(reproduced, "thesis_chapter3", table, "tree").values()]
    transfer = 7_595_176 * 4 / (70e9 / 8 * 0.56) * 1e3  # NiN's weights once, in ms
    workers = [2, 4, 8, 16, 32, 64, 128]
    assert server == near(*(2 * (p - 1) * transfer for p in workers))
    assert tree == near(*(2 * step * transfer for step in range(1, 8)))


def test_dissertation_tables_3_2_and_3_3_take_one_share_of_peak_a_framework(
    reproduced: Path,
) -> None:
    commands = (reproduced / "thesis_chapter3" / "commands").read_text("utf-8")
    shares = re.findall(r"--ppp_comp=(\S+) --ppp_comm=(\S+)", commands)
    assert {*shares} == {("0.21", "0.56"), ("0.46", "0.75")}
    table = [
        row
        for row in rows(reproduced, "thesis_chapter3")
        if row["table"].startswith("Tables 3.2 and 3.3")
    ]
    assert len(table) == 9 + 6
    assert all(row["paleo"] and row["measured"] for row in table)
    one_node = column(reproduced, "thesis_chapter3", "Tables 3.2", "Training time")
    assert one_node["NiN, Caffe, 1 GPU"] == pytest.approx(5.8 * 24, rel=0.09)
    assert one_node["AlexNet, cuda-convnet2, 8 GPUs"] == pytest.approx(16, rel=0.09)


def test_dissertation_chapter_4_but_for_its_slips(reproduced: Path) -> None:
    differ = {
        (row["table"].partition(":")[0], row["configuration"].partition(":")[0], row["quantity"])
        for row in rows(reproduced, "thesis_chapter4")
        if row["agrees"] == "false" and row["quantity"] != "Output of all layers"
    }
    totals, output = "Tables 4.2 to 4.8", "Output, but for convolutions before a pooling"
    assert {each for each in differ if each[0] != "Single figures"} == {
        ("Table 4.2", "conv12", "Output"),
        ("Table 4.2", "pool3", "Computation"),
        ("Table 4.2", "pool12", "Output"),
        ("Table 4.2", "pool12", "Computation"),
        (totals, "4.3", output),
        (totals, "4.3", "Parameters"),
        (totals, "4.3", "Computation"),
        (totals, "4.4", output),
        (totals, "4.6", output),
        (totals, "4.6", "Parameters"),
    }
    table = [row for row in rows(reproduced, "thesis_chapter4") if row["agrees"] != ""]
    assert len([row for row in table if row["table"].startswith("Table 4.2")]) == 3 * 18
    assert len([row for row in table if row["table"].startswith("Table 4.1")]) == 4 * 6


def test_slips_of_chapter_4_are_shown_and_not_forced(reproduced: Path) -> None:
    totals = "Tables 4.2 to 4.8"
    output = column(
        reproduced, "thesis_chapter4", totals, "Output, but for convolutions before a pooling"
    )
    assert [*output.values()] == near(5.899, 7.799, 6.697, 5.821, 5.911, 15.29, 24.50)
    every = column(reproduced, "thesis_chapter4", totals, "Output of all layers")
    assert every["4.2: as it is"] == near(8.266)[0]
    parameters = column(reproduced, "thesis_chapter4", totals, "Parameters")
    # conv1 has 11 x 11 x 12 x 96 weights in the place of 11 x 11 x 3 x 96.
    assert parameters["4.3: 12 input channels"] == near(30.38 + 121 * 9 * 96 * 4 / 1e6)[0]
    flops = column(reproduced, "thesis_chapter4", totals, "Computation")
    assert [*flops.values()] == near(2.266, 2.914, 2.573, 2.989, 2.493, 8.654, 9.671)


def test_single_figures_of_the_dissertation(reproduced: Path) -> None:
    lenet = column(reproduced, "thesis_chapter4", "Single figures", "Computation of inference")
    assert lenet["LeNet, 28x28 image, layers of equation 4.3"] == pytest.approx(5.74, abs=0.005)
    assert lenet["LeNet, 224x224 image"] == pytest.approx(2700, rel=0.005)
    vgg = column(reproduced, "thesis_chapter4", "Single figures", "Computation of VGG-19")
    assert [*vgg.values()] == [pytest.approx(117 / 3, rel=0.01), pytest.approx(117, rel=0.01)]
    quantity = "Images at 10.6 TFLOP/s, the peak of a P100"
    rates = column(reproduced, "thesis_chapter4", "Single figures", quantity)
    assert rates["VGG-19, training (3 x inference)"] == pytest.approx(91, rel=0.02)
    assert rates["LeNet, 224x224 image"] == pytest.approx(3900, rel=0.005)
    quantity = "Nets of the design space of section 4.7"
    nets = column(reproduced, "thesis_chapter4", "Single figures", quantity)
    assert nets == {"5^16": 152.587890625}


def test_dissertation_table_5_1(reproduced: Path) -> None:
    parameters = column(reproduced, "thesis_chapter5", "Table 5.1", "Parameters")
    assert parameters == {
        "conv1": 14_208,
        "fire2": 11_920,
        "fire3": 12_432,
        "fire4": 45_344,
        "fire5": 49_440,
        "fire6": 104_880,
        "fire7": 111_024,
        "fire8": 188_992,
        "fire9": 197_184,
        "conv10": 513_000,
        "total": 1_248_424,
    }


def test_model_sizes_of_chapter_5(reproduced: Path) -> None:
    sizes = column(reproduced, "thesis_chapter5", "Tables 5.2 and 5.3", "Model size")
    # 62,378,344 parameters without groups, 60,965,224 with.
    assert sizes == {
        "AlexNet": near(60_965_224 * 4 / 2**20)[0],
        "AlexNet without groups": near(62_378_344 * 4 / 2**20)[0],
        "SqueezeNet": near(4.762)[0],
        "SqueezeNet + simple bypass": near(4.762)[0],
        "SqueezeNet + complex bypass": near(6.064)[0],
    }
    ratio = column(reproduced, "thesis_chapter5", "Figure 5.3", "Model size")
    assert (ratio["SR 0.125"], ratio["SR 0.5"], ratio["SR 0.75"]) == (*near(4.762, 12.99, 18.47),)
    share = column(reproduced, "thesis_chapter5", "Figure 5.4", "Model size")
    assert share["50 % 3x3"] == ratio["SR 0.5"]
    for curve in (ratio, share):
        assert [*curve.values()] == sorted(curve.values())


# The scripts' own parts.


def test_a_path_selects_and_adds_up() -> None:
    answer = {"rows": [{"n": "a", "x": 1}, {"n": "b", "x": 2}, {"n": "c", "x": 4}], "kind": "local"}
    for path, value in {
        "rows[1].x": 2,
        "rows[-1].x": 4,
        "rows[n=b].x": 2,
        "rows[n=a,c].x": 5,
        "rows[n!=a].x": 6,
        "rows[n!=a][n!=b].x": 4,
        "rows[*].x": 7,
        "kind": "local",
    }.items():
        assert formulas.select(answer, path) == value, path


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("rows[3].x", "nothing, or not all, is at [3]"),
        ("rows[n=a,z].x", "nothing, or not all, is at [n=a,z]"),
        ("rows[n!=z].x", "nothing, or not all, is at [n!=z]"),
        ("rows[what].x", "nothing, or not all, is at [what]"),
        ("rows[0].y", "nothing, or not all, is at .y"),
        ("rows[0]", "selects what is no number"),
        ("empty[*].x", "selects nothing"),
        ("rows]", "not a path from ']' on"),
    ],
)
def test_a_path_that_selects_nothing_says_where(path: str, said: str) -> None:
    with pytest.raises(PaleoError, match=re.escape(said)):
        formulas.select({"rows": [{"n": "a", "x": 1}], "empty": []}, path)


def test_a_formula_is_a_sum_of_products(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"x": 3, "y": 5, "kind": "local"}))
    answers = formulas.Answers(tmp_path)
    for formula, value in {
        "a:x": 3,
        "5^16": 152_587_890_625,
        "1.2e6 * a:x / 4": 900_000,
        "a:x * 2 + a:y / 2 - 1": 7.5,
    }.items():
        assert answers.evaluate(formula) == value
    for formula, said in {
        "b:x": "was a command left out?",
        "a:x * what": "what: neither a number nor NAME:PATH",
        "2 * a:kind": "a:kind: expected a number, got 'local'",
    }.items():
        with pytest.raises(PaleoError, match=re.escape(said)):
            answers.evaluate(formula)


@pytest.mark.parametrize(
    ("value", "printed", "rounds"),
    [
        (0.03725, "0.0372", True),
        (0.6450, "0.644", False),
        (1189.5, "1190", True),
        (1184.0, "1190", False),
        (2709.8, "2700", False),
        (30.38, "30", True),
        (30.6, "30", False),
        (0.0, "0", True),
    ],
)
def test_printed_digits_are_met_or_not(value: float, printed: str, rounds: bool) -> None:
    assert beside.rounds_to(value, printed) is rounds


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the scripts and the package, as in a clone in which nothing is installed."""
    shutil.copytree(SCRIPTS, tmp_path / "scripts")
    (tmp_path / "paleo").symlink_to(ROOT / "paleo")
    (tmp_path / "nets").symlink_to(ROOT / "nets")
    return tmp_path


def test_missing_requirements_are_one_clear_line(checkout: Path) -> None:
    bare = checkout / "bin"
    bare.mkdir()
    for name in ("python3", "paleo"):
        (bare / name).write_text("#!/bin/sh\nexit 1\n")
        (bare / name).chmod(0o755)
    path = f"{bare}{os.pathsep}/usr/bin{os.pathsep}/bin"
    done = run(checkout / "scripts" / "firecaffe.sh", checkout, PYTHON="", PATH=path)
    assert done.returncode == 1
    assert done.stderr == (
        "firecaffe.sh: no Python 3.11 with Paleo's requirements found; see Start in README.md\n"
    )
    assert not (checkout / "results").exists()


def test_a_command_that_fails_stops_the_script_and_leaves_nothing(checkout: Path) -> None:
    script = checkout / "scripts" / "firecaffe.sh"
    script.write_text(script.read_text().replace("simulate nin ", "simulate nine "))
    done = run(script, checkout)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("paleo: unknown net 'nine'")
    assert done.stdout == ""
    assert not [path for path in (checkout / "results").rglob("*") if path.is_file()]


def test_headings_without_figures_are_refused(reproduced: Path, checkout: Path) -> None:
    prose = checkout / "scripts" / "published" / "layers.md"
    prose.write_text(prose.read_text() + "\n### Another\n\nNothing.\n")
    shutil.copytree(reproduced / "layers", checkout / "results" / "layers")
    done = subprocess.run(
        [sys.executable, "scripts/beside.py", "layers", "results"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("beside.py: layers: headings [")
    assert not (checkout / "results" / "layers.md").exists()


@pytest.mark.parametrize("formula", ["", "2 +", "- 5", "* 4", "2 * / 3", "6 / 2 3", "2 + + 3"])
def test_malformed_formulas_are_refused(formula: str, tmp_path: Path) -> None:
    with pytest.raises(PaleoError, match="expected factors, with a sign between any two"):
        formulas.Answers(tmp_path).evaluate(formula)


@pytest.mark.parametrize(
    ("formula", "value"), [("7", 7), ("2 * 3 - 8 / 4", 4), ("5^2", 25), ("1.5 + 1.5 * 2", 4.5)]
)
def test_formulas_are_sums_of_products(formula: str, value: float, tmp_path: Path) -> None:
    assert formulas.Answers(tmp_path).evaluate(formula) == value
