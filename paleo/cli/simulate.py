"""`paleo simulate`: the time of training steps of nets on a cluster."""

from __future__ import annotations

import re
from typing import Any

import click

from paleo.cli.edits import NetEdits, edit_options
from paleo.cli.options import (
    NET,
    Names,
    Output,
    device_option,
    import_options,
    is_verbose,
    network_option,
    numbers,
    output_options,
)
from paleo.cli.plan import (
    CONVOLUTION_KEYS,
    SCHEMES_HELP,
    batch_size_option,
    convolution_options,
    cost_model_option,
    dtype_option,
    fuse_option,
    hybrid_workers_option,
    num_workers_option,
    ppp_comm_option,
    ppp_comp_option,
    say_what_has_no_effect,
    say_what_is_used,
    use_pipeline_option,
)
from paleo.collectives import COLLECTIVES
from paleo.costs import Time
from paleo.importers import ImportOptions
from paleo.parallelism import SCALINGS
from paleo.report import Column, Table
from paleo.rows import DataRow, Run
from paleo.scaling import LIMIT
from paleo.simulate import DEFAULT_WORKERS, PARALLELISMS, simulate
from paleo.units import scale_for


@click.command("simulate", short_help="Time of training steps, by number of workers.")
@click.argument("nets", nargs=-1, required=True, type=NET, metavar="NET...")
@device_option
@network_option
@batch_size_option
@num_workers_option(DEFAULT_WORKERS)
@click.option(
    "--scaling",
    type=Names(SCALINGS),
    default="weak,strong",
    show_default=True,
    metavar="SCALING,...",
    help="weak: a batch for every worker; strong: one batch divided among them.",
)
@ppp_comp_option
@ppp_comm_option
@click.option(
    "--parallel",
    type=click.Choice(PARALLELISMS),
    default="data",
    show_default=True,
    help="data: a copy of the net on each worker; model: a split net's slices on a "
    "device each; hybrid: unsplit layers data-parallel, split ones model-parallel.",
)
@hybrid_workers_option
@use_pipeline_option
@convolution_options
@cost_model_option
@dtype_option
@fuse_option
@click.option(
    "--scheme",
    type=Names(COLLECTIVES),
    default=",".join(COLLECTIVES),
    show_default="all",
    metavar="NAME,...",
    help="Communication schemes to compare. " + SCHEMES_HELP,
)
@edit_options
@import_options
@output_options
def command(
    nets: tuple[str, ...],
    device_name: str,
    network_name: str,
    num_workers: list[str],
    scaling: list[str],
    scheme: list[str],
    edits: NetEdits,
    importing: ImportOptions,
    output: Output,
    **settings: Any,
) -> None:
    """Predict the training step of each NET on a number of workers.

    A step is forward, backward and update on each worker, then the exchange of gradients.
    The step, throughput, speedup (over one worker) and efficiency shown are those of the
    best scheme, marked with an asterisk: the quickest after which all workers have the
    sum, which butterfly mixing does not give in one step.

    The knee of a scheme's curve is the number of workers, of all up to 65,536, with the largest
    speedup^2 / workers: more of them waste more than they gain.

    \b
    Examples:
      paleo simulate alex_v2
      paleo simulate nin --device=K20X --network=infiniband --scaling=strong
      paleo simulate alex_v2_4gpu --parallel=model
      paleo simulate vgg16 --conv_library=cudnn4 --workspace=256MiB
      paleo simulate squeezenet --vary=squeezenet.sr=0.125,0.5,1 --num_workers=1
    """  # noqa: D301 (click takes the control character, not the escape)
    result = simulate(
        edits.applied(nets, importing),
        device=device_name,
        network=network_name,
        workers=numbers(num_workers),
        scaling=scaling,
        schemes=scheme,
        importing=importing,
        **settings,
    )
    if is_verbose():
        say_what_is_used(nets, device_name, network_name, settings["cost_model"], settings["dtype"])
    say_what_has_no_effect(settings["parallel"], _ONLY_FOR)
    output.write([_table(run) for run in result.runs], result.to_dict)


#: The options that one kind of parallelism alone looks at.
_ONLY_FOR = {
    "num_workers": "data",
    "scaling": "data",
    "scheme": "data",
    "hybrid_workers": "hybrid",
}


_SETTINGS = tuple(
    map(
        Column,
        (
            "net",
            "device",
            "network",
            "cost_model",
            "dtype",
            "parallel",
            "scaling",
            "use_pipeline",
            "fuse",
            *CONVOLUTION_KEYS,
            "ppp_comp",
            "ppp_comm",
        ),
    )
)
_TIMES = (
    Column("forward_s", "forward", "s"),
    Column("backward_s", "backward", "s"),
    Column("update_s", "update", "s"),
)
_MODEL_COLUMNS = (
    *_SETTINGS,
    Column("batch_size"),
    Column("pass", "pass"),
    Column("lower_s", "lower bound", "s"),
    Column("upper_s", "upper bound", "s"),
)
_HYBRID_COLUMNS = (
    *_SETTINGS,
    Column("part", "part"),
    Column("workers", "workers"),
    Column("batch_size", "batch"),
    *_TIMES,
    Column("sync_s", "Tree\nAllReduce", "s"),
    Column("total_s", "total", "s"),
)
_HYBRID_SUMS = tuple(column.key for column in _HYBRID_COLUMNS if column.dimension)


def _data_columns(schemes: list[str]) -> tuple[Column, ...]:
    return (
        *_SETTINGS,
        Column("workers", "workers"),
        Column("batch_size", "batch"),
        Column("iterations"),
        *_TIMES,
        Column("compute_s", "compute", "s"),
        *(Column(f"{name}_s", _two_lines(name), "s") for name in schemes),
        Column("best_scheme"),
        Column("step_s", "step", "s"),
        Column("throughput_per_s", "samples\n/s"),
        Column("speedup", "speedup"),
        Column("efficiency", "efficiency", "percent"),
        *(Column(key) for of in ("forward", "backward", "update") for key in Time().to_dict(of)),
    )


def _two_lines(scheme: str) -> str:
    """Break the name of a scheme before its last word: it heads a narrow column."""
    return re.sub(r"(?<=[a-z])(?=(AllReduce|Mixing)$)", "\n", scheme)


def _table(run: Run) -> Table:
    settings = run.to_dict()
    dicts = settings.pop("rows")
    title = f"{run.net} on {run.device}, {run.network}, {run.parallel}-parallel"
    title += f", {run.scaling} scaling" if run.scaling else ""
    title += f", batch {run.batch_size}, {run.dtype}, {run.cost_model}"
    title += f", ppp_comp {run.ppp_comp:g}, ppp_comm {run.ppp_comm:g}"
    title += ", pipelined" if run.use_pipeline else ""
    title += ", fused" if run.fuse else ""
    title += f", {run.convolutions}" if str(run.convolutions) else ""
    rows: list[dict[str, Any]] = []
    marked = set()
    columns: tuple[Column, ...] = _MODEL_COLUMNS if run.parallel == "model" else _HYBRID_COLUMNS
    for row, own in zip(run.rows, dicts, strict=True):
        values = settings | own
        if isinstance(row, DataRow):
            best = row.best_scheme
            if row.workers > 1:  # a worker alone exchanges nothing
                marked.add((len(rows), f"{best}_s"))
            values |= {f"{name}_s": seconds for name, seconds in row.communication.items()}
            for name in ("step_s", "throughput_per_s", "speedup", "efficiency"):
                values[name] = values[name][best]
            columns = _data_columns(list(row.communication))
        rows.append(values)
    total, footnotes = None, []
    if marked:
        footnotes.append("* the best scheme; step, samples/s, speedup and efficiency are with it")
    if run.parallel == "model":
        sums = {key: sum(row[key] for row in rows) for key in ("lower_s", "upper_s")}
        total = {"pass": "both", **sums}
    elif run.step:
        total = {"part": "step", **{key: sum(row[key] for row in rows) for key in _HYBRID_SUMS}}
        footnotes.append(
            f"{run.step.throughput:,.0f} samples/s, speedup {run.step.speedup:.3f} over one "
            f"worker, efficiency {100 * run.step.efficiency:.1f} %"
        )
    if run.band:
        footnotes.append(f"computation {run.band.said}")
    footnotes += _worth(run)
    return Table(
        title,
        columns,
        rows,
        total,
        footnotes=footnotes,
        notes=run.notes,
        marked=frozenset(marked),
    )


def _worth(run: Run) -> list[str]:
    """Return how many workers are worth it, and the batch that one device holds."""
    lines = []
    if run.worth.knee:
        found = [f"{scheme} {count:,}" for scheme, count in run.worth.knee.items() if count]
        none = [scheme for scheme, count in run.worth.knee.items() if not count]
        parts = [", ".join(found)] if found else []
        parts += [f"no knee up to {LIMIT:,}: {', '.join(none)}"] if none else []
        lines.append(f"workers worth it (knee of the curve): {'; '.join(parts)}")
    if run.worth.largest_batch is not None and run.memory_capacity:
        scale = scale_for([[run.memory_capacity]], "bytes")
        size = f"{run.memory_capacity / scale.factor:g} {scale.unit}"
        plural = "s" * (run.worth.largest_batch != 1)
        lines.append(
            f"largest batch that fits {size} on one {run.device}: "
            f"{run.worth.largest_batch:,} sample{plural} in training (sgd)"
        )
    return lines
