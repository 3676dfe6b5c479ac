"""What every kind of parallelism must do, and what follows for one that somebody adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import paleo
from paleo.step.parallelism import PARALLELISMS, Asked, Parallelism, Prediction, data_parallel
from paleo.step.parallelism.base import COMPUTING, WORKERS
from paleo.step.pieces import TRANSFER, Field, Piece, Step, WholeStep
from paleo.step.plan import Plan
from paleo.step.timeline.drawing import Drawing, Schedule, Span
from paleo.studies.timeline import timeline
from paleo.views.charts.scaling import scaling_charts
from paleo.views.tables.simulation import simulation_table

NET = "alex_v2_2gpu"


@pytest.mark.parametrize("name", PARALLELISMS)
def test_a_kind_gives_rows_a_table_charts_and_a_timeline_that_agree(name: str) -> None:
    kind = PARALLELISMS[name]
    assert kind.name == name
    how: dict[str, Any] = {"parallel": name, "workers": 2, "hybrid_workers": 2}
    if kind.has_others:
        how["other_devices"] = "K80:1"
    (run,) = paleo.simulate(NET, scaling="weak", schemes="OneToAll", **how).runs
    for row in run.rows:
        keys = [field.key for field in row.fields]
        assert len(set(keys)) == len(keys)
        values = [key for key in row.to_dict() if not key.endswith(("_low", "_high"))]
        assert values == keys
        assert all(isinstance(piece.seconds, float) for piece in row.pieces)
    table = simulation_table(run)
    assert len({column.key for column in table.columns}) == len(table.columns)
    assert all(column.key in row for column in table.columns for row in table.rows)
    assert bool(table.total) == bool(kind.total_label)
    assert scaling_charts(run)
    drawn = timeline(NET, scheme="OneToAll", **how)
    rows = run.rows[:1] if kind.has_others else run.rows  # those of kinds are at the same time
    seconds = sum(row.total(row.scheme_of("OneToAll") if row.exchanges else None) for row in rows)
    assert drawn.seconds == pytest.approx(seconds)
    assert sum(part.seconds for part in drawn.parts) == pytest.approx(seconds)


class Overlapped(Parallelism):
    """Data parallelism that exchanges gradients by a tree beside the backward pass."""

    name = "overlapped"
    workers_setting = "hybrid_workers"

    def predict(self, asked: Asked) -> Prediction:
        (workers,) = asked.workers
        plain = data_parallel(asked.net, asked.plan, asked.batch_size, workers)
        sync = Piece("sync", TRANSFER, plain.communication["TreeAllReduce"], after=("forward",))
        forward, backward, update = plain.pieces
        step = Step(
            workers,
            plain.batch_size,
            asked.batch_size,
            (forward, backward, sync, update._replace(after=("backward", "sync"))),
            (
                WORKERS,
                *COMPUTING,
                Field("exposed_s", lambda step: step.exposed_communication(), "exposed", "s"),
            ),
        ).of_floats()
        alone = float(plain.compute)
        whole = WholeStep(workers, step.batch_size, step.total(), alone, asked.batch_size)
        return Prediction((step,), ("beside the backward pass",), whole)

    def schedule(
        self, net: paleo.NetSpec, plan: Plan, steps: Sequence[Step], scheme: str | None
    ) -> Schedule:
        (step,) = steps

        def draw(drawing: Drawing, start: float) -> None:
            for piece in step.under():
                drawing.add(0, [piece], beside=piece.category == TRANSFER)

        return Schedule(["all"], [Span([Piece("step", "forward", step.total())], draw)], {})


def test_a_kind_of_ones_own_is_simulated_shown_and_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(PARALLELISMS._things, "overlapped", Overlapped())
    how: dict[str, Any] = {
        "device": "K80",
        "network": "ethernet",
        "batch_size": 32,
        "cost_model": "paleo2017",
    }
    (run,) = paleo.simulate("nin", parallel="overlapped", hybrid_workers=4, **how).runs
    (plain,) = paleo.simulate("nin", workers=4, scaling="weak", **how).runs
    data, (row,) = plain.rows[0], run.rows
    exchange = data.communication["TreeAllReduce"]
    exposed = max(exchange - data["backward"], 0)
    assert run.step is not None
    assert run.step.seconds == pytest.approx(data.compute + exposed)
    assert row.to_dict()["exposed_s"] == pytest.approx(exposed)
    table = simulation_table(run)
    titles = [column.title for column in table.columns if column.title]
    assert titles == ["workers", "forward", "backward", "update", "exposed"]
    assert "beside the backward pass" in table.notes
    assert len(scaling_charts(run)) == 1
    drawn = timeline("nin", parallel="overlapped", hybrid_workers=4, **how)
    assert drawn.seconds == run.step.seconds
    assert [event.name for event in drawn.of(0, lane=1)] == ["sync"]
