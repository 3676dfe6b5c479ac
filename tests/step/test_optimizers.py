"""What an update moves and computes by its optimizer and its framework: by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.cluster.frameworks import FRAMEWORKS, NO_FRAMEWORK
from paleo.core.operations import Update
from paleo.costs.model import Target
from paleo.costs.tiled import stream
from paleo.costs.tiled.machine import machine_for
from paleo.costs.tiled.stream import _START
from paleo.step.optimizers import OPTIMIZERS, PLAIN, Rule
from paleo.step.passes import update_operations, update_time

V100 = "V100_SXM2_16GB"
#: So many fit into a last cache nowhere.
MANY = 10**9


def elements(rule: Rule) -> tuple[int, int]:
    """Return the elements of each parameter that an update reads, and those that it writes."""
    return sum(each.reads for each in rule.sweeps), sum(each.writes for each in rule.sweeps)


@pytest.mark.parametrize(
    ("name", "fused", "in_steps"),
    [
        # Weights and gradients are read, weights written: w -= a g.
        ("sgd", (2, 1), (2, 1)),
        # Fused: w, g, u; w, u. In steps: u *= m (1, 1); u += g (2, 1); w -= a u (2, 1).
        ("momentum", (3, 2), (5, 3)),
        # Fused: w, g, v; w, v. v *= b (1, 1); v += c g g (2, 1); r = sqrt v (1, 1); r += e
        # (1, 1); w -= a g / r (3, 1).
        ("rmsprop", (3, 2), (8, 5)),
        # v += g g (2, 1); r = sqrt v (1, 1); r += e (1, 1); t = -a g (1, 1); w += t / r (3, 1).
        ("adagrad", (3, 2), (8, 5)),
        # Fused: w, g, m, v; w, m, v. m += c (g - m) (2, 1); v as rmsprop (3, 2); r = sqrt v,
        # r /= b, r += e (3, 3); w -= a m / r (3, 1).
        ("adam", (4, 3), (11, 7)),
        # And w *= 1 - a d (1, 1).
        ("adamw", (4, 3), (12, 8)),
        ("fused_adam", (4, 3), (4, 3)),
        # a m, c g, their sum (4, 3); b v, g g, d g g, their sum (5, 4); root, e, quotient (4, 3);
        # f w, its sum, times the rate, w less that (6, 4); w, m, v copied (3, 3).
        ("bert_adam", (4, 3), (22, 17)),
        # |g| (1, 0); w, g, m, v to g, m, v (4, 3); |w| and |g| (2, 0); w -= s g (2, 1).
        ("lamb", (9, 4), (9, 4)),
    ],
)
def test_an_update_reads_and_writes_each_parameter(
    name: str, fused: tuple[int, int], in_steps: tuple[int, int]
) -> None:
    rule = OPTIMIZERS[name]
    assert elements(Rule(rule)) == fused
    # What is written of a framework's functions is in steps, unless a compiler fuses them.
    own = in_steps if name == "bert_adam" else fused
    # a w, times d, w less that (4, 3), and Adam (4, 3).
    apart = {("adamw", "tensorflow"): (8, 6)}
    for framework in ("tensorflow", "mxnet", "mindspore", "paddle"):
        software = FRAMEWORKS[framework]
        assert elements(Rule(rule, software)) == apart.get((name, framework), own)
        assert elements(Rule(rule, software.compiled or NO_FRAMEWORK)) == fused
    for framework in ("pytorch", "pytorch1", "timm"):
        assert elements(Rule(rule, FRAMEWORKS[framework])) == in_steps


def test_gradients_are_unscaled_and_clipped_before() -> None:
    rule = Rule(OPTIMIZERS["sgd"], clipped=True, unscaled=True)
    # g /= s (1, 1); |g| (1, 0) and g *= c (1, 1); w -= a g (2, 1).
    assert [(each.reads, each.writes) for each in rule.sweeps] == [(1, 1), (1, 0), (1, 1), (2, 1)]


def test_plain_gradient_descent_is_one_kernel_of_any_framework() -> None:
    assert update_operations(100) == (Update(100, 4),)
    for framework in FRAMEWORKS.values():
        assert Rule(OPTIMIZERS["sgd"], framework).operations(100, 4, 7) == (Update(100, 4),)


def test_how_many_kernels_there_are_is_the_frameworks() -> None:
    def kernels(name: str, framework: Any, num_params: int, tensors: int) -> list[Any]:
        found = Rule(OPTIMIZERS[name], framework).operations(num_params, 4, tensors)
        return [each.kernels for each in found if isinstance(each, Update)]

    # All at once if no framework is named; each tensor its own; up to 48 of them, or 320 blocks of
    # 65,536 elements, which are 20,971,520.
    assert kernels("adam", NO_FRAMEWORK, 10**9, 200) == [1]
    assert kernels("adam", FRAMEWORKS["tensorflow"], 10**9, 200) == [200]
    assert kernels("momentum", FRAMEWORKS["pytorch1"], 10**9, 200) == [200] * 3
    assert kernels("momentum", FRAMEWORKS["pytorch"], 1000, 97) == [3] * 3
    assert kernels("momentum", FRAMEWORKS["pytorch"], 20_971_521, 1) == [2] * 3
    # apex takes many tensors at once in the older PyTorch, too.
    assert kernels("fused_adam", FRAMEWORKS["pytorch1"], 1000, 96) == [2]


def test_a_host_that_waits_for_what_gradients_are_has_no_lead() -> None:
    # Momentum of 200 tensors of 10 numbers in TensorFlow: 2 x 200 kernels of unscaling and update,
    # each handed over in twice 15 us on a server, far longer than they take.
    software = FRAMEWORKS["tensorflow"]
    device, model = paleo.find_device(V100), paleo.find_cost_model("tiled")
    target = Target(device, constants={"host": software.host_of(device)})

    def seconds(unscaled: bool) -> Any:
        rule = Rule(OPTIMIZERS["momentum"], software, unscaled=unscaled)
        return update_time(2000, target, model, "fp32", rule, 200).total

    assert seconds(True) == pytest.approx(400 * 30e-6)
    assert seconds(False) < 200 * 30e-6
    # Large tensors take longer than their host: 10^9 parameters of 16 and 4 x 5 bytes.
    rule = Rule(OPTIMIZERS["momentum"], software, unscaled=True)
    long = update_time(MANY, target, model, "fp32", rule, 200)
    alone = update_time(MANY, replace(target, constants={}), model, "fp32", rule, 200)
    assert long == alone
    # The compiled graph's kernels take twice 3 us, those of its update what TensorFlow's do.
    assert software.compiled is not None
    compiled = Rule(OPTIMIZERS["momentum"], software.compiled, unscaled=True)
    xla = replace(target, constants={"host": software.compiled.host_of(device)})
    assert update_time(2000, xla, model, "fp32", compiled, 200).total == pytest.approx(400 * 30e-6)


def test_a_kernel_more_starts_once_more() -> None:
    machine = machine_for(Target(paleo.find_device(V100)))
    one, many = (stream.price(Update(MANY, 4, 4, 3, 13, kernels), machine) for kernels in (1, 11))
    assert many.memory == one.memory
    assert many.total - one.total == pytest.approx(10 * _START * machine.launch)


def test_adam_takes_as_long_as_its_bytes() -> None:
    # 7 and 3 elements a parameter: of many of them, what moves decides, and launches are nothing.
    adam, plain = (paleo.estimate_update(MANY, V100, optimizer=name) for name in ("adam", "sgd"))
    assert adam / plain == pytest.approx(7 / 3, rel=1e-3)
    # 18 elements where PyTorch takes the formula step by step, of 20,971,520 a launch.
    eager = paleo.estimate_update(MANY, V100, optimizer="adam", framework="pytorch")
    assert eager / plain == pytest.approx(18 / 3, rel=0.02)


def test_mixed_precision_casts_besides() -> None:
    # Adam's 7 elements of 4 bytes, the gradient from 2 to 4 bytes, the weights from 4 to 2.
    operations = update_operations(10, "mixed_fp16", Rule(OPTIMIZERS["adam"]))
    assert sum(each.work.num_bytes for each in operations) == 10 * (7 * 4 + 2 * 6)


def test_the_model_of_2017_descends_plainly() -> None:
    plain = paleo.estimate_update(MANY, "K40", cost_model="paleo2017")
    for name in OPTIMIZERS:
        found = paleo.estimate_update(MANY, "K40", cost_model="paleo2017", optimizer=name)
        assert found == plain


def test_arrays_give_what_numbers_do() -> None:
    counts = np.array([1000, 10**6, 10**8])
    found: Any = paleo.estimate_update(counts, V100, optimizer="lamb", framework="pytorch")
    alone = [
        paleo.estimate_update(int(each), V100, optimizer="lamb", framework="pytorch")
        for each in counts
    ]
    assert found.tolist() == alone


def test_a_step_updates_by_its_optimizer() -> None:
    graph = paleo.build(paleo.load("lenet5"), 8)
    for settings in ({"optimizer": "adam"}, {"optimizer": "momentum", "framework": "pytorch1"}):
        given: Any = settings
        run = paleo.simulate("lenet5", device=V100, batch_size=8, workers=1, **given).runs[0]
        tensors = sum(node.num_tensors for node in graph.nodes)
        update = paleo.estimate_update(graph.num_params, V100, tensors=tensors, **given)
        assert run.rows[0]["update"] == update
        assert run.to_dict()["optimizer"] == settings["optimizer"]


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(paleo.PaleoError, match="unknown optimizer 'adan'"):
        paleo.estimate_update(1, V100, optimizer="adan")


def test_the_default_is_plain() -> None:
    assert PLAIN.optimizer.name == "sgd"
    assert (PLAIN.clipped, PLAIN.unscaled, PLAIN.software.name) == (False, False, "")
