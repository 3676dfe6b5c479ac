"""`paleo metrics`: what running and training nets takes, from operations to money."""

from __future__ import annotations

from collections import Counter
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
    number,
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
from paleo.datasets import DATASETS
from paleo.importers import ImportOptions
from paleo.memory import OPTIMIZERS
from paleo.metrics import PARALLELISMS, Metrics, metrics
from paleo.parallelism import SCALINGS
from paleo.report import Column, Table
from paleo.scaling import LIMIT

#: The options that one kind of parallelism alone looks at.
_ONLY_FOR = {
    "num_workers": "data",
    "scaling": "data",
    "scheme": "data",
    "hybrid_workers": "hybrid",
}


def _one_of(names: Any) -> dict[str, Any]:
    """Return what an option says and completes that takes one name."""
    return {
        "metavar": "[" + "|".join(names) + "]",
        "shell_complete": Names(names).shell_complete,
    }


@click.command("metrics", short_help="Time, energy, memory, cost of running and training nets.")
@click.argument("nets", nargs=-1, required=True, type=NET, metavar="NET...")
@device_option
@network_option
@batch_size_option
@num_workers_option((1,))
@click.option(
    "--scaling",
    default="strong",
    show_default=True,
    help="weak: a batch for every worker; strong: one batch divided among them.",
    **_one_of(SCALINGS),
)
@click.option(
    "--scheme",
    metavar="NAME",
    show_default="the best",
    shell_complete=Names(COLLECTIVES).shell_complete,
    help="Communication scheme. " + SCHEMES_HELP,
)
@click.option(
    "--parallel",
    type=click.Choice(PARALLELISMS),
    default="data",
    show_default=True,
    help="data: a copy of the net on each worker; hybrid: unsplit layers data-parallel, split "
    "ones model-parallel.",
)
@hybrid_workers_option
@ppp_comp_option
@ppp_comm_option
@use_pipeline_option
@convolution_options
@cost_model_option
@dtype_option
@fuse_option
@click.option("--epochs", type=float, help="How often training goes through the dataset.")
@click.option("--dataset", help="Dataset of the training.", **_one_of(DATASETS))
@click.option("--dataset_size", type=int, help="Samples in the dataset, where it is another.")
@click.option(
    "--weight_bits",
    type=int,
    help="Bits of a stored weight.  [default: those of a parameter's type]",
)
@click.option(
    "--sparsity",
    type=float,
    default=0.0,
    show_default=True,
    help="Share of the weights that are zero, and not stored.",
)
@click.option(
    "--index_bits",
    type=int,
    default=0,
    show_default=True,
    help="Bits that say where a stored weight stands.",
)
@click.option(
    "--optimizer",
    default="sgd",
    show_default=True,
    help="Rule of the update, for the memory that it takes.",
    **_one_of(OPTIMIZERS),
)
@click.option(
    "--price",
    help="Price of one device for an hour: dollars, or a text such as '0.90 EUR/h'.  [default: "
    "the newest of the device's file]",
)
@click.option(
    "--power", help="Power of one device, such as '180 W'.  [default: that of the device's file]"
)
@edit_options
@import_options
@output_options
def command(
    nets: tuple[str, ...],
    device_name: str,
    network_name: str,
    num_workers: list[str],
    epochs: float | None,
    price: str | None,
    edits: NetEdits,
    importing: ImportOptions,
    output: Output,
    **settings: Any,
) -> None:
    """Show what running and training each NET takes.

    Inference and memory are those of one device at the batch of one worker. A training step is
    that of `paleo simulate`; the whole training is dataset_size / batch * epochs of them. Energy
    is power times time, as if every device took its full power all along. Computation equals
    communication at the number of workers whose exchange first takes as long as what they
    compute.

    \b
    Examples:
      paleo metrics vgg16 --device=K40 --batch_size=32
      paleo metrics nin --epochs=47 --dataset=imagenet --num_workers=1,8,32
      paleo metrics squeezenet --weight_bits=6 --sparsity=0.67 --index_bits=4
      paleo metrics alex_v2 --device=K80 --epochs=90 --dataset=imagenet
      paleo metrics alex_v2_8gpu --parallel=hybrid --hybrid_workers=8
    """  # noqa: D301 (click takes the control character, not the escape)
    found = metrics(
        edits.applied(nets, importing),
        device=device_name,
        network=network_name,
        workers=numbers(num_workers),
        epochs=epochs,
        price=None if price is None else number(price),
        importing=importing,
        **settings,
    )
    if is_verbose():
        say_what_is_used(nets, device_name, network_name, settings["cost_model"], settings["dtype"])
    say_what_has_no_effect(settings["parallel"], _ONLY_FOR)
    output.write(
        [_table(found, settings)],
        lambda: {"metrics": [each.to_dict() for each in found]},
    )


def _columns(optimizer: str) -> tuple[Column, ...]:
    people: dict[str, Any] = {"for_people": True}
    inference: dict[str, Any] = {"group": "inference, on one device"}
    training: dict[str, Any] = {"group": "training"}
    memory: dict[str, Any] = {"group": f"memory in training, {optimizer}"}
    whole: dict[str, Any] = {"group": "whole training"}
    return (
        Column("plan", "net", **people),
        *map(Column, ("net", "device", "network", "cost_model", "dtype", "fuse")),
        *map(Column, CONVOLUTION_KEYS),
        *map(Column, ("parallel", "scaling")),
        Column("workers", "workers"),
        Column("scheme", "scheme"),
        Column("batch_size", "batch"),
        Column("worker_batch_size", "batch of a worker"),
        Column("power_w", "power of a device", "W"),
        Column("params", "parameters"),
        Column("weight_bits", "bits of a weight"),
        Column("index_bits"),
        Column("some_index_bits", "bits of its index", **people),
        Column("sparsity"),
        Column("some_sparsity", "sparsity", "percent", **people),
        Column("model_bytes", "size of the model", "bytes"),
        Column("inference_flops_per_sample", "computation", "FLOP of a sample", **inference),
        Column("inference_s", "time of a batch", "s", **inference),
        Column("inference_throughput_per_s", "samples/s", **inference),
        Column("peak_throughput_per_s", "samples/s at its peak", **inference),
        Column("inference_energy_per_sample_j", "energy of a sample", "J", **inference),
        Column("inference_memory_bytes", "memory", "bytes", **inference),
        Column("training_flops_per_sample", "computation", "FLOP of a sample", **training),
        Column("step_s", "step", "s", **training),
        Column("compute_s", "to compute", "s", **training),
        Column("communication_s", "to communicate", "s", **training),
        Column("computation_communication_ratio", "ratio of the two", **training),
        Column("balance_workers"),
        Column("balance", "workers where they equal", **people, **training),
        Column("training_throughput_per_s", "samples/s", **training),
        Column("speedup", "speedup over one worker", **training),
        Column("training_energy_per_sample_j", "energy of a sample", "J", **training),
        Column("optimizer"),
        Column("weights_bytes", "weights", "bytes", **memory),
        Column("gradients_bytes", "gradients", "bytes", **memory),
        Column("optimizer_state_bytes", "state of the optimizer", "bytes", **memory),
        Column("activations_bytes", "activations", "bytes", **memory),
        Column("workspace_bytes"),
        Column("training_memory_bytes", "all at the peak", "bytes", **memory),
        Column("memory_capacity_bytes", "capacity", "bytes", **memory),
        Column("largest_batch_size", "largest batch that fits", **memory),
        Column("epochs", "epochs", **whole),
        Column("dataset", "dataset", **whole),
        Column("dataset_size", "samples of an epoch", **whole),
        Column("num_steps", "steps", **whole),
        Column("training_flops", "computation", "FLOP of a run", **whole),
        Column("training_time_s", "time", "duration", **whole),
        Column("training_energy_j", "energy", "J", **whole),
        Column("price_per_device_hour"),
        Column("price_currency"),
        Column("price_provider"),
        Column("price_date"),
        Column("price", "price of a device for 1 h", **people, **whole),
        Column("training_cost"),
        Column("cost", "cost", **people, **whole),
    )


def _table(found: tuple[Metrics, ...], settings: dict[str, Any]) -> Table:
    first = found[0]
    title = f"{first.device}, {first.network}, {first.parallel}-parallel"
    title += f", {first.scaling} scaling" if first.scaling else ""
    title += f", {first.dtype}, {first.cost_model}"
    title += f", ppp_comp {settings['ppp_comp']:g}, ppp_comm {settings['ppp_comm']:g}"
    title += ", pipelined" if settings["use_pipeline"] else ""
    title += ", fused" if first.fuse else ""
    title += f", {first.convolutions}" if str(first.convolutions) else ""
    several = len({each.workers for each in found}) > 1
    return Table(
        title,
        _columns(first.optimizer),
        [_row(each, several) for each in found],
        footnotes=_footnotes(first),
        notes=_notes(found),
        upright=True,
    )


def _row(each: Metrics, several: bool) -> dict[str, Any]:
    plural = "s" * (each.workers != 1)
    values = each.to_dict()
    price, cost = each.price, each.training_cost
    return {
        **values,
        "plan": [each.net, f"{each.workers:,} worker{plural}"] if several else each.net,
        "some_index_bits": each.storage.index_bits or None,
        "some_sparsity": each.storage.sparsity or None,
        "balance": each.balance_workers
        if each.balance_workers or not each.scheme
        else f"none up to {LIMIT:,}",
        "price": price and f"{price.amount:g} {price.currency}",
        "cost": None if cost is None or not price else f"{_money(cost)} {price.currency}",
    }


def _money(amount: float) -> str:
    """Return an amount with two decimals, or two digits where it is less than a hundredth."""
    return f"{amount:,.2f}" if amount >= 0.01 or not amount else f"{amount:.2g}"


def _notes(found: tuple[Metrics, ...]) -> list[str]:
    """Return the notes of all; those that are not of all say of which net they are."""
    counts = Counter(note for each in found for note in each.notes)
    lines = [
        note if counts[note] == len(found) else f"{each.net}: {note}"
        for each in found
        for note in each.notes
    ]
    return list(dict.fromkeys(lines))


def _footnotes(first: Metrics) -> list[str]:
    """Return what to give for the values that are missing."""
    if first.training_time is None:
        return ["whole training: give --epochs, and --dataset or --dataset_size"]
    if first.price is None:
        return ["cost: give --price, what a device costs for an hour"]
    return []
