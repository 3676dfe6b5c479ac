"""Batched products and recurrent layers in the model `tiled`.

Letters: N batch, T steps, H hidden units, G gates.
"""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from paleo.cluster import find_device
from paleo.core.operations import LAYER_PASSES, BatchMatMul, Pass, Role
from paleo.costs import Target, Time, find_cost_model
from paleo.costs.tiled import recurrent
from paleo.costs.tiled.constants import find_family
from paleo.costs.tiled.gemm import choose
from paleo.costs.tiled.machine import Machine, machine_for
from paleo.costs.tiled.stream import moved
from paleo.net.layers.recurrent import GRU, LSTM, RNN

SHARED = Path(__file__).parents[3] / "shared" / "measured"
DEEPBENCH, NEUSIGHT = SHARED / "deepbench.csv", SHARED / "neusight_ops.csv"


def machine(
    device: str = "V100_SXM2_16GB",
    dtype: str = "fp32",
    *,
    persistent: bool = False,
    **constants: float,
) -> Machine:
    target = Target(find_device(device), dtype, constants=constants, persistent=persistent)
    return machine_for(target)


def test_independent_products_run_in_one_kernel() -> None:
    op = BatchMatMul("attention", 96, 128, 64, 128, 4)
    expected = choose(128, 64, 128, machine(), sizes=(4, 4, 4), count=96).time
    assert recurrent.price(op, machine()) == expected


def test_steps_that_wait_for_one_another_add_up() -> None:
    # 150 steps: 150 products of one step each, as many kernels that make the next state of them,
    # and the first 100 wait.
    op = BatchMatMul("lstm", 150, 16, 4096, 1024, 4, dependent=True)
    one = choose(16, 4096, 1024, machine(), sizes=(4, 4, 4)).time
    found = recurrent.price(op, machine(step=20e-6))
    launch = machine().launch
    assert found.total == pytest.approx(150 * (one.total + launch) + 100 * 20e-6)
    assert found.overhead == pytest.approx(150 * (one.overhead + launch) + 100 * 20e-6)
    assert found.compute == pytest.approx(150 * one.compute)
    few = recurrent.price(replace(op, count=25), machine(step=20e-6))
    assert few.total == pytest.approx(25 * (one.total + launch + 20e-6))


def test_the_gradient_of_weights_is_added_and_that_of_biases_summed() -> None:
    # 400 samples of 4 gates of 256 units: 256 x 1024 weights of 4 bytes are read, read and written
    # again (3 MiB) after the product, and 400 x 1024 gates are read twice (3.3 MB). That, three
    # kernels and a wait are more than a product of the same shape that is no layer's.
    forward = BatchMatMul("lstm", 1, 400, 1024, 256, 4, roles=(Role.INPUT, Role.WEIGHT))
    own = machine(launch=5e-6, step=20e-6)
    gradient = forward.gradients()[1]
    assert (gradient.m, gradient.n, gradient.k) == (256, 1024, 400)
    plain = recurrent.price(replace(gradient, direction=Pass.INPUT_GRADIENT), own)
    passes = moved(3 * 4 * 256 * 1024, own) + moved(2 * 4 * 400 * 1024, own)
    expected = plain.total + passes + 3 * 5e-6 + 20e-6
    assert recurrent.price(gradient, own).total == pytest.approx(expected)


def test_a_single_product_is_no_batch_alone_and_among_others() -> None:
    # On the A100 batched products have tiles of 128 x 128 only: 64 rows cost as much as 128, but
    # for the energy of their bytes.
    own = replace(machine("A100_PCIE_40GB"), byte_energy=0.0)
    count = np.array([1, 5000])
    together = recurrent.price(BatchMatMul("matmul", count, 64, 128, 512, 4), own).compute
    alone, batch = (
        recurrent.price(BatchMatMul("matmul", each, 64, 128, 512, 4), own).compute
        for each in count.tolist()
    )
    assert np.asarray(together).tolist() == [alone, batch]
    assert alone == choose(64, 128, 512, own, sizes=(4, 4, 4)).time.compute
    full = recurrent.price(BatchMatMul("matmul", 5000, 128, 128, 512, 4), own).compute
    assert batch == pytest.approx(full, rel=1e-3)


def test_cudnn_6_splits_no_sum_of_a_step_of_some_batches() -> None:
    # For 32 samples it walks along all of K, 8192 elements of 89 + 5504 / 64 = 175 clocks each at
    # 1.329 GHz, and forward in halves 2.6 times as many, in halves for more samples too; for 16 it
    # shares K out, as others do for any.
    element = 175 / 1.329e9

    def one(batch: int, dtype: str, generation: float, of: Pass = Pass.INPUT_GRADIENT) -> Time:
        size = 4 if dtype == "fp32" else 2
        op = BatchMatMul("lstm", 1, batch, 2048, 8192, size, dependent=True, direction=of)
        own = machine("P100_PCIE", dtype, library=generation)
        details = dict(each[:2] for each in recurrent.explain(op, own).details)
        found = recurrent.price(op, own)
        assert (details["split of K"] == 1) == (found.compute > 1e-3)
        return found

    for dtype in ("fp32", "fp16"):
        assert one(32, dtype, 6.0).compute == pytest.approx(8192 * element, rel=1e-4)
        for batch, generation in ((16, 6.0), (32, 5.0), (32, 7.0)):
            assert one(batch, dtype, generation).compute < 0.6 * 8192 * element
    assert one(33, "fp32", 6.0).compute < 1e-3
    assert one(33, "fp16", 6.0).compute == pytest.approx(8192 * element, rel=1e-4)
    assert one(32, "fp32", 6.0, Pass.FORWARD).compute == pytest.approx(8192 * element, rel=1e-4)
    half = one(32, "fp16", 6.0, Pass.FORWARD)
    assert half.compute == pytest.approx(8192 * 2.6 * element, rel=1e-4)
    assert one(64, "fp16", 6.0, Pass.FORWARD).compute == pytest.approx(8192 * element, rel=1e-4)
    batches = np.array([16, 32, 64])
    for dtype, size in (("fp32", 4), ("fp16", 2)):
        own = machine("P100_PCIE", dtype, library=6.0)
        op = BatchMatMul("gru", 9, batches, 96, 32, size, dependent=True)
        together = recurrent.price(op, own)
        for i, batch in enumerate(batches.tolist()):
            alone = recurrent.price(replace(op, m=batch), own)
            assert [np.broadcast_to(part, 3)[i] for part in together] == list(alone)


def test_a_program_may_ask_for_kernels_that_keep_their_weights() -> None:
    # 16 samples, 512 units, 4 gates in fp32: 4 MiB of weights, which 80 x 256 KiB of registers
    # hold. A step is 2 x 16 x 2048 x 512 = 33.6 MFLOP and 1.8 us in which all wait for all.
    op = BatchMatMul("lstm", 200, 16, 2048, 512, 4, dependent=True)
    own = machine(persistent=True)
    found = recurrent.price(op, own)
    weights = moved(4 * 2048 * 512, own)
    step = 2 * 16 * 2048 * 512 / own.product_rate + 1.8e-6
    assert found.total == pytest.approx(200 * step + weights + own.launch)
    assert found.total < recurrent.price(op, machine()).total
    shown = recurrent.explain(op, own)
    assert shown.time == found
    assert shown.algorithm == "product step after step, its weights kept"
    assert dict(each[:2] for each in shown.details)["between two steps"] == 1.8e-6
    # 2048 units have 64 MiB, the registers of all 20 MiB; cuDNN 5 has no such kernel.
    large = replace(op, n=8192, k=2048)
    assert recurrent.price(large, own) == recurrent.price(large, machine())
    old = machine(persistent=True, library=5.0)
    assert recurrent.price(op, old) == recurrent.price(op, machine(library=5.0))
    n, k = np.array([2048, 8192]), np.array([512, 2048])
    together = recurrent.price(replace(op, n=n, k=k), own).total
    assert np.asarray(together).tolist() == [found.total, recurrent.price(large, own).total]
    assert recurrent.price(replace(op, count=0), own).total == 0


def test_waiting_costs() -> None:
    op = BatchMatMul("lstm", 50, 16, 4096, 1024, 4)
    waiting = replace(op, dependent=True)
    assert recurrent.price(waiting, machine()).total > 2 * recurrent.price(op, machine()).total


def test_no_steps_cost_nothing() -> None:
    # A sequence of one step has no way back through time: T - 1 products.
    op = BatchMatMul("lstm", 0, 16, 4096, 1024, 4, dependent=True)
    assert recurrent.price(op, machine()) == Time()


def test_gradients_of_states_wait_and_those_of_weights_do_not() -> None:
    op = BatchMatMul("lstm", 50, 16, 4096, 1024, 4, dependent=True)
    back, weights = op.gradients()
    assert back.dependent
    assert not weights.dependent


@pytest.mark.parametrize(("layer", "gates"), [(RNN, 1), (GRU, 3), (LSTM, 4)])
def test_layers_say_which_products_wait(layer: type[RNN], gates: int) -> None:
    # 8 samples, 30 steps of 24 features, 32 hidden units: the inputs of all steps in one product
    # of 8 * 30 rows, the states' in 30, and 29 on the way back.
    made = layer(num_outputs=32, num_layers=1, bidirectional=False, num_biases=2)
    shape = ((8, 30, 24),)
    found = {
        direction: [
            (op.count, op.m, op.n, op.k, op.dependent)
            for op in made.operations(direction, shape, 4)
            if isinstance(op, BatchMatMul)
        ]
        for direction in LAYER_PASSES
    }
    g = gates * 32
    assert found == {
        Pass.FORWARD: [(1, 240, g, 24, False), (30, 8, g, 32, True)],
        Pass.INPUT_GRADIENT: [(1, 240, 24, g, False)],
        Pass.WEIGHT_GRADIENT: [
            (29, 8, 32, g, True), (1, 32, g, 240, False), (1, 24, g, 240, False),
        ],
    }  # fmt: skip


def test_a_projection_waits_too() -> None:
    made = LSTM(num_outputs=32, num_layers=1, bidirectional=False, num_biases=2, projection=16)
    steps = [
        op
        for op in made.operations(Pass.FORWARD, ((8, 30, 24),), 4)
        if isinstance(op, BatchMatMul) and op.dependent
    ]
    assert [(op.m, op.n, op.k) for op in steps] == [(8, 128, 16), (8, 16, 32)]


def test_explain_says_what_price_says() -> None:
    for dependent in (False, True):
        op = BatchMatMul("lstm", 25, 16, 4096, 1024, 4, dependent=dependent)
        found = recurrent.explain(op, machine(step=20e-6))
        assert found.time == recurrent.price(op, machine(step=20e-6))
        details = {name: value for name, value, _ in found.details}
        assert (details["M"], details["N"], details["K"]) == (16, 4096, 1024)
        if dependent:
            assert details["steps"] == 25
            assert details["of them waiting"] == 25
            assert details["wait"] == 20e-6
        else:
            assert details["products"] == 25


def test_many_batches_cost_what_each_costs() -> None:
    batches = [1, 8, 16, 100]
    for dependent in (False, True):
        op = BatchMatMul("lstm", 25, 1, 512, 128, 4, dependent=dependent)
        together = recurrent.price(replace(op, m=np.array(batches)), machine())
        for i, batch in enumerate(batches):
            alone = recurrent.price(replace(op, m=batch), machine())
            assert together.total[i] == alone.total  # type: ignore[index]
            assert np.broadcast_to(together.overhead, 4)[i] == alone.overhead


@pytest.mark.skipif(not DEEPBENCH.exists(), reason="the measurements of DeepBench are not here")
@pytest.mark.parametrize(
    ("measured", "device", "bound"),
    # Medians of the three passes together, with a tenth to spare.
    [
        ("M40", "M40", 0.10),
        ("TitanX-Maxwell", "TITAN_X", 0.10),
        ("P100", "P100_PCIE", 0.06),
        ("V100-SXM2-16GB(DGX-1)", "V100_SXM2_16GB", 0.12),
    ],
)
def test_deepbench(measured: str, device: str, bound: float) -> None:
    target = Target(find_device(device), "fp32")
    if find_family(target.device) is None:
        pytest.skip(f"nothing is known of {target.device.architecture}")
    model, errors = find_cost_model("tiled"), []
    layers = {"op:rnn_vanilla": RNN, "op:rnn_gru": GRU, "op:rnn_lstm": LSTM}
    with DEEPBENCH.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["network"] not in layers or row["device"] != measured:
                continue
            if row["precision"] != "fp32":
                continue
            x = json.loads(row["op_shape"])
            n, t, h = x["N"], x["T"], x["hidden"]
            made = layers[row["network"]](
                num_outputs=h, num_layers=1, bidirectional=False, num_biases=0
            )
            # Without the product with the inputs (cuDNN's CUDNN_SKIP_INPUT).
            forward = made.operations(Pass.FORWARD, ((n, t, h),), 4)[1:]
            first, *_ = back = made.operations(Pass.WEIGHT_GRADIENT, ((n, t, h),), 4)
            assert isinstance(first, BatchMatMul)
            operations = {
                "forward": forward,
                "backward_input": (replace(first, count=t), *back[2:-1]),
                "backward_weight": back[1:2],
            }[row["direction"]]
            seconds = sum(float(model.price(op, target).total) for op in operations)
            errors.append(abs(seconds / (float(row["value"]) / 1e3) - 1))
    assert len(errors) == 159
    assert median(errors) <= bound


@pytest.mark.skipif(not NEUSIGHT.exists(), reason="the measurements of NeuSight are not here")
@pytest.mark.parametrize(
    ("measured", "device", "bound"),
    [
        ("A100-PCIe-40GB", "A100_PCIE_40GB", 0.08),
        ("V100-PCIe-32GB", "V100_PCIE_32GB", 0.08),
        ("T4", "T4", 0.14),
    ],
)
def test_batched_products_of_neusight(measured: str, device: str, bound: float) -> None:
    target = Target(find_device(device), "fp32")
    if find_family(target.device) is None:
        pytest.skip(f"nothing is known of {target.device.architecture}")
    with NEUSIGHT.open(newline="") as file:
        found = [
            (json.loads(row["op_shape"]), float(row["value"]) / 1e3)
            for row in csv.DictReader(file)
            if (row["network"], row["device"]) == ("op:bmm", measured)
        ]
    # Of B x M x N by B x N x K: N is what is summed over.
    b, m, k, n = (np.array([shape[letter] for shape, _ in found]) for letter in "BMNK")
    priced = recurrent.price(BatchMatMul("matmul", b, m, n, k, 4), machine_for(target))
    errors = np.abs(priced.total / np.array([seconds for _, seconds in found]) - 1)
    assert np.median(errors) <= bound
