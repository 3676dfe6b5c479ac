"""What the model `tiled` says of an operation, by whoever knows its kind.

A module that prices is imported for the first operation of its kind: a convolutional net needs no
kernels of attention.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from importlib import import_module
from typing import Any

from paleo.core.operations import (
    Attention,
    BatchMatMul,
    Convolution,
    Fused,
    FusedExperts,
    GroupedMatMul,
    MatMul,
    Operation,
    Pooling,
)
from paleo.core.quantization import Quantize
from paleo.core.scanning import DeltaRule, ShortConvolution
from paleo.core.selection import IndexScores, Select, SelectedAttention
from paleo.costs.batching import can_be_stacked, price_stacked
from paleo.costs.model import CostModel, Explanation, Target, priced_once
from paleo.costs.tiled.machine import Machine, machine_for
from paleo.costs.times import Time, Times

#: Which module here prices and explains which kind of operation; the others are streams.
_KINDS: tuple[tuple[type[Operation], str], ...] = (
    (MatMul, "gemm"),
    (BatchMatMul, "recurrent"),
    (Convolution, "convolution"),
    (GroupedMatMul, "grouped"),
    (FusedExperts, "experts"),
    (Attention, "attention"),
    (Quantize, "quantize"),
    (ShortConvolution, "scan"),
    (DeltaRule, "scan"),
    (IndexScores, "selection"),
    (Select, "selection"),
    (SelectedAttention, "selection"),
)


@functools.cache
def _imported(name: str) -> Any:
    return import_module(f"paleo.costs.tiled.{name}")


def price(model: CostModel, operation: Operation, target: Target) -> Time:
    """Return the seconds of an operation; `model` is asked how kernels with a tail add up."""
    return _price_on(model, machine_for(target), operation)


def _price_on(model: CostModel, machine: Machine, operation: Operation) -> Time:
    if machine.is_cpu and isinstance(operation, Fused):
        operation = _imported("cpu").begun(operation)
    if isinstance(operation, Fused):
        kernel = model.price_fused(operation, functools.partial(_price_on, model, machine))
        if machine.is_cpu:
            steps = _imported("cpu").behind(operation, machine)
            kernel = kernel + Time(steps, total=steps)
        return kernel
    if machine.is_cpu and isinstance(operation, FusedExperts):
        first, second = (_price_on(model, machine, each) for each in operation.products)
        return first + second
    operation = _asked_for(operation, machine)
    time: Time = _module(operation, machine).price(operation, machine)
    return time


def price_all(model: CostModel, operations: Sequence[Operation], target: Target) -> Times:
    """Return what `price` does of each."""
    machine = machine_for(target)
    if not can_be_stacked(target):
        return priced_once(operations, functools.partial(_price_on, model, machine))
    return price_stacked(
        [_asked_for(operation, machine) for operation in operations],
        functools.partial(_price_on, model, machine),
        functools.partial(_decides, machine=machine),
    )


def price_by(algorithm: str, operation: Convolution, target: Target) -> Time | None:
    """Return the seconds of a convolution by an algorithm, None where it does not apply."""
    machine = machine_for(target)
    found: Time | None = _imported("convolution").chooser(operation, machine).price_by(algorithm)
    return found


def explain(model: CostModel, operation: Operation, target: Target) -> Explanation:
    """Return why an operation takes what `price` says it does; for numbers, not arrays."""
    machine = machine_for(target)
    operation = _asked_for(operation, machine)
    if machine.is_cpu and isinstance(operation, Fused):
        operation = _imported("cpu").begun(operation)
    if isinstance(operation, Fused):
        return model.explain_fused(operation, target)
    found: Explanation = _module(operation, machine).explain(operation, machine)
    return found


def _asked_for(operation: Operation, machine: Machine) -> Operation:
    """Return the operation that is priced: a grouped product's, or attention by a kernel."""
    if isinstance(operation, GroupedMatMul) and not (operation.loads and not machine.is_cpu):
        return operation.products
    if isinstance(operation, Attention):
        asked: Operation = _imported("attention").asked_for(operation, machine)
        return asked
    return operation


def _decides(operation: Convolution | Pooling, machine: Machine) -> Hashable:
    """Return what is the same of windows that the same formulas price."""
    if isinstance(operation, Convolution):
        decided: Hashable = _imported("convolution").decides(operation, machine)
        return decided
    return machine.is_cpu and _imported("cpu").is_whole(operation)


def _module(operation: Operation, machine: Machine) -> Any:
    """Return the module that prices and explains an operation."""
    if machine.is_cpu and not isinstance(operation, Convolution):
        return _imported("cpu")
    return _of_kind(type(operation))


@functools.cache
def _of_kind(kind: type[Operation]) -> Any:
    return _imported(next((name for known, name in _KINDS if issubclass(kind, known)), "stream"))
