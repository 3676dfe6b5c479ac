"""The quickest algorithm for a convolution: of a library, within a limit of workspace."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import click.testing
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiled_ways import ways

import paleo
from paleo.cli import cli
from paleo.core.operations import LAYER_PASSES, Convolution, Fused, Kind, Pass, Stream
from paleo.core.window import Axis
from paleo.costs import COST_MODELS, ConvolutionChoice, Target, Time, convolution_choice
from paleo.costs import convolutions as algorithms
from paleo.costs.convolutions import ALGORITHMS, LIBRARIES
from paleo.costs.counts2017 import counts_of
from paleo.costs.tiled import convolution, onednn
from paleo.costs.tiled.machine import machine_for

GEMM = "implicit_gemm"
TITAN = paleo.find_device("TITAN_X")
#: 4 TFLOP/s and 100 GB/s.
ROUND = paleo.Device.from_rates("round", clock=1e9, peak=4e12, memory_bandwidth=1e11)


def conv(
    direction: Pass = Pass.FORWARD,
    n: Any = 16,
    c: int = 64,
    k: int = 64,
    size: int = 28,
    window: int = 3,
    stride: int = 1,
    pad: int | None = None,
    groups: int = 1,
    element_size: int = 4,
    rank: int = 2,
    transposed: bool = False,
) -> Convolution:
    padding = (window // 2,) * 2 if pad is None else (pad, pad)
    axes = (Axis(size, window, stride, padding),) * rank
    return Convolution(direction, n, axes, c, k, element_size, transposed, groups)


SHAPES = st.fixed_dictionaries(
    {
        "direction": st.sampled_from(LAYER_PASSES),
        "c": st.sampled_from([4, 64, 256]),
        "k": st.sampled_from([4, 96, 512]),
        "size": st.sampled_from([7, 13, 33]),
        "window": st.sampled_from([1, 2, 3, 5, 7]),
        "stride": st.sampled_from([1, 2]),
        "groups": st.sampled_from([1, 1, 4]),
        "rank": st.sampled_from([1, 2, 2, 2, 3]),
        "transposed": st.booleans(),
    }
)
#: A cost model, a device, an element type, and the libraries that run there.
GPU = (None, "cudnn2", "cudnn4", "cudnn5", "cudnn7", "cudnn9", "any")
CASES = st.sampled_from(
    [
        ("paleo2017", "TITAN_X", "fp32", GPU),
        ("paleo2017", "CPU_I7", "fp32", (None, "onednn", "any")),
        ("roofline", "K40", "fp32", GPU),
        ("roofline", "V100_SXM2_16GB", "fp16", GPU),
        ("roofline", "CPU_I7", "fp32", (None, "onednn", "any")),
        ("tiled", "TITAN_X", "fp32", GPU),
        ("tiled", "P100_SXM2", "fp32", GPU),
        ("tiled", "V100_SXM2_16GB", "fp16", GPU),
        ("tiled", "H100_SXM", "bf16", GPU),
        ("tiled", "CPU_I7", "fp32", (None, "onednn", "any")),
    ]
)
LIMITS = st.sampled_from([0, 1 << 12, 1 << 20, 1 << 24, 1 << 28, None])
BATCHES = [1, 2, 7, 16, 100, 640]


def parts(time: Time, count: int = 1) -> list[list[float]]:
    """Return the parts of `count` times, each a list of its own."""
    found = (time.compute, time.memory, time.overhead, time.total)
    return np.array([np.broadcast_to(part, count) for part in found]).T.tolist()


def target(case: tuple[Any, ...], **choice: Any) -> Target:
    _, device, dtype, _ = case
    return Target(paleo.find_device(device), dtype, convolutions=ConvolutionChoice(**choice))


# What holds for all


@pytest.mark.slow
@given(SHAPES, CASES, LIMITS, st.data())
@settings(max_examples=150, deadline=None)
def test_what_is_chosen_is_never_priced_above_a_product(
    shape: dict[str, Any], case: tuple[Any, ...], limit: int | None, data: st.DataObject
) -> None:
    model = COST_MODELS[case[0]]
    library = data.draw(st.sampled_from(case[3]))
    operation = conv(**shape, element_size=2 if "16" in case[2] else 4)
    gemm = model.price_by(GEMM, operation, target(case, library=library))
    if gemm is None:  # on a CPU a filter of one element has a kernel of its own
        gemm = model.price_by("gemm_1x1", operation, target(case, library=library))
    assert gemm
    for only_gemm in (False, True):
        choice = {"library": library, "workspace": limit, "only_gemm": only_gemm}
        assert model.price(operation, target(case, **choice)).total <= gemm.total


@pytest.mark.slow
@given(SHAPES, CASES, st.booleans(), st.data())
@settings(max_examples=100, deadline=None)
def test_more_workspace_never_makes_it_slower(
    shape: dict[str, Any], case: tuple[Any, ...], only_gemm: bool, data: st.DataObject
) -> None:
    model = COST_MODELS[case[0]]
    library = data.draw(st.sampled_from(case[3]))
    operation = conv(**shape, element_size=2 if "16" in case[2] else 4)
    seconds = [
        model.price(
            operation, target(case, library=library, workspace=limit, only_gemm=only_gemm)
        ).total
        for limit in (0, 1 << 14, 1 << 20, 1 << 26, 1 << 40, None)
    ]
    assert seconds == sorted(seconds, reverse=True)


@pytest.mark.slow
@given(SHAPES, CASES, LIMITS, st.booleans(), st.data())
@settings(max_examples=100, deadline=None)
def test_batches_are_chosen_for_one_by_one(
    shape: dict[str, Any],
    case: tuple[Any, ...],
    limit: int | None,
    only_gemm: bool,
    data: st.DataObject,
) -> None:
    model = COST_MODELS[case[0]]
    library = data.draw(st.sampled_from(case[3]))
    where = target(case, library=library, workspace=limit, only_gemm=only_gemm)
    operation = conv(**shape, element_size=2 if "16" in case[2] else 4)
    together = model.price(replace(operation, batch=np.array(BATCHES)), where)
    assert parts(together, len(BATCHES)) == [
        parts(model.price(replace(operation, batch=batch), where))[0] for batch in BATCHES
    ]


@given(SHAPES, CASES, LIMITS, st.data())
@settings(max_examples=80, deadline=None)
def test_an_explanation_names_what_the_price_is_of(
    shape: dict[str, Any], case: tuple[Any, ...], limit: int | None, data: st.DataObject
) -> None:
    model = COST_MODELS[case[0]]
    library = data.draw(st.sampled_from(case[3]))
    where = target(case, library=library, workspace=limit)
    operation = conv(**shape, element_size=2 if "16" in case[2] else 4)
    found = model.explain(operation, where)
    assert found.time == model.price(operation, where)
    assert found.time == model.price_by(found.algorithm, operation, where)
    details: dict[str, Any] = {name: value for name, value, _ in found.details}
    assert {"computation", "reads", "writes", "workspace"} <= set(details)
    if limit is not None:
        assert details["workspace"] <= limit
    for name, _, unit in found.details:
        if name.startswith("by ") and unit == "s":
            other = name.removeprefix("by ").removesuffix(" beyond the workspace")
            assert other in ALGORITHMS
            if not name.endswith("workspace"):
                assert details[name] >= found.time.total or found.why.startswith("the host")


@pytest.mark.parametrize("case", [("TITAN_X", "fp32"), ("P100_SXM2", "fp32"), ("T4", "fp16")])
@given(shape=SHAPES)
@settings(max_examples=60, deadline=None)
def test_what_tiled_does_not_try_is_never_quicker(
    shape: dict[str, Any], case: tuple[str, str]
) -> None:
    """Algorithms are left out by name, or since the passes alone take too long."""
    operation = conv(**shape, element_size=2 if "16" in case[1] else 4)
    own = machine_for(Target(paleo.find_device(case[0]), case[1]))
    every = [time.total for time in ways(operation, own).values()]
    assert convolution.price(operation, own).total == min(every)


@pytest.mark.parametrize("name", COST_MODELS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_cost_model_prices_every_algorithm(name: str, algorithm: str) -> None:
    model, found = COST_MODELS[name], 0
    for direction in LAYER_PASSES:
        for window, stride, groups in ((1, 1, 1), (3, 1, 1), (4, 2, 1), (5, 1, 1), (3, 1, 64)):
            operation = conv(direction, window=window, stride=stride, groups=groups)
            time = model.price_by(algorithm, operation, Target(TITAN))
            if time is not None:
                assert 0 < max(time.compute, time.memory) <= time.total
                assert ALGORITHMS[algorithm].applies(operation)
                found += 1
    assert found
    with pytest.raises(paleo.UnknownNameError, match="did you mean 'winograd_4x4'"):
        model.price_by("winograd_4x", conv(), Target(TITAN))


def test_algorithms_have_one_set_of_names() -> None:
    assert set(convolution.WAYS) == set(ALGORITHMS)
    offered = {
        name
        for direction in LAYER_PASSES
        for window in (1, 3)
        for name in LIBRARIES["onednn"].offers(conv(direction, window=window))
    }
    assert set(onednn.WAYS) | {GEMM} == offered


# What is taken by default


def test_without_a_library_2017_and_the_roofline_take_a_product() -> None:
    for name in ("paleo2017", "roofline"):
        for direction in LAYER_PASSES:
            operation = conv(direction, window=5, stride=2)
            model, where = COST_MODELS[name], Target(TITAN)
            assert model.price(operation, where) == model.price_by(GEMM, operation, where)
            only = replace(where, convolutions=ConvolutionChoice(only_gemm=True))
            assert model.price(operation, only) == model.price(operation, where)


@pytest.mark.parametrize(("device", "library"), [("TITAN_X", "cudnn5"), ("T4", "cudnn7")])
def test_without_a_library_tiled_takes_the_devices_own(device: str, library: str) -> None:
    model, on = COST_MODELS["tiled"], paleo.find_device(device)
    for direction in LAYER_PASSES:
        for window in (1, 3, 5, 9):
            operation = conv(direction, window=window)
            own = model.price(operation, Target(on))
            choice = ConvolutionChoice(library)
            assert model.price(operation, Target(on, convolutions=choice)) == own


def test_only_products_has_an_effect_on_tiled() -> None:
    model, operation = COST_MODELS["tiled"], conv(c=256, k=256)
    free = model.explain(operation, Target(TITAN))
    only = model.explain(operation, Target(TITAN, convolutions=ConvolutionChoice(only_gemm=True)))
    assert free.algorithm == "winograd_4x4"
    assert only.algorithm == GEMM
    assert only.time.total > free.time.total


def test_any_has_a_plain_product_for_filters_of_one_element() -> None:
    # A library for products does without the kernels that a convolution has beside its own.
    model, operation = COST_MODELS["tiled"], conv(window=1)
    found = model.explain(operation, Target(TITAN, convolutions=ConvolutionChoice("any")))
    assert found.algorithm == "gemm_1x1"


# The limit, by hand


def test_the_quickest_within_the_limit_is_taken() -> None:
    """By the roofline: 16 images of 28 x 28, 64 channels, 64 filters of 3 x 3."""
    roofline, operation = COST_MODELS["roofline"], conv()

    def chosen(limit: int | None) -> str:
        choice = ConvolutionChoice("cudnn5", limit)
        return roofline.explain(operation, Target(ROUND, convolutions=choice)).algorithm

    # The product: 2 * 16 * 784 * 64 * 9 * 64 = 924.8 MFLOP, 231.2 us. F(2 x 2): 411.0 MFLOP and
    # 5.8 of transforms, 104.2 us, with 16 * 64 * 64 * 4 = 262,144 bytes. F(4 x 4) moves 784 tiles
    # of 36 elements, 64 channels, 4 bytes (7.2 MB) out and in twice: 4 * 72.3 us of 28.9 MB alone
    # is longer than that.
    assert [chosen(limit) for limit in (0, 262_143, 262_144, None)] == [
        GEMM, GEMM, "winograd_2x2", "winograd_2x2",
    ]  # fmt: skip
    time = roofline.price(operation, Target(ROUND, convolutions=ConvolutionChoice("cudnn5", 0)))
    assert time.total == pytest.approx(924_844_032 / 4e12)


def test_the_limit_holds_for_each_batch_by_itself() -> None:
    # Of paleo2017, 8 A (n c + c k + n k): A = 30 * 30, 8 * 900 * (n 64 + 64 * 64 + n 64) bytes:
    # 31,334,400 for 2 images, 36,864,000 for 8.
    operation = conv(window=3, n=np.array([2, 8]))
    for limit, allowed in ((31_334_400, [True, False]), (36_864_000, [True, True])):
        assert (counts_of("fft", operation).workspace_bytes <= limit).tolist() == allowed  # type: ignore[union-attr]
    model = COST_MODELS["paleo2017"]
    free, within = (
        model.price(
            replace(operation, batch=np.array([2, 8])),
            Target(TITAN, convolutions=ConvolutionChoice("cudnn3", limit)),
        ).total.tolist()  # type: ignore[union-attr]
        for limit in (None, 31_334_400)
    )
    gemm = model.price(operation, Target(TITAN)).total.tolist()  # type: ignore[union-attr]
    assert within == [free[0], gemm[1]]
    assert free[0] <= gemm[0]


# Asking cuDNN itself


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Have a cuDNN that prefers Fourier transforms for batches above 8; return what it is asked."""
    calls: list[tuple[Any, ...]] = []

    def ask(operation: Convolution, dtype: str, workspace: int | None) -> tuple[str, ...]:
        calls.append((operation.batch, dtype, workspace))
        if operation.batch == 13:
            return ("winograd_5x5", "precomputed_gemm")
        return ("fft", GEMM) if operation.batch > 8 else ("precomputed_gemm", "fft")

    monkeypatch.setattr(algorithms, "cudnn", SimpleNamespace(ask=ask), raising=False)
    return calls


@pytest.mark.parametrize("name", COST_MODELS)
def test_cudnn_is_asked_for_each_convolution(name: str, asked: list[tuple[Any, ...]]) -> None:
    model, choice = COST_MODELS[name], ConvolutionChoice("cudnn", 1 << 30)
    where, small = Target(TITAN, convolutions=choice), conv(n=4)
    large = conv(n=64, c=256, k=256, window=11)
    assert model.explain(small, where).algorithm == "precomputed_gemm"
    assert model.explain(large, where).algorithm == "fft"
    assert model.price(large, where) == model.price_by("fft", large, where)
    assert asked == [(4, "fp32", 1 << 30), (64, "fp32", 1 << 30), (64, "fp32", 1 << 30)]
    # What does not apply to the operation is passed over.
    assert model.explain(conv(n=13), where).algorithm == "precomputed_gemm"
    # Many batches are asked for one by one.
    batches = [4, 16, 13, 4]
    together = model.price(conv(n=np.array(batches)), where)
    assert parts(together, 4) == [parts(model.price(conv(n=n), where))[0] for n in batches]


@pytest.mark.parametrize("name", COST_MODELS)
def test_what_cudnn_chose_takes_no_more_than_a_product(
    name: str, asked: list[tuple[Any, ...]]
) -> None:
    # 2 x 2 windows: transforms would take several times as long.
    model, operation = COST_MODELS[name], conv(window=2, c=4, k=4, size=64)
    where = Target(TITAN, convolutions=ConvolutionChoice("cudnn"))
    fourier, gemm = (model.price_by(each, operation, where) for each in ("fft", GEMM))
    assert fourier
    assert gemm
    assert fourier.total > gemm.total
    found = model.explain(operation, where)
    assert (found.algorithm, found.time.total) == ("fft", gemm.total)
    only = replace(where, convolutions=ConvolutionChoice("cudnn", only_gemm=True))
    assert model.explain(operation, only).algorithm == GEMM
    assert asked


def test_without_a_cudnn_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object) -> tuple[str, ...]:
        raise paleo.SettingError("there is no cuDNN on this machine")

    monkeypatch.setattr(algorithms, "cudnn", SimpleNamespace(ask=ask), raising=False)
    result = call("simulate", "alex_v2", "vgg16", "--conv_library=cudnn", status=1)
    assert result.stderr == "paleo: there is no cuDNN on this machine\n"


# Settings


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def test_a_workspace_is_bytes_or_a_text() -> None:
    assert convolution_choice(workspace="4GiB").workspace == 4 * 2**30
    assert convolution_choice(workspace="1.5 MB").workspace == 1_500_000
    assert convolution_choice("cudnn7", cast(Any, np.int64(12))).workspace == 12
    assert convolution_choice() == ConvolutionChoice()
    for wrong in (-1, 2.5, True, "4", "4 GiBs", "-1 GB", [1]):
        with pytest.raises(paleo.SettingError, match=r"workspace: expected"):
            convolution_choice(workspace=wrong)  # type: ignore[arg-type]


WRONG_UNIT = (
    "paleo: workspace: expected a number with a unit, such as \"10 GB\", got '4gib' (did you mean "
    "'GiB'?)"
)


def test_all_that_is_wrong_is_said() -> None:
    result = call("simulate", "nin", "--conv_library=cudn7", "--workspace=4gib", status=1)
    assert result.stderr.splitlines() == [
        WRONG_UNIT,
        "paleo: unknown convolution library 'cudn7' (did you mean 'cudnn7'?)",
    ]
    for command in ("summary", "compare", "metrics"):
        more = ("nin",) if command == "compare" else ()
        result = call(command, "nin", *more, "--device=TITAN_X", "--conv_library=onednn", status=1)
        assert result.stderr == (
            "paleo: conv_library: onednn runs on CPUs, which TITAN_X is not; there are: any\n"
        )


CHOSEN: dict[str, Any] = {"conv_library": "cudnn4", "workspace": "1 GiB"}
OPTIONS = ("--conv_library=cudnn4", "--workspace=1GiB")


def test_every_command_and_function_takes_the_choice() -> None:
    on: dict[str, Any] = {"cost_model": "paleo2017", "batch_size": 32}
    (run,) = paleo.simulate("nin", workers=1, scaling="weak", **on, **CHOSEN).runs
    row = run.rows[0]
    summary = paleo.summarize("nin", 32, device="TITAN_X", cost_model="paleo2017", **CHOSEN)
    assert (summary.forward, summary.backward) == (row["forward"], row["backward"])
    graph = paleo.build(paleo.load("nin"), 32)
    of: dict[str, Any] = {"cost_model": "paleo2017", **CHOSEN}
    assert paleo.estimate_forward(graph, "TITAN_X", **of).upper == row["forward"]
    assert paleo.estimate_backward(graph, "TITAN_X", **of).upper == row["backward"]
    (metrics,) = paleo.metrics("nin", **on, **CHOSEN)
    assert (metrics.compute, metrics.inference) == (row.compute, row["forward"])
    plan = paleo.Plan(TITAN, paleo.find_network("ethernet"), COST_MODELS["paleo2017"], **CHOSEN)
    assert paleo.data_parallel(paleo.load("nin"), plan, 32, 1).compute == row.compute
    compared = paleo.compare(["nin", "nin"], **on, **CHOSEN)
    assert compared.reference.total.forward == row["forward"]
    # And it makes a difference.
    (plain,) = paleo.simulate("nin", workers=1, scaling="weak", **on).runs
    assert row.compute < 0.9 * plain.rows[0].compute


def test_json_says_what_was_asked_for_and_what_was_done() -> None:
    keys = ("conv_library", "workspace_limit_bytes", "use_only_gemm", "convolution_algorithm")

    def said(*options: str) -> list[Any]:
        found = []
        for command in (
            ("simulate", "nin", "--num_workers=1"),
            ("metrics", "nin"),
            ("summary", "nin", "--device=TITAN_X"),
        ):
            values = json.loads(call(*command, *options, "--format=json").stdout)
            (several,) = values.values()
            found.append([several[0][key] for key in keys])
        assert found[0] == found[1] == found[2]
        return found[0]

    assert said() == [None, None, False, "quickest"]
    assert said("--cost_model=roofline") == [None, None, False, "gemm"]
    assert said("--use_only_gemm") == [None, None, True, "gemm"]
    assert said("--cost_model=roofline", *OPTIONS) == ["cudnn4", 2**30, False, "quickest"]
    values = json.loads(call("compare", "nin", "--conv_library=cudnn4,any", "--format=json").stdout)
    libraries = [each["settings"]["conv_library"] for each in
                 (values["reference"], *values["comparisons"])]  # fmt: skip
    assert libraries == ["cudnn4", "any"]


def test_titles_and_notes_say_which_library_and_which_limit() -> None:
    text = call("simulate", "nin", "--num_workers=1", *OPTIONS, "--use_only_gemm", "--wide").stdout
    assert "cudnn4, workspace 1 GiB, only GEMM" in text
    assert (
        "convolutions are priced as matrix multiplication (GEMM), as asked, the quickest of "
        "cudnn4 within 1 GiB of workspace"
    ) in text
    text = call("summary", "nin", "--device=TITAN_X", *OPTIONS, "--wide").stdout
    assert "cost model tiled, ppp_comp 1, cudnn4, workspace 1 GiB" in text
    note = "convolutions are priced by the quickest algorithm of cudnn4 within 1 GiB of workspace"
    assert note in text
    text = call("compare", "nin", "--conv_library=cudnn4,any", "--totals", "--wide").stdout
    assert "nin, cudnn4" in text
    assert "the quickest algorithm of any library" in text
    text = call("simulate", "nin", "--num_workers=1", "--workspace=0", "--wide").stdout
    assert "the quickest algorithm of the device's library within 0 B of workspace" in text
    text = call(
        "simulate", "nin", "--num_workers=1", "--workspace=1GiB", "--cost_model=roofline", "--wide"
    ).stdout
    assert "(GEMM) (without a library a workspace has no effect)" in text
    # Nothing is said of nets without convolutions, nor where nobody asked tiled for anything.
    assert "convolutions are" not in call("simulate", "lstm_lm", "--num_workers=1", *OPTIONS).stdout
    assert "convolutions are" not in call("simulate", "nin", "--num_workers=1").stdout


def test_bands_are_of_the_devices_own_library() -> None:
    def band(**choice: Any) -> Any:
        return paleo.simulate("nin", workers=1, scaling="weak", **choice).runs[0].band

    assert band() is not None
    assert band(conv_library="cudnn4") is band(use_only_gemm=True) is None
    found = paleo.summarize("nin", device="TITAN_X", explain="conv1", workspace=0).explained
    convolutions = [each for each in found[0].operations if each.operation.name == "convolution"]
    assert all(each.band is None for each in convolutions)
    assert any(each.band is not None for each in found[0].operations)


def test_a_kernel_with_a_tail_keeps_the_algorithm_of_its_head() -> None:
    fused = Fused(conv(), (Stream(Kind.FUNCTION, (), ()),))
    for name, model in COST_MODELS.items():
        where = Target(TITAN, convolutions=ConvolutionChoice("cudnn5"))
        head = model.explain(conv(), where)
        found = model.explain(fused, where)
        if name != "paleo2017":
            assert found.algorithm == head.algorithm
        assert found.time == model.price(fused, where)


def test_the_table_of_an_explanation_has_bytes_and_the_other_algorithms() -> None:
    text = call(
        "summary", "alex_v2", "--device=TITAN_X", "--cost_model=paleo2017",
        "--conv_library=cudnn4", "--workspace=4GiB", "--explain=conv2", "--wide",
    ).stdout  # fmt: skip
    line = next(each for each in text.splitlines() if each.startswith("forward: convolution:"))
    assert "Fourier transforms of whole images, for large filters; computation " in line
    for part in ("reads ", "writes ", "workspace ", "by implicit_gemm ", "by tiled_fft "):
        assert part in line


def test_libraries_have_the_names_of_the_option() -> None:
    assert {"cudnn4", "cudnn7", "cudnn9", "onednn", "any", "cudnn"} <= set(LIBRARIES)
    assert "so far" not in call("simulate", "--help").stdout
