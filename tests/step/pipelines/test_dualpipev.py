"""DualPipeV: what it takes, keeps and hides, held to its turns, and to the published table.

Letters: p devices, m micro-batches, f and b seconds of both passes of one of two stages of a
device, w of b those of parameters' gradients. The published table counts the 2 p stages.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paleo
from paleo.core.errors import PaleoError, SettingError
from paleo.net.generators import transformer
from paleo.step.mesh import Mesh
from paleo.step.meshed import Meshed
from paleo.step.pipelines import PIPELINES, Work
from paleo.step.scenario import scenario

DUALPIPEV = PIPELINES["dualpipev"]


def last_end(stages: list[Work], batches: int) -> float:
    return max(played.end for played in DUALPIPEV.play(stages, batches))


@pytest.mark.parametrize(("devices", "batches"), [(2, 4), (2, 5), (3, 7), (4, 8), (8, 21)])
def test_equal_stages_wait_as_was_published(devices: int, batches: int) -> None:
    """(PP / 2 - 1) (f&b + b - 3 w) of PP = 2 p stages; f = w = 1, b = 2, nothing hidden: f&b = 3.

    Each device is busy with both of its stages for each micro-batch, 2 (f + b) = 6.
    """
    work = [Work(1.0, 2.0, 1.0)] * (2 * devices)
    idle = (2 * devices / 2 - 1) * (3.0 + 2.0 - 3 * 1.0)
    assert DUALPIPEV.seconds(work, batches) == pytest.approx(6.0 * batches + idle)
    assert last_end(work, batches) == pytest.approx(6.0 * batches + idle)


works = st.tuples(st.floats(0.8, 1.2), st.floats(1.6, 2.4), st.floats(0.0, 0.3)).map(
    lambda three: Work(three[0], three[1], three[1] / 2, three[2] * (three[0] + three[1]))
)


@settings(max_examples=20)
@given(devices=st.integers(2, 4), more=st.integers(0, 5), data=st.data())
def test_stages_that_differ_are_near_what_their_turns_take(
    devices: int, more: int, data: st.DataObject
) -> None:
    """Where stages differ by up to 40 %: within 10 %."""
    work = data.draw(st.lists(works, min_size=2 * devices, max_size=2 * devices))
    batches = 2 * devices + more
    assert DUALPIPEV.seconds(work, batches) == pytest.approx(last_end(work, batches), rel=0.1)


def test_a_micro_batch_passes_the_stages_of_the_v_one_after_the_other() -> None:
    """Of 3 devices down by stages 0, 1, 2 and back by 3, 4, 5; gradients the other way."""
    devices, batches = 3, 7
    played = DUALPIPEV.play([Work(1.0, 2.0, 1.0, 0.5)] * (2 * devices), batches)
    ends = {(each.stage, *each.turn.known): each.end for each in played}
    starts = {(each.stage, *each.turn.known): each.start for each in played}
    way = [(0, 0), (1, 0), (2, 0), (2, 1), (1, 1), (0, 1)]  # devices and their chunks
    for batch in range(batches):
        ahead = [(device, "forward", batch, chunk) for device, chunk in way]
        back = [(device, "backward", batch, chunk) for device, chunk in reversed(way)]
        for before, after in itertools.pairwise((*ahead, *back)):
            assert starts[after] >= ends[before] - 1e-9
    assert sum(kind != "weights" for _, kind, _, _ in ends) == 2 * 2 * devices * batches
    apart = [each for each in played if each.turn.apart]
    assert len(apart) == sum(kind == "weights" for _, kind, _, _ in ends)


@pytest.mark.parametrize(("devices", "batches"), [(2, 4), (3, 8), (4, 9)])
def test_what_a_device_keeps_is_that_of_its_turns(devices: int, batches: int) -> None:
    """2 p - k of stage k and k + 1 of the other: PP + 1 of half a device's layers, as published."""
    stages = 2 * devices
    for device in range(devices):
        now, most, pairs = [0, 0], [0, 0], 0
        for turn in DUALPIPEV.turns(device, stages, batches):
            now[turn.chunk] += {"forward": 1, "backward": -1, "weights": 0}[turn.kind]
            pairs += turn.beside
            most = max(most, list(now), key=sum)
        held = DUALPIPEV.held(device, stages)
        assert held == (device, stages - 1 - device)
        assert most == [DUALPIPEV.in_flight(stage, stages, batches) for stage in held]
        assert sum(most) == stages + 1
        assert pairs / 2 == DUALPIPEV.pairs(device, stages, batches)


@pytest.mark.parametrize(
    ("devices", "batches", "said"),
    [
        (1, 4, "dualpipev needs several stages, got pp 1"),
        (4, 7, "dualpipev needs 8 micro-batches or more with pp 4, got 7"),
    ],
)
def test_what_it_does_not_take_is_said(devices: int, batches: int, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        DUALPIPEV.check(devices, batches)


def net(layers: int = 8) -> paleo.NetSpec:
    return transformer(layers=layers, hidden=256, heads=8, ffn=1024, vocab=4096, seq_len=128)


def meshed(schedule: str, devices: int = 2, **others: Any) -> Meshed:
    usual: Any = {"cluster": "dgx_a100", "dtype": "bf16", "loss": "none", "pp": 2, "micro_batch": 1}
    found = scenario(net(), **usual | others | {"schedule": schedule})
    plan = found.plan
    return Meshed(found.net, plan, Mesh.of(devices, plan.tp, plan.cp, plan.ep, plan.pp, plan.order))


def test_a_device_has_the_first_and_the_last_stage_once() -> None:
    """Two devices have stages 0 and 3, and 1 and 2, of the four of a pipeline of four devices."""
    one_by_one = meshed("gpipe", 4, pp=4, optimizer="adam")
    single = one_by_one.memory(1, 2)  # with all gradients at the peak
    found = meshed("dualpipev", optimizer="adam").memory(1, 4)
    for device in range(2):
        held = [single[device], single[3 - device]]
        for name in ("weights", "gradients", "optimizer_state"):
            assert getattr(found[device], name) == sum(getattr(one, name) for one in held)
        near, far = (one_by_one.memory(1, 1)[stage].kept for stage in (device, 3 - device))
        assert found[device].kept == (4 - device) * near + (device + 1) * far


def test_each_micro_batch_passes_both_stages_of_a_device() -> None:
    """Seconds and parameters of a device are sums; nothing is sent where the V turns."""
    four = meshed("gpipe", 4, pp=4)
    found = meshed("dualpipev")
    _, stages = four.stages(1)
    for device, own in enumerate(found.devices(1)):
        both = [stages[device], stages[3 - device]]
        assert own.num_params == sum(one.num_params for one in both)
        assert own.forward == pytest.approx(sum(float(one.forward) for one in both))
        assert own.held == 1
    # Of three boundaries the middle one is within the second device: half of two messages each.
    first, second = (float(own.passed) for own in found.devices(1))
    assert first == second > 0
    assert float(stages[1].passed) == pytest.approx(2 * float(stages[0].passed))
    assert first == pytest.approx(2 * float(stages[0].passed))


def test_shares_of_the_data_alone_exchange_gradients() -> None:
    """There is one copy of a stage: of 2 shares of the data, 2 devices sum what each has."""
    assert meshed("dualpipev").step(4).exchanges["auto"].seconds == 0
    found = meshed("dualpipev", 4, overlap=False)
    params = max(own.num_params for own in found.devices(1))
    pair = found.plan.topology.group(2)
    seconds = float(found.plan.collective("auto").seconds_on(pair, 2 * params))
    assert float(found.step(8).exchanges["auto"].seconds) == pytest.approx(seconds)


def test_a_step_and_its_timeline_take_as_long() -> None:
    plan: Any = {"cluster": "dgx_a100", "workers": 4, "pp": 4, "dtype": "bf16"}
    plan |= {"batch_size": 8, "micro_batch": 1, "schedule": "dualpipev"}
    step = paleo.simulate(net(), **plan).runs[0].rows[0]
    drawn = paleo.timeline(net(), **plan)
    assert drawn.seconds == pytest.approx(step.total(step.best_scheme))
    for device in range(4):
        own = [event for event in drawn.events if event.worker == device and event.lane == 0]
        passes = [event for event in own if event.name.startswith(("forward", "backward"))]
        assert len(passes) == 2 * 2 * 8


def test_too_few_blocks_are_a_line() -> None:
    """4 devices take 8 stages."""
    plan: Any = {"cluster": "dgx_a100", "workers": 4, "pp": 4, "dtype": "bf16"}
    with pytest.raises(PaleoError, match="has 6 blocks, too few for 8 stages"):
        paleo.simulate(net(6), batch_size=8, micro_batch=1, schedule="dualpipev", **plan)
