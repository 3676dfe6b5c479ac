"""`paleo simulate`: the time of training steps of nets on a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import click
from click.core import ParameterSource

from paleo.cli.options import (
    NET,
    Names,
    Output,
    device_option,
    import_options,
    is_verbose,
    network_option,
    output_options,
    verbose,
)
from paleo.collectives import COLLECTIVES, Collective
from paleo.costs import COST_MODELS, DEFAULT_COST_MODEL, CostModel, find_cost_model
from paleo.estimate import link_bandwidth
from paleo.hardware import find_device, find_network
from paleo.load import net_source
from paleo.parallelism import SCALINGS
from paleo.report import Column, Table
from paleo.rows import DataRow, Run
from paleo.simulate import DEFAULT_WORKERS, PARALLELISMS, simulate


def _described(things: Iterable[CostModel | Collective]) -> str:
    return "; ".join(f"{thing.name} ({thing.summary})" for thing in things) + "."


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
    help=_described(COST_MODELS.values()),
)
@click.option(
    "--scheme",
    type=Names(COLLECTIVES),
    default=",".join(COLLECTIVES),
    show_default="all",
    metavar="NAME,...",
    help="Communication schemes to compare. " + _described(COLLECTIVES.values()),
)
@import_options
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
        _say_what_is_used(nets, device_name, network_name, settings["cost_model"])
    _say_what_has_no_effect(settings["parallel"])
    output.write([_table(run) for run in result.runs], result.to_dict)


def _say_what_is_used(
    nets: tuple[str, ...], device_name: str, network_name: str, cost_model: str
) -> None:
    for net in nets:
        verbose(f"net {net}: {net_source(net)}")
    device, network = find_device(device_name), find_network(network_name)
    model = find_cost_model(cost_model)
    whose = "the 2017 model's" if model.uses_2017_figures else "the data sheet's"
    for name, value, unit in model.rates(device):
        verbose(f"{device.name}: {name} {value:g} {unit}, {whose}")
    bandwidth = link_bandwidth(network, model)
    verbose(f"{network.name}: bandwidth {bandwidth:g} bytes/s, {whose}")


#: The options that one kind of parallelism alone looks at.
_ONLY_FOR = {
    "num_workers": "data",
    "scaling": "data",
    "scheme": "data",
    "hybrid_workers": "hybrid",
}


def _say_what_has_no_effect(parallel: str) -> None:
    context = click.get_current_context()
    for option, kind in _ONLY_FOR.items():
        given = context.get_parameter_source(option) is not ParameterSource.DEFAULT
        if given and kind != parallel:
            click.echo(
                f"paleo: note: --{option} is for --parallel={kind}, it has no effect here", err=True
            )


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
    settings = run.to_dict()
    dicts = settings.pop("rows")
    title = f"{run.net} on {run.device}, {run.network}, {run.parallel}-parallel"
    title += f", {run.scaling} scaling" if run.scaling else ""
    title += f", batch {run.batch_size}, {run.cost_model}"
    title += f", ppp_comp {run.ppp_comp:g}, ppp_comm {run.ppp_comm:g}"
    title += ", pipelined" if run.use_pipeline else ""
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
    return Table(
        title,
        columns,
        rows,
        total,
        footnotes=footnotes,
        notes=run.notes,
        marked=frozenset(marked),
    )
