"""The cost model `paleo2017` against the reference implementation of 2017.

The figures are described in tests/reference/README.md. The part that is copied there is
always run; the whole set is run where the folder `shared` lies beside the project.
"""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from typing import Any

import pytest

import paleo
from paleo.core.operations import Pass
from paleo.core.tensor import format_shape
from paleo.costs import COST_MODELS, Target
from paleo.step.parallelism import DataParallel
from paleo.step.passes import PassTime, estimate_pass

pytestmark = pytest.mark.alike

TOLERANCE = 1e-6
COPIED = Path(__file__).parents[1] / "reference"
WHOLE = Path(__file__).parents[3] / "shared" / "reference" / "golden"
MODEL = COST_MODELS["paleo2017"]
PASSES = {
    "forward": Pass.FORWARD,
    "backward_data": Pass.INPUT_GRADIENT,
    "backward_filter": Pass.WEIGHT_GRADIENT,
}


@pytest.fixture(params=["copied", "whole"])
def folder(request: pytest.FixtureRequest) -> Path:
    if request.param == "whole" and not WHOLE.is_dir():
        pytest.skip("the whole set of reference figures is not beside the project")
    return COPIED if request.param == "copied" else WHOLE


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / name).open() as file:
        return list(csv.DictReader(file))


@functools.cache
def graph(net: str, batch: int | None = None) -> paleo.Graph:
    return paleo.build(paleo.load(net), batch)


@functools.cache
def layer_times(net: str, batch: int, device: str, ppp: float, direction: str) -> PassTime:
    target = Target(paleo.find_device(device), "fp32", ppp)
    return estimate_pass(graph(net, batch), (PASSES[direction],), target, MODEL)


def plan(row: dict[str, str]) -> paleo.Plan:
    return paleo.Plan(
        paleo.find_device(row["device"]),
        paleo.find_network(row["network"]),
        MODEL,
        use_pipeline=row.get("use_pipeline") == "1",
        ppp_comp=float(row["ppp_comp"]),
        ppp_comm=float(row["ppp_comm"]),
    )


def near(milliseconds: str) -> Any:
    return pytest.approx(float(milliseconds) / 1e3, rel=TOLERANCE, abs=0)


def test_shapes_parents_and_parameters_are_equal(folder: Path) -> None:
    layers: dict[str, set[str]] = {}
    for row in rows(folder, "summary.csv"):
        built = graph(row["net"])
        node = next(node for node in built.nodes if node.name == row["layer"])
        layers.setdefault(row["net"], set()).add(row["layer"])
        assert format_shape(node.output) == row["outputs"], row
        assert "|".join(built.nodes[p].name for p in node.parents) == row["parents"], row
        if row["type"] != "input":
            assert "|".join(map(format_shape, node.inputs)) == row["inputs"], row
        assert node.num_params == int(row["params"]), row
        assert built.element_size * node.num_params == int(row["weights_bytes"]), row
    for net, names in layers.items():
        assert {node.name for node in graph(net).nodes} == names
    assert len(layers) == 9


@pytest.mark.slow
def test_layer_times_agree(folder: Path) -> None:
    named: dict[tuple[Any, ...], set[str]] = {}
    for row in rows(folder, "layer_times.csv"):
        case = (row["net"], int(row["batch"]), row["device"], float(row["ppp_comp"]), row["pass"])
        found = {layer.node.name: layer.time for layer in layer_times(*case).layers}
        named.setdefault(case, set()).add(row["layer"])
        assert found[row["layer"]].compute == near(row["comp_ms"]), row
        assert found[row["layer"]].memory == near(row["mem_ms"]), row
    # A layer that the reference does not list in a pass takes no time in it here either.
    for case, names in named.items():
        for layer in layer_times(*case).layers:
            assert layer.node.name in names or layer.time.total == 0, (case, layer.node.name)


@pytest.mark.slow
def test_data_parallel_steps_agree(folder: Path) -> None:
    settings = ("net", "device", "network", "use_pipeline", "ppp_comp", "ppp_comm")
    known: dict[tuple[str, ...], DataParallel] = {}
    for row in rows(folder, "simulate_data_parallel.csv"):
        which = tuple(row[name] for name in settings)
        if which not in known:  # what a worker computes is worked out once
            known[which] = DataParallel(paleo.load(row["net"]), plan(row))
        step = known[which].step(int(row["batch_size"]), int(row["workers"]), row["scaling"])
        assert step.batch_size == int(row["effective_batch"])
        assert step.to_dict()["iterations"] == int(row["iterations"])
        assert step["forward"] == near(row["time_fwd_ms"]), row
        assert step["backward"] == near(row["time_bwd_ms"]), row
        assert step["update"] == near(row["time_apply_ms"]), row
        assert step.compute == near(row["time_comp_ms"]), row
        assert set(step.communication) == {key[:-3] for key in row if key[0].isupper()}
        for scheme, seconds in step.communication.items():
            assert seconds == near(row[f"{scheme}_ms"]), row


def test_model_parallel_bounds_agree(folder: Path) -> None:
    for row in rows(folder, "simulate_model_parallel.csv"):
        passes = paleo.model_parallel(paleo.load(row["net"]), plan(row), int(row["batch_size"]))
        found = passes[{"Fwd": 0, "Bwd": 1}[row["pass"]]]
        assert found.label == {"Fwd": "forward", "Bwd": "backward"}[row["pass"]]
        assert found.total() == near(row["lower_ms"]), row
        assert found.busy == near(row["upper_ms"]), row


@pytest.mark.slow
def test_hybrid_parts_agree(folder: Path) -> None:
    for row in rows(folder, "simulate_hybrid.csv"):
        parts = paleo.hybrid_parallel(
            paleo.load(row["net"]), plan(row), int(row["batch_size"]), int(row["hybrid_workers"])
        )
        found = next(part for part in parts if part.label == row["part"])
        assert found.batch_size == int(row["effective_batch"])
        assert found["forward"] == near(row["fwd_ms"]), row
        assert found["backward"] == near(row["bwd_ms"]), row
        assert found["update"] == near(row["apply_ms"]), row
        assert found["sync"] == near(row["sync_tree_ms"]), row


def test_collectives_agree(folder: Path) -> None:
    schemes = [name for name, scheme in paleo.COLLECTIVES.items() if scheme.is_of_2017]
    for row in rows(folder, "collectives.csv"):
        for scheme in schemes:
            seconds = paleo.estimate_communication(
                int(row["bytes"]),
                int(row["workers"]),
                row["network"],
                scheme=scheme,
                ppp_comm=float(row["ppp_comm"]),
                cost_model="paleo2017",
            )
            assert seconds == near(row[f"{scheme}_ms"]), row


# From the reference implementation, on a TITAN_X at its peak: (compute, memory) milliseconds
# of the forward pass, the gradient of the input and that of the weights.
SINGLE_LAYERS: dict[str, tuple[list[int], dict[str, Any], Any]] = {
    "an inner product": (
        [32, 7, 7, 512],
        {"type": "InnerProduct", "num_outputs": 4096},
        [(1.0704213333, 1.1479688080)] * 3,
    ),
    "a 1x1 window with stride 2": (
        [32, 56, 56, 64],
        {"type": "Convolution", "filter": [1, 1, 64, 128], "padding": "SAME"},
        [
            (0.0669013333, 0.1017554908),
            (0.2686506667, 0.2133963190),
            (0.0669013333, 0.1067435051),
        ],
    ),
    "a 3x3 window with stride 2": (
        [32, 56, 56, 64],
        {"type": "Convolution", "filter": [3, 3, 64, 128], "padding": "SAME"},
        [(0.602112, 0.1074690344), (2.4094933333, 0.2244606415), (0.602112, 0.1126384310)],
    ),
    "a 2x2 window with stride 2": (
        [32, 56, 56, 64],
        {"type": "Convolution", "filter": [2, 2, 64, 128], "padding": "VALID"},
        [
            (0.2676053333, 0.1070155686),
            (1.0714666667, 0.2187924435),
            (0.2676053333, 0.1070155686),
        ],
    ),
    "a deconvolution": (
        [64, 4, 4, 512],
        {
            "type": "Deconvolution",
            "filter": [5, 5, 256, 512],
            "padding": "SAME",
            "output_shape": [64, 8, 8, 256],
        },
        [
            (4.3692373333, 0.1001230498),
            (1.0922666667, 0.0602189357),
            (1.0922666667, 0.0914166976),
        ],
    ),
}


@pytest.mark.parametrize("name", SINGLE_LAYERS)
def test_single_layers_agree(name: str, one_layer: Any) -> None:
    shape, layer, expected = SINGLE_LAYERS[name]
    if layer["type"] != "InnerProduct":
        layer = {**layer, "strides": [1, 2, 2, 1]}
    # Behind a dropout, since a convolution right after the input has no input gradient.
    built = one_layer(shape, layer, before={"type": "Dropout", "dropout_keep_prob": 0.5})
    target = Target(paleo.find_device("TITAN_X"))
    for direction, (compute, memory) in zip(PASSES.values(), expected, strict=True):
        time = estimate_pass(built, (direction,), target, MODEL).layers[-1].time
        assert time.compute * 1e3 == pytest.approx(compute, rel=TOLERANCE)
        assert time.memory * 1e3 == pytest.approx(memory, rel=TOLERANCE)


def test_firecaffe_speedups_and_hours_follow() -> None:
    """Table 3 of the paper, as section 14 of the equations has it: 47 epochs of 1.2 M images."""
    case = paleo.Plan(
        paleo.find_device("K20X"),
        paleo.find_network("infiniband"),
        MODEL,
        ppp_comp=0.21,
        ppp_comm=0.56,
    )

    def seconds_an_image(workers: int, batch: int) -> float:
        step = paleo.data_parallel(paleo.load("nin"), case, batch, workers, "strong")
        return float(step.total("TreeAllReduce")) / batch

    cases = [(1, 256), (32, 256), (32, 1024), (128, 1024)]
    per_image = [seconds_an_image(*each) for each in cases]
    hours = [47 * 1.2e6 * seconds / 3600 for seconds in per_image]
    assert hours == pytest.approx([117.61, 7.59, 4.65, 2.28], abs=0.005)
    speedups = [per_image[0] / seconds for seconds in per_image[1:]]
    assert speedups == pytest.approx([15.50, 25.29, 51.68], abs=0.01)


def test_hybrid_hours_follow() -> None:
    """Table 4 of the paper: 90 epochs of 1.2 million images, 128 images a worker."""
    case = paleo.Plan(
        paleo.find_device("K20"), paleo.find_network("pcie2"), MODEL, ppp_comp=0.46, ppp_comm=0.75
    )
    hours = []
    for workers in (1, 2, 4, 8):
        parts = paleo.hybrid_parallel(paleo.load(f"alex_v2_{workers}gpu"), case, 128, workers)
        step = sum(part.total() for part in parts)
        hours.append(step * 1.2e6 * 90 / (128 * workers) / 3600)
    assert hours == pytest.approx([96.94, 49.88, 25.58, 14.45], abs=0.005)
