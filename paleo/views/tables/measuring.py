"""The tables of what is predicted beside what is measured: layers of a net, and whole steps."""

from __future__ import annotations

from typing import Any

from paleo.costs import Time
from paleo.costs.convolutions import DEFAULT
from paleo.measure.profile import JOINED, FullPass, LayerPass, NetGraphs, Profile, Setting
from paleo.step.plan import RATED, SHARES
from paleo.views.answers.base import band_said
from paleo.views.charts.settings import joined
from paleo.views.headings import called, footnotes
from paleo.views.table import Column, Table, plain

#: What stands in the place of a time that an executor could not measure.
_NOT_RUN = "not run"
#: What net it is and what is predicted, the same in all rows: for programs.
_SETTING = plain(
    *("net", "file", "batch_size", "dtype", *RATED),
    *DEFAULT.to_dict(),
)


def profile_table(run: Profile) -> Table:
    """Return the layers of a net, pass by pass: predicted, and as executors measured them."""
    names = run.setting.executors
    common = _common(run.case, run.setting)
    repeats = run.case.spec.repeats if any(row.instances > 1 for row in run.rows) else {}
    rows = [
        common
        | row.to_dict()
        | called(row.layer, row.instances, repeats, "layer")
        | {"pass_shown": row.direction.replace("_", " ")}
        | {f"{name}_shown": _shown(row, name) for name in names}
        for row in run.rows
    ]
    total: dict[str, Any] = {"layer": "total", "predicted_s": run.predicted}
    said = footnotes(run.rows)
    for name in names:
        sums = run.sums(name)
        if sums.rows:
            total |= {f"{name}_shown": sums.measured, f"{name}_ratio": sums.ratio}
            said += [_how_measured(run.setting, name), *_covered(run, name)]
    what = run.passes[0].replace("_", " ") if len(run.passes) == 1 else ""
    return Table(
        _title(run.case, run.setting, what),
        _profile_columns(run),
        rows,
        total,
        footnotes=said,
        notes=run.notes,
    )


def _shown(row: LayerPass, executor: str) -> float | str | None:
    """Return the time that an executor took, or a mark where it could not run the layer."""
    measured = row.measured[executor]
    if measured.missing == JOINED:
        return "joined"
    return _NOT_RUN if measured.missing else row.seconds(executor)


def _covered(run: Profile, name: str) -> list[str]:
    """Return how much of the prediction the rows are of that an executor measured, if not all."""
    rest = run.predicted - run.sums(name).predicted
    if rest <= 1e-9 * run.predicted:  # what rounding leaves
        return []
    share = f"{100 * rest / run.predicted:.1f} % of the prediction is of others"
    return [f"{name}: the total's ratio is of the rows that it measured; {share}"]


def _profile_columns(run: Profile) -> list[Column]:
    names = run.setting.executors
    columns = [
        *_SETTING,
        Column("layer", "layer"),
        Column("type", "type", spare=1),
        Column("pass"),
        Column("pass_shown", "pass" * (len(run.passes) > 1), for_people=True),
        Column("predicted_s", "predicted", "s"),
        *plain(*Time().to_dict("predicted")),
    ]
    for name in names:
        columns += _measured_columns(name, "runs")
    columns += [
        Column("bound", "" if names else "bound"),
        Column("algorithm", "algorithm"),
    ]
    for name in names:
        named = any(row.measured[name].algorithm for row in run.rows)
        columns += [
            Column(f"{name}_algorithm", f"{name}'s\nalgorithm" * named),
            *(Column(f"{name}_{key}") for key in ("joined", "missing", "place", "hardware")),
        ]
    return [*columns, *(plain("num_warmup", "num_iter") if names else ())]


def fullpass_table(run: FullPass) -> Table:
    """Return the parts of a net's step, and the whole: predicted, and as executors measured it."""
    setting = run.setting
    names = setting.executors
    common = _common(run.case, setting)
    common |= {f"{name}_missing": run.missing.get(name) for name in names}
    rows = [
        common
        | part.to_dict(names)
        | {
            f"{name}_shown": _NOT_RUN if name in run.missing else part.seconds(name)
            for name in names
        }
        for part in run.parts
    ]
    footnotes = [
        _how_measured(setting, name, complete=not run.interrupted)
        for name in names
        if any(name in part.measured for part in run.parts)
    ]
    footnotes.append(band_said("predicted times", run.band))
    columns = [
        *_SETTING,
        Column("part", "part"),
        Column("predicted_s", "predicted", "s"),
        *plain("predicted_low_s", "predicted_high_s"),
    ]
    for name in names:
        columns += _measured_columns(name)
        columns += [Column(f"{name}_{key}") for key in ("runs", "missing", "place", "hardware")]
    columns += plain("num_warmup", "num_iter")
    return Table(_title(run.case, setting), columns, rows, footnotes=footnotes, notes=run.notes)


def _measured_columns(name: str, *others: str) -> list[Column]:
    """Return the columns of what an executor measured; `others` are for programs."""
    return [
        Column(f"{name}_s"),
        Column(f"{name}_shown", name, "s", for_people=True, right=True),
        *(Column(f"{name}_{key}") for key in others),
        Column(f"{name}_spread", "spread", "percent", digits=2),
        Column(f"{name}_ratio", f"{name} /\npredicted", digits=3),
    ]


def _common(case: NetGraphs, setting: Setting) -> dict[str, Any]:
    """Return what is the same in all rows of a net, with where each executor ran."""
    values = case.to_dict() | setting.to_dict()
    for name, processor in values.pop("executors").items():
        values |= {f"{name}_{key}": processor[key] for key in ("place", "hardware")}
    return values


def _title(case: NetGraphs, setting: Setting, *what: str) -> str:
    """Return the title of a net's table; `what` says what its rows are of."""
    plan = setting.plan
    parts = [case.spec.name, f"batch {case.graph.batch_size}", plan.dtype, *what]
    said = plan.said()
    priced = [plan.cost_model.name, said[SHARES[0]], said["convolutions"]]
    return joined([*parts, f"on {plan.device.name}", *priced])


def _how_measured(setting: Setting, executor: str, *, complete: bool = True) -> str:
    """Return how an executor measured, and on what; of an incomplete measurement, at most."""
    on = next(ran for ran in setting.processors if ran.executor == executor)
    runs = f"{'' if complete else 'up to '}{setting.num_iter} runs"
    after = f"after {setting.num_warmup} to warm up"
    return f"{executor}: medians of {runs} {after}, on {on.hardware} ({on.place})"
