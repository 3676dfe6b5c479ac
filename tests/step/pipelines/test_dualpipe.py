"""DualPipe: what it takes, keeps and hides, held to its turns, and to the published table.

Letters: p stages, m micro-batches, f and b seconds of both passes, w of b those of parameters'
gradients, c of messages in both passes.
"""

from __future__ import annotations

import itertools
from collections import Counter
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

DUALPIPE = PIPELINES["dualpipe"]


def last_end(stages: list[Work], batches: int) -> float:
    return max(played.end for played in DUALPIPE.play(stages, batches))


@pytest.mark.parametrize("stages", [2, 4, 8, 16])
def test_equal_stages_wait_as_was_published(stages: int) -> None:
    """(p / 2 - 1) (f&b + b - 3 w) with f = w = b / 2 (arXiv:2412.19437, table 2)."""
    batches = 3 * stages
    together = 3.0
    idle = (stages / 2 - 1) * (together + 2.0 - 3 * 1.0)
    work = [Work(1.0, 2.0, 1.0)] * stages
    assert DUALPIPE.seconds(work, batches) == pytest.approx(batches * together + idle)


@settings(max_examples=40)
@given(
    half=st.integers(1, 5),
    more=st.integers(0, 6),
    backward=st.floats(1.2, 3.0),
    weights=st.floats(0.2, 0.7),
    messages=st.floats(0.0, 0.6),
)
def test_equal_stages_take_what_their_turns_take(
    half: int, more: int, backward: float, weights: float, messages: float
) -> None:
    """Passes of any length, and messages of up to three fifths of them."""
    batches = 4 * half + 2 * more
    work = [Work(1.0, backward, weights * backward, messages * (1.0 + backward))] * (2 * half)
    if work[0].together < max(1.0, backward):
        return  # where both at once take less than one alone, devices wait for others
    assert DUALPIPE.seconds(work, batches) == pytest.approx(last_end(work, batches))


works = st.tuples(st.floats(0.8, 1.2), st.floats(1.6, 2.4), st.floats(0.0, 0.3)).map(
    lambda three: Work(three[0], three[1], three[1] / 2, three[2] * (three[0] + three[1]))
)


@settings(max_examples=30)
@given(half=st.integers(1, 4), more=st.integers(0, 8), data=st.data())
def test_stages_that_differ_are_near_what_their_turns_take(
    half: int, more: int, data: st.DataObject
) -> None:
    """Where stages differ by up to 40 %: within 10 %."""
    work = data.draw(st.lists(works, min_size=2 * half, max_size=2 * half))
    batches = 4 * half + 2 * more
    assert DUALPIPE.seconds(work, batches) == pytest.approx(last_end(work, batches), rel=0.1)


def test_every_turn_comes_once_and_after_what_it_waits_for() -> None:
    """Down from the first device, micro-batches 0 to 7, and up from the last, 8 to 15."""
    stages, batches = 4, 16
    played = DUALPIPE.play([Work(1.0, 2.0, 1.0, 0.5)] * stages, batches)
    counts = Counter((each.stage, *each.turn.known) for each in played)
    for device, batch in itertools.product(range(stages), range(batches)):
        chunk = int(batch >= 8)
        assert counts[device, "forward", batch, chunk] == 1
        assert counts[device, "backward", batch, chunk] == 1
        apart = [turn.turn for turn in played if turn.turn.apart and turn.stage == device]
        weights = counts[device, "weights", batch, chunk]
        assert weights == sum(turn.batch == batch for turn in apart)
    ends = {(each.stage, *each.turn.known): each.end for each in played}
    for each in played:
        kind, batch, chunk = each.turn.known
        down = chunk == 0
        if kind == "weights":
            assert each.start >= ends[each.stage, "backward", batch, chunk]
            continue
        before = each.stage - 1 if down is (kind == "forward") else each.stage + 1
        if 0 <= before < stages:
            assert each.start >= ends[before, kind, batch, chunk] - 1e-9
    for device in range(stages):
        own = sorted((each for each in played if each.stage == device), key=lambda turn: turn.start)
        assert all(a.end <= b.start + 1e-9 for a, b in itertools.pairwise(own))


@pytest.mark.parametrize(("stages", "batches"), [(2, 4), (4, 8), (8, 20)])
def test_what_a_device_keeps_is_that_of_its_turns(stages: int, batches: int) -> None:
    """p - k of each of its two stages k: p + 1 in all, as published."""
    for device in range(stages):
        held = DUALPIPE.held(device, stages)
        now, most = [0, 0], [0, 0]
        pairs = 0
        for turn in DUALPIPE.turns(device, stages, batches):
            now[turn.chunk] += {"forward": 1, "backward": -1, "weights": 0}[turn.kind]
            pairs += turn.beside
            most = max(most, list(now), key=sum)
        assert most == [DUALPIPE.in_flight(stage, stages, batches) for stage in held]
        assert sum(most) == stages + 1
        assert pairs == DUALPIPE.pairs(device, stages, batches)


def test_messages_and_computation_hide_each_other() -> None:
    """3 s, of which messages take 1: 2 s of two micro-batches at once; of 2: 2 s as well."""
    assert Work(1.0, 2.0, 1.0, 1.0).together == 2.0
    assert Work(1.0, 2.0, 1.0, 2.0).together == 2.0
    assert Work(1.0, 2.0, 1.0).together == 3.0


@pytest.mark.parametrize(
    ("stages", "batches", "said"),
    [
        (3, 12, "dualpipe needs an even number of stages, got pp 3"),
        (1, 4, "dualpipe needs an even number of stages, got pp 1"),
        (4, 6, "an even number of micro-batches, 8 or more with pp 4, got 6"),
        (2, 5, "an even number of micro-batches, 4 or more with pp 2, got 5"),
    ],
)
def test_what_it_does_not_take_is_said(stages: int, batches: int, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        DUALPIPE.check(stages, batches)


def net(**sizes: int) -> paleo.NetSpec:
    usual: Any = {
        "layers": 8,
        "hidden": 256,
        "heads": 8,
        "ffn": 1024,
        "vocab": 4096,
        "seq_len": 128,
    }
    return transformer(**usual | sizes)


def meshed(schedule: str, devices: int = 4, **others: Any) -> Meshed:
    usual: Any = {"cluster": "dgx_a100", "dtype": "bf16", "loss": "none", "pp": 4}
    found = scenario(net(), **usual | others | {"schedule": schedule})
    plan = found.plan
    return Meshed(found.net, plan, Mesh.of(devices, plan.tp, plan.cp, plan.ep, plan.pp, plan.order))


def test_a_device_has_two_stages_and_their_micro_batches() -> None:
    """Weights, gradients and state of stages k and p - 1 - k; p - k micro-batches of each."""
    plan: Any = {"micro_batch": 1, "optimizer": "adam"}
    one_by_one = meshed("gpipe", **plan)
    single = one_by_one.memory(1, 2)  # with all gradients at the peak
    both = meshed("dualpipe", **plan).memory(1, 8)
    for device in range(4):
        held = [single[device], single[3 - device]]
        for name in ("weights", "gradients", "optimizer_state"):
            assert getattr(both[device], name) == sum(getattr(one, name) for one in held)
        near, far = (one_by_one.memory(1, 1)[stage].kept for stage in (device, 3 - device))
        assert both[device].kept == (4 - device) * near + (device + 1) * far


def test_what_messages_of_stages_hide_is_taken_off_the_step() -> None:
    """Of the busiest device messages between stages do not show in what is computed at once."""
    found = meshed("dualpipe", micro_batch=1, overlap=True)
    alone = meshed("dualpipe", micro_batch=1, overlap=False)
    _, stages = found.stages(1)
    shown, unhidden = (
        {piece.name: float(piece.seconds) for piece in one.step(16).under("auto")}
        for one in (found, alone)
    )
    devices = [[stages[i], stages[3 - i]] for i in (0, 1)]
    busy, whole = [], []
    for near, pair in enumerate(devices):
        passed = sum(float(stage.passed) for stage in pair)  # of both passes of the mean
        pairs = 16 - (6 - near - 1) - (near == 1)
        seconds = sum(float(stage.work.seconds) for stage in pair) / 2
        busy.append((16 * seconds - pairs * passed, (16 - pairs) * passed))
        # Nothing is hidden without overlap.
        whole.append((16 * seconds, 16 * passed))
    assert shown["pipeline_parallel"] == pytest.approx(max(busy)[1])
    assert unhidden["pipeline_parallel"] == pytest.approx(max(whole)[1])


def test_both_copies_of_a_stage_exchange_gradients() -> None:
    """Alone in its stage, a device sums its two stages' gradients with the mirrored device."""
    found = meshed("dualpipe", overlap=False, micro_batch=1)
    _, stages = found.stages(1)
    steps = {piece.name: float(piece.seconds) for piece in found.step(8).under("auto")}
    pair = found.plan.topology.group(2)
    sent = [
        float(found.plan.collective("auto").seconds_on(pair, 2 * params))
        for params in (stages[i].num_params + stages[3 - i].num_params for i in (0, 1))
    ]
    assert steps["data_parallel"] == pytest.approx(max(sent))


def test_copies_divide_state_among_all_with_zero() -> None:
    """2 shares of the data x 2 copies: a quarter of the state of both stages."""
    whole, shared = (
        meshed("dualpipe", 8, micro_batch=1, optimizer="adam", zero=zero).memory(1, 8)[0]
        for zero in (0, 1)
    )
    assert shared.optimizer_state == pytest.approx(whole.optimizer_state / 4, abs=4)
    assert shared.weights == whole.weights


def test_too_few_micro_batches_are_a_line() -> None:
    plan: dict[str, object] = {"cluster": "dgx_a100", "workers": 4, "pp": 4, "dtype": "bf16"}
    said = "schedule: dualpipe needs an even number of micro-batches, 8 or more with pp 4, got 4"
    with pytest.raises(PaleoError, match=said):
        paleo.simulate(net(), batch_size=4, micro_batch=1, schedule="dualpipe", **plan)  # type: ignore[arg-type]


def test_a_timeline_shows_both_of_two_passes_at_once() -> None:
    drawn = paleo.timeline(
        net(),
        cluster="dgx_a100",
        workers=4,
        pp=4,
        dtype="bf16",
        batch_size=8,
        micro_batch=1,
        schedule="dualpipe",
    )
    for stage in range(4):
        own = [event for event in drawn.events if event.worker == stage and event.lane == 0]
        assert sum(event.seconds for event in own) == pytest.approx(drawn.seconds)
        names = {event.name for event in own}
        assert {f"{kind} {i}" for kind in ("forward", "backward") for i in range(8)} <= names
