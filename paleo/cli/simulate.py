"""`paleo simulate`: the time of training steps of nets on a cluster."""

from __future__ import annotations

import re
from typing import Any

import click

from paleo.cli.options import (
    NET,
    Names,
    Output,
    device_option,
    is_verbose,
    network_option,
    output_options,
    verbose,
)
from paleo.collectives import COLLECTIVES
from paleo.costs import COST_MODELS, DEFAULT_COST_MODEL
from paleo.hardware import find_device, find_network
from paleo.load import net_path
from paleo.parallelism import SCALINGS
from paleo.report import Column, Table
from paleo.simulate import DEFAULT_WORKERS, PARALLELISMS, DataRow, Run, simulate


def _workers(entries: list[str]) -> list[Any]:
    """Return the worker counts of an option; what is no whole number is the API's to refuse."""
    counts: list[Any] = []
    for entry in entries:
        if re.fullmatch(r"-?[0-9]{1,40}", entry):
            counts.append(int(entry))
        elif re.fullmatch(r"-?[0-9]{1,20}\.[0-9]{1,20}", entry):
            counts.append(float(entry))
        else:
            counts.append(entry)
    return counts


@click.command("simulate", short_help="Time of training steps, by number of workers.")
@click.argument("nets", nargs=-1, required=True, type=NET, metavar="NET...")
@device_option
@network_option
@click.option(
    "--batch_size",
    type=int,
    default=128,
    show_default=True,
    help="Samples in a batch: each worker's in weak scaling, all workers' in strong scaling.",
)
@click.option(
    "--num_workers",
    type=Names(()),
    default=",".join(map(str, DEFAULT_WORKERS)),
    show_default=True,
    metavar="N,N,...",
    help="Numbers of data-parallel workers.",
)
@click.option(
    "--scaling",
    type=Names(SCALINGS),
    default="weak,strong",
    show_default=True,
    metavar="SCALING,...",
    help="weak: a batch for every worker; strong: one batch divided among them.",
)
@click.option(
    "--ppp_comp",
    type=float,
    default=1.0,
    show_default=True,
    help="Share of the device's peak that is reached, above 0, up to 1.",
)
@click.option(
    "--ppp_comm",
    type=float,
    default=1.0,
    show_default=True,
    help="Share of the network's bandwidth that is reached, above 0, up to 1.",
)
@click.option(
    "--parallel",
    type=click.Choice(PARALLELISMS),
    default="data",
    show_default=True,
    help="data: a copy of the net on each worker; model: a split net's slices on a "
    "device each; hybrid: unsplit layers data-parallel, split ones model-parallel.",
)
@click.option(
    "--hybrid_workers",
    type=int,
    default=1,
    show_default=True,
    help="Number of workers, with --parallel=hybrid.",
)
@click.option(
    "--use_pipeline", is_flag=True, help="Let a layer's computation and memory traffic overlap."
)
@click.option(
    "--use_only_gemm",
    is_flag=True,
    help="Price every convolution as a matrix multiplication (so far the only way).",
)
@click.option(
    "--cost_model",
    shell_complete=Names(COST_MODELS).shell_complete,
    default=DEFAULT_COST_MODEL,
    show_default=True,
    metavar="[" + "|".join(COST_MODELS) + "]",
    help="; ".join(f"{name}: {model.summary}" for name, model in COST_MODELS.items()) + ".",
)
@click.option(
    "--scheme",
    type=Names(COLLECTIVES),
    default=",".join(COLLECTIVES),
    show_default=True,
    metavar="NAME,...",
    help="Communication schemes to compare.",
)
@output_options
def command(
    nets: tuple[str, ...],
    device_name: str,
    network_name: str,
    num_workers: list[str],
    scaling: list[str],
    scheme: list[str],
    output: Output,
    **settings: Any,
) -> None:
    """Predict the training step of each NET on a number of workers.

    A step is forward, backward and update on each worker, then the exchange of gradients.
    The step, throughput, speedup (over one worker) and efficiency shown are those of the
    best scheme, marked with an asterisk: the quickest after which all workers have the
    sum, which butterfly mixing does not give in one step.

    \b
    Examples:
      paleo simulate alex_v2
      paleo simulate nin --device=K20X --network=infiniband --scaling=strong
      paleo simulate alex_v2_4gpu --parallel=model
    """  # noqa: D301 (click takes the control character, not the escape)
    result = simulate(
        nets,
        device=device_name,
        network=network_name,
        workers=_workers(num_workers),
        scaling=scaling,
        schemes=scheme,
        **settings,
    )
    if is_verbose():
        for net in nets:
            verbose(f"net {net}: {net_path(net)}")
        for found in (find_device(device_name), find_network(network_name)):
            for name, figure in found.figures.items():
                verbose(f"{found.name}: {name} {figure.value:g} ({figure.source})")
    output.write([_table(run) for run in result.runs], result.to_dict)


_SETTINGS = tuple(
    map(
        Column,
        (
            "net",
            "device",
            "network",
            "cost_model",
            "parallel",
            "scaling",
            "use_pipeline",
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
    )


def _two_lines(scheme: str) -> str:
    """Break the name of a scheme before its last word: it heads a narrow column."""
    return re.sub(r"(?<=[a-z])(?=(AllReduce|Mixing)$)", "\n", scheme)


def _table(run: Run) -> Table:
    settings = {name: value for name, value in run.to_dict().items() if name != "rows"}
    title = f"{run.net} on {run.device}, {run.network}, {run.parallel}-parallel"
    title += f", {run.scaling} scaling" if run.scaling else ""
    title += f", batch {run.batch_size}, {run.cost_model}"
    title += f", ppp_comp {run.ppp_comp:g}, ppp_comm {run.ppp_comm:g}"
    title += ", pipelined" if run.use_pipeline else ""
    rows: list[dict[str, Any]] = []
    marked = set()
    columns: tuple[Column, ...] = _MODEL_COLUMNS if run.parallel == "model" else _HYBRID_COLUMNS
    for row in run.rows:
        values = settings | row.to_dict()
        if isinstance(row, DataRow):
            best = row.best_scheme
            marked.add((len(rows), f"{best}_s"))
            values |= {f"{name}_s": seconds for name, seconds in row.communication.items()}
            for name in ("step_s", "throughput_per_s", "speedup", "efficiency"):
                values[name] = values[name][best]
            columns = _data_columns(list(row.communication))
        rows.append(values)
    footnote = "* the best scheme; step, samples/s, speedup and efficiency are with it"
    total = None
    if run.parallel == "hybrid":
        total = {"part": "step", **{key: sum(row[key] for row in rows) for key in _HYBRID_SUMS}}
    return Table(
        title,
        columns,
        rows,
        total,
        footnotes=[footnote] if marked else (),
        notes=run.notes,
        marked=frozenset(marked),
    )
