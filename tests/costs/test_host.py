"""A device that waits for its host: by hand, and as sums that have to agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import paleo
from paleo.core.operations import Kind, Pass
from paleo.costs import COST_MODELS, Target
from paleo.costs.host import handed_over
from paleo.step.passes import BACKWARD, FORWARD, estimate_pass

TILED = COST_MODELS["tiled"]
SECONDS = st.floats(0, 1e-3)
GROUPS = st.lists(st.tuples(SECONDS, st.integers(1, 4)), min_size=1, max_size=12)


def test_short_kernels_wait_for_the_host_and_long_ones_give_it_a_lead() -> None:
    # Handed over at 30, 60, 90 us. The first ends at 40, the second at 60 + 5, the third at 90 + 5.
    waits, ahead = handed_over([(10e-6, 1), (5e-6, 1), (5e-6, 1)], 30e-6)
    assert waits == pytest.approx([30e-6, 20e-6, 25e-6])
    assert ahead == pytest.approx(5e-6)
    # Behind 100 us of work, which ends at 130, there are three more by then.
    waits, ahead = handed_over([(100e-6, 1), (5e-6, 1), (5e-6, 1), (5e-6, 1)], 30e-6)
    assert waits == pytest.approx([30e-6, 0, 0, 0], abs=1e-15)
    assert ahead == pytest.approx((130 + 15 - 120) * 1e-6)


def test_a_group_ends_no_sooner_than_its_last_kernel_is_handed_over() -> None:
    waits, ahead = handed_over([(10e-6, 3)], 30e-6)
    assert waits == pytest.approx([80e-6])
    assert ahead == 0


def test_the_host_begins_with_the_lead_that_it_has() -> None:
    assert handed_over([(10e-6, 1)], 30e-6, 50e-6).waits == [0]
    assert handed_over([(10e-6, 1)], 30e-6, 20e-6).waits == pytest.approx([10e-6])


def test_a_host_that_begins_after_the_device_could_makes_it_wait() -> None:
    # The first is handed over at 50 + 30 us and ends at 120, the second has been by then.
    assert handed_over([(40e-6, 1), (10e-6, 1)], 30e-6, -50e-6).waits == pytest.approx([80e-6, 0])
    assert handed_over([(10e-6, 1)], 0.0, -50e-6).waits == pytest.approx([50e-6])


@given(GROUPS, GROUPS, st.floats(1e-6, 1e-4))
def test_passes_one_after_the_other_are_one(
    first: list[tuple[float, int]], second: list[tuple[float, int]], host: float
) -> None:
    together = handed_over([*first, *second], host)
    before = handed_over(first, host)
    after = handed_over(second, host, before.ahead)
    assert [*before.waits, *after.waits] == pytest.approx(together.waits, abs=1e-12)
    assert after.ahead == pytest.approx(together.ahead, abs=1e-12)
    # It takes at least what the device needs, and at least what the host needs.
    total = sum(seconds for seconds, _ in [*first, *second]) + sum(together.waits)
    assert total >= host * sum(count for _, count in [*first, *second]) - 1e-12
    assert min(together.waits) >= -1e-12


def test_arrays_wait_element_by_element() -> None:
    hosts, seconds = np.array([0.0, 1e-5, 5e-5]), np.array([1e-6, 2e-5, 1e-4])
    found = handed_over([(seconds, 1), (seconds[::-1], 2)], hosts)
    for i in range(3):
        alone = handed_over([(seconds[i], 1), (seconds[::-1][i], 2)], hosts[i])
        assert [wait[i] for wait in map(np.asarray, found.waits)] == pytest.approx(alone.waits)


@pytest.mark.parametrize("directions", [FORWARD, BACKWARD])
def test_a_pass_of_short_kernels_takes_as_long_as_the_host(directions: tuple[Pass, ...]) -> None:
    graph, device = paleo.build(paleo.load("lenet5"), 1), paleo.find_device("A100_SXM_80GB")
    slow = Target(device, constants={"host": 1e-3})
    free = estimate_pass(graph, directions, Target(device), TILED)
    found = estimate_pass(graph, directions, slow, TILED)
    count = sum(  # a bias comes with its product
        TILED.price(operation, slow).total > 0 and operation.kind is not Kind.BIAS
        for own in free.kernels.of
        for _, operation in own
    )
    # The last kernel, a millisecond after the one before it, adds the time that it takes itself.
    assert found.upper == pytest.approx(count * 1e-3, rel=2e-2)
    assert found.upper == pytest.approx(sum(layer.seconds for layer in found.layers))
    assert found.time.compute == pytest.approx(free.time.compute)


def test_a_step_of_long_kernels_hides_the_host() -> None:
    settings: Any = {"device": "A100_SXM_80GB", "cost_model": "tiled", "batch_size": 256}
    graph = paleo.build(paleo.load("vgg16"), 256)
    device = paleo.find_device("A100_SXM_80GB")
    free = estimate_pass(graph, FORWARD, Target(device), TILED)
    found = estimate_pass(graph, FORWARD, Target(device, constants={"host": 25e-6}), TILED)
    # Only the first kernel waits, and the last are handed over long before they begin.
    assert found.upper == pytest.approx(free.upper + 25e-6)
    assert found.ahead > 0.9 * free.upper
    # The lead lasts through the backward pass, whose first kernels are short.
    step = paleo.scenario("vgg16", framework="pytorch", **settings)
    forward, backward = step.plan.passes(step.graph())
    graph, target = step.graph(), replace(step.plan.target, constants={})
    alone = [
        estimate_pass(graph, each, target, TILED, fusion=step.plan.fusion)
        for each in (FORWARD, BACKWARD)
    ]
    assert forward.ahead > 0
    assert forward.upper + backward.upper == pytest.approx(
        sum(each.upper for each in alone) + step.plan.software.host_of(device)
    )


def test_a_cpu_hands_over_to_itself() -> None:
    device = next(
        found for name in paleo.device_names() if (found := paleo.find_device(name)).kind == "cpu"
    )
    assert TILED.host(Target(device, constants={"host": 1.0})) == 0
