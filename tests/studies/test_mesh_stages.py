"""Stages of a step on a mesh: what each spends it on, and when it does what."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import paleo
from paleo.net.generators import transformer
from paleo.step.meshed import MeshStep
from paleo.step.pieces import Step
from paleo.step.results import Run
from paleo.studies.mesh_stages import Played, played_of, stages_of


def predicted(workers: int = 8, **settings: Any) -> tuple[Run, Step]:
    usual: Any = {"hidden": 256, "heads": 8, "ffn": 1024, "vocab": 4096, "seq_len": 128}
    run = paleo.simulate(
        transformer(layers=8, **usual),
        cluster="dgx_a100", dtype="bf16", workers=workers, **{"pp": 4, **settings},
    ).runs[0]  # fmt: skip
    return run, run.rows[0]


def played(**settings: Any) -> Played:
    found = played_of(*predicted(**settings))
    assert found
    return found


def test_parts_of_a_stage_add_up_to_the_step_and_those_of_the_slowest_are_the_steps() -> None:
    run, row = predicted(tp=2, global_batch=8, recompute="full")
    stages = stages_of(run, row)
    whole = row.total(row.best_scheme)
    assert [sum(stage.parts.values()) for stage in stages] == pytest.approx([whole] * 4)
    assert [stage.blocks for stage in stages] == [2] * 4
    # The last one has the head beside its two blocks: it is the slowest, and waits for the bubble
    # and no more than others take longer for their exchange and update.
    slowest, pieces = stages[-1].parts, {piece.name: piece.seconds for piece in row.pieces}
    for name in ("forward", "recomputation", "backward", "tensor_parallel", "pipeline_parallel"):
        assert slowest[name] == pytest.approx(pieces[name])
    assert slowest["waiting"] >= pieces["bubble"] * (1 - 1e-9)
    assert min(stages, key=lambda stage: stage.parts["waiting"]) is stages[-1]
    fullest = max(stage.memory.total for stage in stages)
    assert row.to_dict()["memory_bytes"] == fullest


def test_a_stage_without_others_waits_for_nobody() -> None:
    run, row = predicted(pp=1, tp=2, batch_size=4)
    (stage,) = stages_of(run, row)
    assert "waiting" not in stage.parts
    assert sum(stage.parts.values()) == pytest.approx(row.total(row.best_scheme))


def test_values_of_a_stage_have_units_in_their_keys() -> None:
    run, row = predicted(global_batch=8)
    stage = stages_of(run, row)[1]
    values = stage.to_dict()
    assert (values["stage"], values["blocks"]) == (1, 2)
    assert values["step_s"] == pytest.approx(row.total(row.best_scheme))
    assert values["total_bytes"] == stage.memory.total
    assert values["parts"]["forward"] == stage.parts["forward"]


@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": "1f1b"}, {"schedule": "gpipe"}, {"schedule": "zero_bubble"},
        {"schedule": "1f1b", "interleave": 2}, {"schedule": "dualpipe"},
        {"schedule": "dualpipev"},
    ],
)  # fmt: skip
def test_turns_end_with_the_step_and_no_two_of_a_stage_overlap(settings: Any) -> None:
    run, row = predicted(global_batch=16, **settings)
    found = played_of(run, row)
    assert found
    assert (found.stages, found.batches, found.drawn) == (4, 8, 8)  # 16 samples for two shares
    assert found.end == pytest.approx(row.total(row.best_scheme))
    of_batches = [turn for turn in found.turns if turn.batch is not None]
    passes = [turn for turn in of_batches if turn.kind != "weights"]
    chunks = 2 if settings["schedule"] == "dualpipev" else settings.get("interleave", 1)
    assert len(passes) == 4 * 8 * 2 * chunks
    if settings["schedule"] == "zero_bubble":
        assert len(of_batches) == 4 * 8 * 3
    for stage in range(4):
        own = sorted(turn for turn in found.turns if turn.stage == stage)
        spans = sorted((turn.start, turn.end) for turn in own)
        assert all(a[1] <= b[0] + 1e-12 for a, b in itertools.pairwise(spans))
    # A micro-batch comes forward to a stage once it has left the one before.
    if "dualpipe" in settings["schedule"]:  # where they come from both ends, or from behind
        return
    ends = {(t.stage, t.kind, t.batch, t.chunk): t for t in of_batches}
    for (stage, kind, batch, chunk), turn in ends.items():
        if kind == "forward" and stage:
            assert turn.start >= ends[stage - 1, kind, batch, chunk].end - 1e-12


def test_of_many_micro_batches_some_are_drawn_and_the_others_counted() -> None:
    run, row = predicted(workers=4, global_batch=400)
    found = played_of(run, row)
    assert found
    # A stage has 800 turns; 100 // 2 // (2 turns x 4 stages) is 6, times 4 stages.
    assert (found.batches, found.drawn) == (400, 24)
    assert found.end + found.seconds_more == pytest.approx(row.total(row.best_scheme))
    # Of equal micro-batches (m + p - 1) times a turn: 376 more of 403, but for the update.
    update = row["update"] + row.exchanges[row.best_scheme].seconds
    share = found.seconds_more / (row.total(row.best_scheme) - update)
    assert share == pytest.approx(376 / 403, rel=0.02)


def test_devices_that_wait_for_data_say_so() -> None:
    run, row = predicted(global_batch=8, loader_rate="10 samples/s")
    stages = stages_of(run, row)
    whole = row.total(row.best_scheme)
    assert whole == pytest.approx(0.8)  # 8 samples at 10 a second
    busy = predicted(global_batch=8)[1]
    for stage in stages:
        assert stage.parts["data_loader"] == pytest.approx(0.8 - busy.total(busy.best_scheme))
        assert sum(stage.parts.values()) == pytest.approx(whole)
    found = played_of(run, row)
    assert found
    assert found.end == pytest.approx(busy.total(busy.best_scheme))


def test_so_many_turns_that_nobody_sees_them_are_none() -> None:
    usual: Any = {"hidden": 64, "heads": 2, "ffn": 64, "vocab": 64, "seq_len": 16}
    run = paleo.simulate(
        transformer(layers=80, **usual), device="A100", pp=80, workers=80, global_batch=200
    ).runs[0]
    assert played_of(run, run.rows[0]) is None  # 80 stages x 160 micro-batches x 2 turns


def test_a_step_that_knows_no_mesh_is_found_again() -> None:
    run, row = predicted(global_batch=8)
    assert isinstance(row, MeshStep)
    bare = Step(**{name: getattr(row, name) for name in Step.__dataclass_fields__})
    assert played_of(run, bare) == played_of(run, row)
