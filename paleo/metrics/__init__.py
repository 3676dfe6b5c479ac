"""What running and training a net takes: operations, time, energy, memory, money.

The metrics of table 2.2 of F. Iandola, "Exploring the Design Space of Deep Convolutional Neural
Networks at Large Scale" (UC Berkeley, 2016), for a net on a cluster under a plan.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from paleo.costs import DEFAULT_COST_MODEL, CostModel, find_cost_model
from paleo.datasets import Schedule
from paleo.errors import Mistakes, PaleoError, SettingError
from paleo.estimate import DeviceLike, NetworkLike
from paleo.hardware import Price, find_device
from paleo.importers import ImportOptions
from paleo.load import load
from paleo.memory import OPTIMIZERS
from paleo.metrics.cases import Case
from paleo.metrics.values import Metrics, Storage
from paleo.netspec import NetSpec
from paleo.parallelism import SCALINGS
from paleo.simulate import NetLike, simulate
from paleo.tensor import PRECISIONS, find_precision
from paleo.training import checked_price
from paleo.units import parse
from paleo.values import check_choice, is_number, listed, python_int, shown

__all__ = ["PARALLELISMS", "Metrics", "Storage", "metrics"]

#: The ways to divide a step among devices that make a whole step.
PARALLELISMS = ("data", "hybrid")
#: More watts mean nothing.
_MOST = 1e12


def metrics(
    nets: NetLike | Iterable[NetLike],
    *,
    device: DeviceLike = "TITAN_X",
    network: NetworkLike = "ethernet",
    batch_size: int = 128,
    workers: int | Sequence[int] = 1,
    scaling: str = "strong",
    parallel: str = "data",
    hybrid_workers: int = 1,
    use_pipeline: bool = False,
    ppp_comp: float = 1.0,
    ppp_comm: float = 1.0,
    cost_model: str | CostModel = DEFAULT_COST_MODEL,
    scheme: str | None = None,
    epochs: float | None = None,
    dataset: str | None = None,
    dataset_size: int | None = None,
    weight_bits: int | None = None,
    index_bits: int = 0,
    sparsity: float = 0.0,
    optimizer: str = "sgd",
    price: float | str | Price | None = None,
    power: float | str | None = None,
    importing: ImportOptions | None = None,
    dtype: str = "fp32",
    fuse: bool = False,
    conv_library: str | None = None,
    workspace: int | str | None = None,
    use_only_gemm: bool = False,
) -> tuple[Metrics, ...]:
    """Return the metrics of one net or several, each on every number of workers.

    Settings of `paleo.simulate` mean the same. `scheme` is one communication scheme, None the best.
    Time, energy and cost of a training need `epochs` and either `dataset`, one of
    paleo.datasets.DATASETS, or `dataset_size`. `weight_bits`, `index_bits` and `sparsity` are those
    of `Storage`, the bits of a parameter's type unless given; `optimizer` is one of
    paleo.memory.OPTIMIZERS. `price` is what one device costs for an hour, in dollars or as a text
    such as "0.90 EUR/h", None the newest of the device's file; `power` what it takes, in watts or
    as a text such as "180 W", None that of the file. Raises a PaleoError with every mistake.
    """
    mistakes = Mistakes()
    check = mistakes.check
    many = check(listed, "nets", nets, str | os.PathLike | NetSpec) or []
    specs = [spec for spec in (check(load, net, importing) for net in many) if spec]
    check(check_choice, "parallel", parallel, PARALLELISMS)
    check(check_choice, "scaling", scaling, SCALINGS)
    check(_check_single, "scheme", scheme)
    simulation = check(
        lambda: simulate(
            specs or nets,
            device=device,
            network=network,
            batch_size=batch_size,
            workers=workers,
            scaling=scaling if scaling in SCALINGS else SCALINGS,
            parallel=parallel if parallel in PARALLELISMS else "data",
            hybrid_workers=hybrid_workers,
            use_pipeline=use_pipeline,
            ppp_comp=ppp_comp,
            ppp_comm=ppp_comm,
            cost_model=cost_model,
            schemes=scheme,
            dtype=dtype,
            fuse=fuse,
            conv_library=conv_library,
            workspace=workspace,
            use_only_gemm=use_only_gemm,
        )
    )
    schedule = check(Schedule, python_int(epochs), dataset, python_int(dataset_size))
    if weight_bits is None:
        weight_bits = _bits(dtype)
    storage = check(Storage, python_int(weight_bits), python_int(index_bits), sparsity)
    check(OPTIMIZERS.__getitem__, optimizer)
    own_price, own_power = check(checked_price, price), check(_power, power)
    mistakes.raise_as(PaleoError)

    assert simulation is not None
    assert schedule is not None
    assert storage is not None
    case = Case(
        device=find_device(device),
        cost_model=find_cost_model(cost_model),
        ppp_comp=ppp_comp,
        use_pipeline=use_pipeline,
        scheme=scheme,
        schedule=schedule,
        storage=storage,
        optimizer=optimizer,
        own_price=own_price,
        own_power=own_power,
        dtype=dtype,
        fuse=fuse,
    )
    return tuple(
        found
        for spec, run in zip(specs, simulation.runs, strict=True)
        for found in case.metrics(spec, run)
    )


def _bits(dtype: Any) -> int:
    """Return the bits of a parameter; of a type that is none, which is noted elsewhere, some."""
    known = dtype if isinstance(dtype, str) and dtype in PRECISIONS else "fp32"
    return 8 * find_precision(known).parameter_size


def _check_single(name: str, value: Any) -> None:
    if not isinstance(value, str | None):
        raise SettingError(f"{name}: expected one, got {shown(value)}")


def _power(power: Any) -> float | None:
    if power is None:
        return None
    if is_number(power) and 0 < power <= _MOST:
        return float(power)
    try:
        if not isinstance(power, str):
            raise ValueError(
                f"expected watts, a number above 0, up to {_MOST:g}, got {shown(power)}"
            )
        return parse(power, "W")
    except ValueError as error:
        raise SettingError(f"power: {error}") from None
