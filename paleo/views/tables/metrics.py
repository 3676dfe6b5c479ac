"""The table of metrics: nets or worker counts beside each other, a line for each figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paleo.step.plan_keys import HOW
from paleo.studies.knee import LIMIT
from paleo.studies.metrics import Metrics
from paleo.studies.metrics.values import RATES, TIMES
from paleo.views.answers.base import NO_BAND, rounded, utilization_said
from paleo.views.charts.numbers import counted
from paleo.views.charts.settings import plan_setting
from paleo.views.table import Column, Table, plain
from paleo.views.tables.base import common_notes


def columns_of_metrics(optimizer: str, *, has_tokens: bool = False) -> tuple[Column, ...]:
    """Return the columns of all figures, for people a line each, of tokens where a net has any."""
    people: dict[str, Any] = {"for_people": True}
    inference: dict[str, Any] = {"group": "inference, on one device"}
    training: dict[str, Any] = {"group": "training"}
    memory: dict[str, Any] = {"group": f"memory in training, {optimizer}"}
    whole: dict[str, Any] = {"group": "whole training"}
    return (
        Column("plan", "net", **people),
        *plain("net", "device", "network", "cluster", "cost_model", "dtype", *HOW[1:]),
        *plain("parallel", "scaling"),
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
        Column("exposed_communication_s", "of that exposed", "s", **training),
        Column("computation_communication_ratio", "ratio of the two", **training),
        Column("balance_workers"),
        Column("balance", "workers where they equal", **people, **training),
        Column("training_throughput_per_s", "samples/s", **training),
        Column("tokens_per_s", "tokens/s" * has_tokens, **training),
        Column("mfu", "MFU" * has_tokens, "percent", **training),
        *plain("hfu"),
        Column("speedup", "speedup over one worker", **training),
        Column("training_energy_per_sample_j", "energy of a sample", "J", **training),
        Column("optimizer"),
        Column("optimizer_kernels"),
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
        Column("tokens", "tokens", **whole),
        Column("num_steps", "steps", **whole),
        Column("training_flops", "computation", "FLOP of a run", **whole),
        Column("training_time_s", "time", "duration", **whole),
        Column("device_hours", "device-hours" * has_tokens, **whole),
        Column("training_energy_j", "energy", "J", **whole),
        *plain("price_per_device_hour", "price_currency", "price_provider", "price_date"),
        Column("price", "price of a device for 1 h", **people, **whole),
        Column("training_cost"),
        Column("cost", "cost", **people, **whole),
        *plain("inference_cost_per_million", "training_cost_per_million"),
        *plain(*(f"{key}_{end}" for key in (*TIMES, *RATES) for end in ("low", "high"))),
    )


def metrics_table(found: Sequence[Metrics]) -> Table:
    """Return the table of several metrics beside each other."""
    first = found[0]
    several = len({each.workers for each in found}) > 1
    has_tokens = any(each.step.tokens_per_s for each in found)
    digits = max(each.plan.digits for each in found) if all(each.plan.band for each in found) else 0
    shown = dict.fromkeys((*TIMES, *RATES, "computation_communication_ratio"), digits)
    shown |= {"speedup": max(each.plan.ratio_digits for each in found)} if digits else {}
    return Table(
        plan_setting(first),
        [
            replace(column, digits=shown.get(column.key, column.digits))
            for column in columns_of_metrics(first.plan.optimizer, has_tokens=has_tokens)
        ],
        [row_of_metrics(each, several) for each in found],
        footnotes=[*_footnotes(first), *[utilization_said(with_hfu=False)] * has_tokens],
        notes=common_notes([(each.net, each.notes) for each in found]),
        upright=True,
    )


def row_of_metrics(each: Metrics, several: bool = False) -> dict[str, Any]:
    """Return all figures, headed by the net and, where they are `several`, the workers."""
    values = each.to_dict()
    price, cost = each.price, each.training_cost
    shown = rounded(cost, each.plan.digits) if cost and each.plan.band else money(cost or 0.0)
    return {
        **values,
        "plan": [each.net, counted(each.workers, "worker")] if several else each.net,
        "some_index_bits": each.storage.index_bits or None,
        "some_sparsity": each.storage.sparsity or None,
        "balance": each.balance_workers
        if each.balance_workers or not each.scheme
        else f"none up to {LIMIT:,}",
        "price": price and f"{price.amount:g} {price.currency}",
        "cost": None if cost is None or not price else f"{shown} {price.currency}",
    }


def money(amount: float) -> str:
    """Return an amount with two decimals, or two digits where it is less than a hundredth."""
    return f"{amount:,.2f}" if amount >= 0.01 or not amount else f"{amount:.2g}"


def _footnotes(first: Metrics) -> list[str]:
    """Return that no error band is known, and what to give for the values that are missing."""
    unknown = [] if first.plan.band else [NO_BAND]
    if first.training_time is None:
        return [*unknown, "whole training: give --epochs, and --dataset or --dataset_size"]
    if first.price is None:
        return [*unknown, "cost: give --price, what a device costs for an hour"]
    return unknown
