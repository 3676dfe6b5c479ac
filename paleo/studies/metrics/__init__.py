"""What running and training a net takes: operations, time, energy, memory, money.

The metrics of table 2.2 of F. Iandola, "Exploring the Design Space of Deep Convolutional Neural
Networks at Large Scale" (UC Berkeley, 2016), for a net on a cluster under a plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Unpack

from paleo.core.checks import python_int
from paleo.core.errors import Mistakes, PaleoError
from paleo.core.results import Results
from paleo.net.importers import ImportOptions
from paleo.step.declarations import Setting, choice
from paleo.step.distributed_settings import ExchangeSettings
from paleo.step.parallelism import PARALLELISMS as _KINDS
from paleo.step.scenario import HYBRID_WORKERS, PARALLEL, ScenarioLike, asked
from paleo.step.settings import (
    WORKERS,
    GridSettings,
)
from paleo.studies.metrics.cases import Case
from paleo.studies.metrics.values import Metrics, Storage
from paleo.studies.simulate import runs_of
from paleo.studies.training import (
    PowerSettings,
    TokenSettings,
    TrainingSettings,
    check_tokens,
    schedule_of,
)

__all__ = ["PARALLELISMS", "Metrics", "MetricsSettings", "Storage", "metrics"]

#: The ways to divide a step among devices that make a whole step.
PARALLELISMS = tuple(name for name, kind in _KINDS.items() if kind.trains and not kind.has_others)


class MetricsSettings(
    GridSettings, TrainingSettings, TokenSettings, PowerSettings, ExchangeSettings, total=False
):
    """Of what running and training nets takes."""

    hybrid_workers: Annotated[int, HYBRID_WORKERS]
    importing: ImportOptions | None
    workers: Annotated[int | Sequence[int], WORKERS.with_default(1)]
    parallel: Annotated[
        str,
        replace(
            PARALLEL,
            check=choice("parallel", PARALLELISMS),
            help="data: each worker has a copy of the net; single_process: the same by one process "
            "that drives all devices, as PyTorch's nn.DataParallel, of a batch that they divide; "
            "hybrid: layers that the net splits are model-parallel, all others data-parallel.",
            choices=lambda: PARALLELISMS,
        ),
    ]
    weight_bits: Annotated[
        int | None,
        Setting(
            default=None,
            check=lambda value: value if value is None else Storage(python_int(value)).weight_bits,
            help="Bits that a stored weight takes, for the size of the net's file.",
            shown_default="those of a parameter's type",
        ),
    ]
    sparsity: Annotated[
        float,
        Setting(
            default=0.0,
            check=lambda value: Storage(sparsity=value).sparsity,
            help="Share of the weights that are zero and are not stored.",
        ),
    ]
    index_bits: Annotated[
        int,
        Setting(
            default=0,
            check=lambda value: Storage(index_bits=python_int(value)).index_bits,
            help="Bits that store the position of a weight, where zeros are left out.",
        ),
    ]


def metrics(
    nets: ScenarioLike | Iterable[ScenarioLike], **settings: Unpack[MetricsSettings]
) -> Results[Metrics]:
    """Return the metrics of one net or several, each on every number of workers.

    Settings of `paleo.simulate` mean the same. `scheme` is one communication scheme, None the best.
    Time, energy and cost of a training need `epochs` and either `dataset`, one of
    paleo.studies.datasets.DATASETS, or `dataset_size`; or the `tokens` that are read.
    `weight_bits`, `index_bits` and `sparsity` are those of `Storage`, the bits of a parameter's
    type unless given; `optimizer` is one of paleo.step.memory.OPTIMIZERS. `price` is what one
    device costs for an hour, in dollars or as a text such as "0.90 EUR/h"; None is that in the file
    `prices` of one's own, or else the cheapest on demand of `paleo.prices`. `power` is what it
    takes, in watts or as a text such as "180 W", None that of the file. Raises a PaleoError with
    every mistake.

    >>> (metrics,) = paleo.metrics("nin", device="K80", epochs=90, dataset="imagenet")
    >>> metrics.params, round(metrics.num_steps)
    (7595176, 900821)
    """
    mistakes = Mistakes()
    scheme = settings.get("scheme")
    others = {"schemes": scheme} if isinstance(scheme, str) else {}
    scenarios, found = asked(nets, MetricsSettings, settings, mistakes, others)
    schedule = schedule_of(found, mistakes)
    for each in scenarios if schedule else ():
        mistakes.check(check_tokens, schedule, each)
    runs = [run for each in scenarios for run in runs_of(each, mistakes)]
    mistakes.raise_as(PaleoError)
    assert schedule is not None
    case = Case(
        scheme=found["scheme"],
        schedule=schedule,
        storage={name: found[name] for name in ("weight_bits", "index_bits", "sparsity")},
        own_price=found["price"],
        prices=found["prices"],
        own_power=found["power"],
    )
    return Results(each for run in runs for each in case.metrics(run))
