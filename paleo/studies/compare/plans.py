"""Nets, or plans of one net, on meshes of devices, beside the first of them."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Unpack

from paleo.cluster import Device
from paleo.core.checks import listed
from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.frozen import dataclass
from paleo.core.results import Result
from paleo.net.load import ONE_NET, NetLike, load
from paleo.net.spec import NetSpec
from paleo.step.declarations import check_names, declared, listing, several
from paleo.step.loader import LoaderSettings
from paleo.step.mesh_settings import MeshSettings
from paleo.step.parallelism import PARALLELISMS
from paleo.step.pieces import Step, WholeStep
from paleo.step.results import Run
from paleo.step.scenario import PLAN, scenario
from paleo.step.settings import found_settings
from paleo.studies.compare.comparison import MAX_VARIANTS, SEVERAL, CompareSettings, batch_of

_MESH = declared(MeshSettings)
#: Those of which commas separate parts, not values.
_OF_PARTS = ("stages", "order", "sequence_parallel", "allocator_slack", "offload", "host")


class PlansSettings(CompareSettings, LoaderSettings, total=False):
    """Of a comparison of plans: those of a comparison, and how devices share a net."""

    tp: Annotated[int | Sequence[int], listing("tp", _MESH["tp"])]
    pp: Annotated[int | Sequence[int], listing("pp", _MESH["pp"])]
    cp: Annotated[int | Sequence[int], listing("cp", _MESH["cp"])]
    context: Annotated[str | Sequence[str], listing("context", _MESH["context"])]
    ep: Annotated[int | Sequence[int], listing("ep", _MESH["ep"])]
    zero: Annotated[int | Sequence[int], listing("zero", _MESH["zero"])]
    shard_degree: Annotated[
        int | Sequence[int | None] | None, listing("shard_degree", _MESH["shard_degree"])
    ]
    offload: Annotated[str | Sequence[str], _MESH["offload"]]
    host: Annotated[str | Device | None, _MESH["host"]]
    micro_batch: Annotated[
        int | Sequence[int | None] | None, listing("micro_batch", _MESH["micro_batch"])
    ]
    global_batch: Annotated[
        int | Sequence[int | None] | None, listing("global_batch", _MESH["global_batch"])
    ]
    schedule: Annotated[str | Sequence[str], listing("schedule", _MESH["schedule"])]
    interleave: Annotated[int | Sequence[int], listing("interleave", _MESH["interleave"])]
    stages: Annotated[str | Sequence[int], _MESH["stages"]]
    sequence_parallel: Annotated[bool, _MESH["sequence_parallel"]]
    order: Annotated[str | Sequence[str], _MESH["order"]]
    expert_load: Annotated[
        str | float | Sequence[str | float | None] | None,
        listing("expert_load", _MESH["expert_load"]),
    ]
    expert_capacity: Annotated[
        float | Sequence[float | None] | None,
        listing("expert_capacity", _MESH["expert_capacity"]),
    ]
    allocator_slack: Annotated[float | None, _MESH["allocator_slack"]]
    plan: Annotated[
        str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None,
        replace(
            PLAN,
            check=lambda value: None if value is None else _files(value),
            help=PLAN.help.replace("A plan file", "A plan file, or several"),
            metavar="FILE,...",
        ),
    ]


_files = several("plan", os.fspath, str | os.PathLike)
#: Of what there may be several, what changes quickest last.
_SEVERAL = ("plan", *SEVERAL, *(name for name in _MESH if name not in _OF_PARTS))


@dataclass(frozen=True)
class PlanVariant:
    """A net under one plan: its step on a mesh. `file` is the plan file that it is of, if any."""

    run: Run
    row: Step
    file: str = ""

    @property
    def net(self) -> str:
        """The net's name."""
        return self.run.net

    @property
    def step(self) -> WholeStep:
        """The step, and how quick it is."""
        return self.row.whole_step(self.row.best_scheme)

    @property
    def rate(self) -> float:
        """Tokens a second, of a net without samples a second."""
        return self.step.tokens_per_s or self.step.throughput

    def value(self, key: str) -> Any:
        """Return the value of the step under a key of its JSON."""
        return next(entry.value(self.row) for entry in self.row.fields if entry.key == key)

    @property
    def memory(self) -> int:
        """Bytes of the fullest stage."""
        return int(self.value("memory_bytes"))

    @property
    def fits(self) -> bool | None:
        """Whether that is what a device has; None where its capacity is not known."""
        fits: bool | None = self.value("fits")
        return fits

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        file = {"plan": self.file} if self.file else {}
        return {**file, **self.run.settings(), **self.row.to_dict(), "notes": list(self.run.notes)}


@dataclass(frozen=True)
class PlansComparison(Result):
    """Plans beside each other, the first of which is the reference.

    `left_out` says of each combination of settings that there cannot be why not.
    """

    variants: tuple[PlanVariant, ...]
    left_out: tuple[str, ...] = ()

    @property
    def reference(self) -> PlanVariant:
        """What the others are compared with."""
        return self.variants[0]

    def factors(self, variant: PlanVariant) -> dict[str, float]:
        """Return by how much a plan is the reference's, under the keys of the JSON output.

        `speed_factor` is of the rate: of tokens, or of samples where one of both has none.
        """
        both = (variant.step, self.reference.step)
        rates = [step.tokens_per_s for step in both]
        if None in rates:
            rates = [step.throughput for step in both]
        own, reference = (float(rate or 0.0) for rate in rates)
        return {
            "time_factor": both[0].seconds / both[1].seconds,
            "speed_factor": own / reference,
            "memory_factor": variant.memory / self.reference.memory,
        }

    @property
    def quickest(self) -> PlanVariant:
        """The plan with the highest rate of those that fit, or of all if none does."""
        fitting = [each for each in self.variants if each.fits is not False]
        return max(fitting or self.variants, key=lambda each: each.rate)

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "plans": [{**each.to_dict(), **self.factors(each)} for each in self.variants],
            "left_out": list(self.left_out),
        }


def compare_plans(
    nets: NetLike | Iterable[NetLike], **settings: Unpack[PlansSettings]
) -> PlansComparison:
    """Compare nets, or plans of one net, on meshes of devices: steps, rates and memory.

    Settings may be several, but for `stages` and `order`; every net is predicted under every
    combination of them, in the order of `PlansSettings`. `plan` are plan files, whose settings hold
    where no others are given. Degrees that do not divide what they share are left out where others
    do. Raises a PaleoError with every mistake in settings and files, and if there is nothing to
    compare.

    >>> from paleo.studies.compare.plans import compare_plans
    >>> found = compare_plans(
    ...     "llama3_8b", cluster="dgx_h100", workers=16, global_batch=32, tp=[2, 4, 3], zero=1
    ... )
    >>> [variant.run.plan.tp for variant in found.variants], len(found.left_out)
    ([2, 4], 1)
    """
    mistakes = Mistakes()
    many = mistakes.check(listed, "nets", nets, ONE_NET) or []
    known = declared(PlansSettings)
    check_names(known, settings, mistakes)
    given: Mapping[str, Any] = settings
    values = found_settings(PlansSettings, given, mistakes)
    named = bool(given.get("plan"))
    files = {name for name in many if isinstance(name, str | os.PathLike)} if named else set()
    specs = [
        # A plan file may say how long sequences are: of a net that is named.
        net if net in files else mistakes.check(load, net, given.get("importing"))
        for net in many
    ]
    mistakes.raise_as(PaleoError)
    choices = {
        name: values[name] for name in _SEVERAL if name in given and isinstance(values[name], tuple)
    }
    count = len(specs) * math.prod(map(len, choices.values()))
    if count < 2:
        raise SettingError("nets: expected two or more, or one under several plans, got one")
    if count > MAX_VARIANTS:
        raise SettingError(
            f"nets: {count} of them, times settings, are too many to compare "
            f"(at most {MAX_VARIANTS})"
        )
    same = {
        name: values[name]
        for name in known
        if name in given and name not in choices and values[name] is not None
    }
    if "importing" in given:
        same["importing"] = given["importing"]
    found, left_out = [], Mistakes()
    for net, *chosen in itertools.product(specs, *choices.values()):
        one = {**same, **dict(zip(choices, chosen, strict=True))}
        variant = left_out.check(_variant, net, one)
        if variant:
            found.append(variant)
    if len(found) < 2:
        left_out.raise_as(PaleoError)
    said = tuple(dict.fromkeys(map(str, left_out.found)))
    return PlansComparison(tuple(found), said)


def _variant(net: str | NetSpec, settings: Mapping[str, Any]) -> PlanVariant:
    """Return a net under a plan; raises a PaleoError if there cannot be such a one."""
    given = {name: value for name, value in settings.items() if value is not None}
    scheme = given.pop("scheme", None)
    given |= {"schemes": scheme} if scheme else {}
    file = given.get("plan", "")
    if not file:
        given.setdefault("workers", 1)
    if not (file or isinstance(net, str) or {"batch_size", "global_batch"} & given.keys()):
        given["batch_size"] = batch_of(net)
    from paleo.studies.simulate import runs_of  # here: options of a command need the settings alone

    case = scenario(net, **given, parallel="mesh")
    mistakes = Mistakes()
    runs = list(runs_of(case, mistakes))
    mistakes.raise_as(PaleoError)
    (run,) = runs
    assert PARALLELISMS[run.parallel].shares_net
    return PlanVariant(run, run.rows[-1], file)
