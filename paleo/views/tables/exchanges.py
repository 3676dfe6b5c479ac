"""The tables of `paleo simulate --explain`: what bounds each step, phases by tier, and buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paleo.cluster.collectives.phases import LATENCY
from paleo.step.results import Run
from paleo.studies.explain_exchange import COMPUTATION, ExplainedStep, explain_run
from paleo.views.answers.base import band_said, duration
from paleo.views.charts.numbers import counted
from paleo.views.charts.settings import run_setting
from paleo.views.table import Column, Table, in_unit, plain

#: Of more buckets than these, only so many at the start and the end are shown, and exposed ones.
_MANY, _AT_ENDS = 40, 8
#: By how much less seconds differ they are the same.
_LIKE = 1e-6
_STEPS = (
    *plain("net", "device", "network", "cluster", "cost_model", "dtype", "scaling", "batch_size"),
    Column("workers", "workers"),
    Column("scheme", "scheme"),
    Column("step_s", "step", "s", digits=3),
    Column("compute_s", "compute", "s", digits=3),
    Column("communication_s", "communi-\ncation", "s", digits=3),
    Column("hidden_s", "hidden", "s", digits=3),
    Column("exposed_s", "exposed", "s", digits=3),
    Column("bounded_by", "step\nbounded by", for_people=True),
    Column("exchange_bounded_by", "exchange\nbounded by", for_people=True),
    Column("algorithm", "algorithm"),
    *plain("bound", "exchange_bound"),
)
_STEPS_NOTE = (
    "A step is bounded by what most of it waits for: computation, or exposed communication, which "
    "nothing hides; an exchange by latency, or by the links of a tier."
)
_PHASES = (
    Column("phase", "phase"),
    Column("tier", "tier"),
    Column("latency", "latency", right=True),
    Column("sent", "sent by\na member", right=True),
    Column("bandwidth_bytes_per_s", "its links", "bytes/s", digits=3),
    Column("transfer", "bytes over\nlinks", right=True),
    Column("counts", "slowest"),
)
_BUCKETS = (
    Column("bucket", "bucket"),
    Column("size", "gradients", right=True),
    Column("filled", "there at", right=True),
    Column("start", "sent at", right=True),
    Column("end", "done at", right=True),
    Column("takes", "takes", right=True),
    Column("exposed", "exposed", right=True),
    Column("algorithm", "algorithm"),
    Column("bounded_by", "bounded by"),
)


def explained_tables(runs: Sequence[Run], *, for_people: bool = True) -> list[Table]:
    """Return what bounds the steps of each run.

    For people also the phases and buckets of the step on most workers follow, of each scheme.
    """
    tables = []
    for run in runs:
        explained = explain_run(run)
        tables.append(_steps_table(run, explained))
        most = max((each.workers for each in explained), default=0)
        for each in explained if for_people else ():
            if each.workers == most:
                tables += [_phases_table(each)] * bool(each.tiers) + [_buckets_table(each)]
    return tables


def bounded_by(bound: str) -> str:
    """Return what bounds a step or an exchange: a tier by its links."""
    return bound if bound in (COMPUTATION, LATENCY) else f"links of {bound}"


def _steps_table(run: Run, explained: Sequence[ExplainedStep]) -> Table:
    settings = run.settings()
    rows = [
        {
            **settings,
            **each.to_dict(),
            "bounded_by": bounded_by(each.bound),
            "exchange_bounded_by": bounded_by(each.exchange_bound),
            "algorithm": ", ".join(each.algorithms),
        }
        for each in explained
    ]
    alone = {each.scheme for each in explained} == {
        algorithm for each in explained for algorithm in each.algorithms
    }
    digits = run.plan.digits if run.band else 3
    columns = [
        replace(each, digits=digits) if each.key in ("step_s", "compute_s") else each
        for each in _STEPS
        if not (each.key == "algorithm" and alone)
    ]
    footnotes = [_STEPS_NOTE, band_said("computation", run.band)]
    workers = sorted({each.workers for each in explained})
    if len(workers) > 1:
        footnotes.append(
            f"Phases and buckets follow for {workers[-1]:,} workers: --num_workers={workers[0]} "
            f"shows those of {workers[0]:,}."
        )
    if not explained:
        footnotes = ["One worker alone exchanges nothing: there is nothing to explain."]
    return Table(f"{run.net} on {run_setting(run)}", columns, rows, footnotes=footnotes,
                 notes=run.notes)  # fmt: skip


def _of(each: ExplainedStep) -> str:
    return f"by {each.scheme} among {each.workers:,} workers"


def _phases_table(each: ExplainedStep) -> Table:
    rows = [
        {
            "phase": tier.phase,
            "tier": tier.tier,
            "latency": _time(tier.latency),
            "sent": in_unit(tier.sent, "bytes", 3),
            "bandwidth_bytes_per_s": tier.bandwidth,
            "transfer": _time(tier.transfer),
            "counts": "*" if tier.counted else "",
        }
        for tier in each.tiers
    ]
    notes = ["A phase takes all latencies, and the slowest (*) of the tiers over which bytes pass."]
    if abs(each.textbook - each.communication) > _LIKE * each.communication:
        notes.append(
            f"So it would take {duration(each.textbook, 3)}; with the algorithms and protocols of "
            f"a library it is {duration(each.communication, 3)}."
        )
    what = counted(len(each.buckets), "bucket")
    return Table(f"Exchange {_of(each)}, {what}: phases by tier", _PHASES, rows, footnotes=notes)


def _buckets_table(each: ExplainedStep) -> Table:
    rows: list[dict[str, Any]] = [
        {
            "bucket": number,
            "size": in_unit(bucket.num_bytes, "bytes", 3),
            **{key: _time(getattr(bucket, key)) for key in ("filled", "start", "end", "exposed")},
            "takes": _time(bucket.seconds),
            "algorithm": " ".join(
                filter(None, [str(bucket.choice.algorithm), str(bucket.choice.protocol)])
            ),
            "bounded_by": bounded_by(str(bucket.choice.bound_by)),
        }
        for number, bucket in enumerate(each.buckets, 1)
    ]
    shown = [row for row in rows if _is_shown(row, len(rows))]
    hidden = f"{duration(each.hidden, 3)} of {duration(each.communication, 3)} is hidden"
    of_exposed = {
        "computation that is slower beside exchanges": each.slowed,
        "copies into buckets and out of them": each.copies,
    }
    more = [
        f"{duration(seconds, 3)} of what is exposed are {what}"
        for what, seconds in of_exposed.items()
        if seconds > _LIKE * each.communication
    ]
    if left := len(rows) - len(shown):
        more.append(f"{left} buckets between, which are hidden, are left out (JSON has all)")
    end = duration(each.computed, 3)
    note = f"Times are from the start of the backward pass, which ends at {end}"
    is_one = len(each.algorithms) == 1
    title = f"Buckets {_of(each)}"
    if is_one and each.algorithms[0] != each.scheme:
        title += f", all by {each.algorithms[0]}"
    return Table(
        title,
        [column for column in _BUCKETS if not (column.key == "algorithm" and is_one)],
        shown,
        footnotes=[f"{note}: {hidden if each.hidden else 'nothing is hidden'}.", *more],
    )


def _is_shown(row: dict[str, Any], count: int) -> bool:
    is_at_end = row["bucket"] <= _AT_ENDS or row["bucket"] > count - _AT_ENDS
    return count <= _MANY or is_at_end or bool(row["exposed"])


def _time(seconds: float) -> str:
    return duration(seconds, 3) if seconds else ""
