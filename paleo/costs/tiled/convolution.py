"""Convolutions: the quickest of the algorithms that a library has for one.

Each algorithm of `paleo.costs.convolutions` is priced by a function of the operation and the
machine in a table of ways, which returns None where it does not apply. They differ in how many
multiplications they do and in how many bytes they move.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from paleo.core.operations import Convolution, Pass
from paleo.core.quantity import Quantity, smallest
from paleo.costs.convolutions import LIBRARIES
from paleo.costs.convolutions.fft import FFT, TILED_FFT
from paleo.costs.convolutions.libraries import GEMM, NEWEST, offered_by_cudnn
from paleo.costs.convolutions.selection import Chooser
from paleo.costs.convolutions.settings import CHANNELS_LAST
from paleo.costs.convolutions.winograd import WINOGRAD_4X4, WINOGRAD_5X5
from paleo.costs.model import Explanation
from paleo.costs.tiled import implicit_gemm, onednn, transforms
from paleo.costs.tiled.algorithm import Algorithm
from paleo.costs.tiled.gemm import explained
from paleo.costs.tiled.machine import Machine
from paleo.costs.times import Time

_TRANSFORMING = (WINOGRAD_4X4, WINOGRAD_5X5, FFT, TILED_FFT)
#: How each algorithm is priced on a GPU; on a CPU, as `onednn.WAYS` says. The constants are fitted
#: to whichever product the library took: one with precomputed indices is priced as one without.
WAYS: dict[str, Algorithm] = {
    "implicit_gemm": implicit_gemm.implicit,
    "precomputed_gemm": implicit_gemm.implicit,
    "explicit_gemm": implicit_gemm.explicit,
    "gemm_1x1": implicit_gemm.plain,
    "scattered_gemm": implicit_gemm.scattered,
    "phased_gemm": implicit_gemm.by_phases,
    "direct": implicit_gemm.direct,
    "winograd_2x2": transforms.fused_winograd,
    **{one.name: partial(transforms.in_steps, one) for one in _TRANSFORMING},
}
#: Seconds on the lanes below which an algorithm is not, where that is known sooner than what it
#: takes.
_LEAST: dict[str, Callable[[Convolution, Machine], Quantity]] = {
    **{name: partial(implicit_gemm.least, name) for name in implicit_gemm.PRODUCTS},
    "winograd_2x2": transforms.least_fused,
    **{one.name: partial(transforms.least, one) for one in _TRANSFORMING},
}

#: On a CPU. Its library writes out a part of the matrix at a time, which the cache holds: within
#: any workspace.
_CPU_WAYS: dict[str, Algorithm] = {**onednn.WAYS, GEMM: onednn.WAYS["explicit_gemm"]}


def _known(machine: Machine) -> Mapping[str, Algorithm]:
    return _CPU_WAYS if machine.is_cpu else WAYS


def _offered(operation: Convolution, machine: Machine) -> dict[str, Any]:
    """Return the algorithms that the device's own library has, each with for what it applies."""
    if machine.is_cpu:
        return LIBRARIES["onednn"].offers(operation)
    library = float(smallest(machine.library))
    return offered_by_cudnn(library, operation, in_halves=machine.in_halves)


def asked_for(operation: Convolution, machine: Machine) -> Machine:
    """Return a machine as a convolution finds it: the library asked for, its images, its sums."""
    if operation.is_last:
        machine = replace(machine, memory_format=CHANNELS_LAST)
    if machine.convolutions.in_halves and machine.matrix_peak is None and machine.halves_peak:
        machine = replace(machine, vector_peak=machine.halves_peak, in_halves=True)
    name = machine.convolutions.library
    if name is None or machine.is_cpu:
        return machine
    generation = NEWEST if name == "any" else LIBRARIES[name].generation
    return machine if generation is None else replace(machine, library=generation)


def _is_never_quickest(name: str, operation: Convolution, machine: Machine) -> bool:
    """Tell whether an algorithm is what `implicit_gemm` is here, or that and more."""
    if name == "explicit_gemm" and not machine.is_cpu:
        return operation.direction is not Pass.INPUT_GRADIENT
    return name == "precomputed_gemm"


def decides(operation: Convolution, machine: Machine) -> Hashable:
    """Return what is the same of convolutions that the same formulas price."""
    return (
        onednn.decides(operation) if machine.is_cpu else implicit_gemm.decides(operation, machine)
    )


def chooser(operation: Convolution, machine: Machine) -> Chooser:
    """Return how the algorithm of a convolution is chosen."""
    machine = asked_for(operation, machine)
    known = _known(machine)

    def price(name: str, operation: Convolution) -> Time | None:
        way = known[name](operation, machine) if name in known else None
        return None if way is None else way.time

    def least(name: str, operation: Convolution) -> Quantity:
        if _is_never_quickest(name, operation, machine):
            return math.inf
        if machine.is_cpu or machine.matrix_peak is not None or name not in _LEAST:
            return 0.0
        return _LEAST[name](operation, machine)

    return Chooser(
        operation, machine.convolutions, machine.dtype, _offered(operation, machine), price,
        shown=partial(_shown, operation, machine), least=least,
    )  # fmt: skip


def price(operation: Convolution, machine: Machine) -> Time:
    """Return the time of one pass of a convolution."""
    return chooser(operation, machine).time()


def explain(operation: Convolution, machine: Machine) -> Explanation:
    """Return why it takes what `price` says; for numbers, not arrays."""
    return chooser(operation, machine).explanation()


def _shown(operation: Convolution, machine: Machine, name: str) -> Explanation:
    way = _known(machine)[name](operation, machine)
    assert way
    if way.choice is None:
        return Explanation(name, way.time)
    return explained(
        name, way.choice, (way.m, way.n, way.k), machine,
        ("units", way.choice.unit, ""), ("products", way.products, ""),
    )  # fmt: skip
