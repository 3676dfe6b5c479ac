"""Pipelines whose micro-batches go one way: what they take and keep, and when stages do what.

Letters: p stages, m micro-batches, v chunks of a stage, f and b seconds of both passes.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paleo.step.pipelines import PIPELINES, Work

#: Those that take any number of stages and micro-batches; the others have files of their own.
NAMES = [name for name in PIPELINES if not name.startswith("dualpipe")]


@pytest.mark.parametrize("name", NAMES)
def test_one_stage_never_waits(name: str) -> None:
    assert PIPELINES[name].seconds([Work(1, 2, 1)], 5) == 15


@pytest.mark.parametrize(
    ("name", "chunks", "idle"),
    [
        ("gpipe", 1, 3 * 3),  # (p - 1) (f + b), arXiv:1811.06965
        ("1f1b", 1, 3 * 3),  # the same, arXiv:2104.04473, section 2.2.1
        ("1f1b", 3, 3 * 3 / 3),  # divided by v, section 2.2.2
        ("zero_bubble", 1, 3 * (1 + 1 - 1)),  # (p - 1) (f + b - w), arXiv:2401.10241, table 2
    ],
)
def test_equal_stages_wait_as_was_published(name: str, chunks: int, idle: float) -> None:
    """Of 4 stages, forward passes of 1 s, backward passes of 2 s, half of it for parameters."""
    stages, batches = [Work(1.0, 2.0, 1.0)] * 4, 8
    assert PIPELINES[name].seconds(stages, batches, chunks) == pytest.approx(8 * 3 + idle)


works = st.lists(
    st.tuples(st.floats(0.8, 1.2), st.floats(1.6, 2.4)).map(lambda two: Work(*two, two[1] / 2)),
    min_size=1,
    max_size=6,
)


@given(stages=works, batches=st.integers(1, 20))
def test_gpipe_takes_what_its_turns_take(stages: list[Work], batches: int) -> None:
    """Flow shops of equal jobs: the formula is exact for stages of any length."""
    pipeline = PIPELINES["gpipe"]
    last = max(played.end for played in pipeline.play(stages, batches))
    assert pipeline.seconds(stages, batches) == pytest.approx(last)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("stages", "groups"), list(itertools.product((1, 2, 4, 8), (1, 2, 5))))
def test_equal_stages_take_what_their_turns_take(name: str, stages: int, groups: int) -> None:
    pipeline = PIPELINES[name]
    for chunks in (1, 2, 3) if pipeline.interleaves and stages > 1 else (1,):
        work = [Work(1.0, 2.0, 1.0)] * stages
        last = max(played.end for played in pipeline.play(work, stages * groups, chunks))
        assert pipeline.seconds(work, stages * groups, chunks) == pytest.approx(last)


@given(stages=works, groups=st.integers(1, 6), chunks=st.integers(1, 3))
def test_stages_that_differ_are_near_what_their_turns_take(
    stages: list[Work], groups: int, chunks: int
) -> None:
    """Where stages differ by up to 40 %: within 10 % of what is played, of chunks within 20 %."""
    chunks = chunks if len(stages) > 1 else 1
    pipeline, batches = PIPELINES["1f1b"], len(stages) * groups
    last = max(played.end for played in pipeline.play(stages, batches, chunks))
    assert pipeline.seconds(stages, batches, chunks) == pytest.approx(
        last, rel=0.1 * (1 + (chunks > 1))
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_turn_comes_once_and_after_what_it_waits_for(name: str) -> None:
    pipeline = PIPELINES[name]
    chunks = 2 if pipeline.interleaves else 1
    played = pipeline.play([Work(1.0, 2.0, 1.0)] * 4, 8, chunks)
    counts = Counter((each.stage, each.turn.kind) for each in played)
    assert set(counts.values()) == {8 * chunks}
    ends = {(each.stage, each.turn): each.end for each in played}
    for each in played:
        if each.turn.kind == "forward" and each.stage:
            assert each.start >= ends[each.stage - 1, each.turn]
        if each.turn.kind == "backward" and each.stage < 3:
            assert each.start >= ends[each.stage + 1, each.turn]
    for stage in range(4):
        own = sorted((each for each in played if each.stage == stage), key=lambda turn: turn.start)
        assert all(a.end <= b.start + 1e-9 for a, b in itertools.pairwise(own))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("batches", [1, 3, 8])
def test_activations_in_flight_are_those_of_the_turns(name: str, batches: int) -> None:
    """As many as have gone forward and not yet back, at the most."""
    pipeline, stages = PIPELINES[name], 4
    for stage in range(stages):
        now = most = 0
        for turn in pipeline.turns(stage, stages, batches):
            now += {"forward": 1, "backward": -1, "weights": 0}[turn.kind]
            most = max(most, now)
        assert pipeline.in_flight(stage, stages, batches) == most


def test_chunks_in_flight_are_those_of_the_turns() -> None:
    """Of v chunks each holds 1/v of a stage's activations."""
    pipeline, stages, chunks = PIPELINES["1f1b"], 4, 3
    for stage in range(stages):
        now = most = 0
        for turn in pipeline.turns(stage, stages, 8, chunks):
            now += 1 if turn.kind == "forward" else -1
            most = max(most, now)
        assert pipeline.in_flight(stage, stages, 8, chunks) == pytest.approx(most / chunks)
    # The first stage keeps 1 + (p - 1) / (p v) times those of p micro-batches (arXiv:2205.05198).
    assert pipeline.in_flight(0, stages, 8, chunks) == pytest.approx(4 * (1 + 3 / 12))


@given(st.sampled_from(NAMES), works, st.integers(1, 9), st.integers(1, 3))
def test_no_stages_take_less_than_the_least(
    name: str, stages: list[Work], batches: int, chunks: int
) -> None:
    pipeline = PIPELINES[name]
    chunks = chunks if pipeline.interleaves and len(stages) > 1 else 1
    ahead, back = (sum(getattr(work, of) for work in stages) for of in ("forward", "backward"))
    longest = max(work.seconds for work in stages)
    least = pipeline.least(ahead, back, longest, len(stages), batches, chunks)
    assert least <= pipeline.seconds(stages, batches, chunks) * (1 + 1e-9)
    mean = pipeline.least(ahead, back, (ahead + back) / len(stages), len(stages), batches, chunks)
    assert mean <= least * (1 + 1e-9)
