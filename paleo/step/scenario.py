"""A scenario: a net x a cluster x a plan, found and checked in one place.

`scenario` makes one of a net and settings; `asked` those of all nets that a study is asked about.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from paleo.cluster import Cluster
from paleo.core.checks import listed
from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity
from paleo.net.graph import Graph, typical
from paleo.net.importers import ImportOptions
from paleo.net.lengths import SEQ
from paleo.net.load import ONE_NET, NetLike, load
from paleo.net.spec import NetSpec
from paleo.step.declarations import (
    Setting,
    check_names,
    checked_number,
    choice,
    declared,
)
from paleo.step.distributed_settings import SCALING, SCHEMES
from paleo.step.loss import NONE
from paleo.step.parallelism import PARALLELISMS
from paleo.step.plan import Plan, plan_of
from paleo.step.settings import (
    BATCH_SIZE,
    DEFAULT_WORKERS,
    OF_CLUSTER,
    OTHER_DEVICES,
    VARIED,
    WORKERS,
    ClusterSettings,
    GridSettings,
    found_settings,
)

if TYPE_CHECKING:
    from paleo.step.plans.merge import Planned

PARALLEL = Setting(
    default="data",
    check=lambda value: choice("parallel", tuple(PARALLELISMS))(value),
    help="data: each worker has a copy of the net; single_process: the same by one process that "
    "drives all devices, as PyTorch's nn.DataParallel, of a batch that they divide; model: each "
    "device has a slice of the layers that the net splits; hybrid: layers that are split "
    "model-parallel, all others data-parallel; heterogeneous: data, on devices of several kinds "
    "(--other_devices), which share the batch by their speed.",
    choices=lambda: PARALLELISMS,
)


HYBRID_WORKERS = Setting(
    default=1,
    check=checked_number("hybrid_workers"),
    help="Number of workers, with --parallel=hybrid.",
    is_number=True,
)


def _checked_plan(value: Any) -> None:
    """Raise SettingError for a plan file: what has none is not asked for one."""
    if value is not None:
        raise SettingError("plan: a plan file is for paleo.simulate and paleo.scenario")


PLAN = Setting(
    default=None,
    check=_checked_plan,
    help="A plan file: arguments of Megatron-LM (a shell line or script, or YAML), a configuration "
    "of DeepSpeed (JSON) or torchtitan (TOML), or a recipe of NeMo (YAML). Its settings hold where "
    "no other option says otherwise.",
    metavar="FILE",
)


class StepSettings(ClusterSettings, total=False):
    """How a step is divided among devices. `importing` is for files of other frameworks."""

    batch_size: Annotated[int, BATCH_SIZE]
    hybrid_workers: Annotated[int, HYBRID_WORKERS]
    importing: ImportOptions | None


class SimulateSettings(GridSettings, total=False):
    """Of steps at many worker counts: those of `paleo.simulate`, all of a `Scenario`."""

    hybrid_workers: Annotated[int, HYBRID_WORKERS]
    importing: ImportOptions | None
    workers: Annotated[int | Sequence[int], WORKERS]
    scaling: Annotated[str | Sequence[str], SCALING]
    schemes: Annotated[str | Sequence[str] | None, SCHEMES]
    other_devices: Annotated[str | Mapping[Any, int] | None, OTHER_DEVICES]
    parallel: Annotated[str, PARALLEL]
    plan: Annotated[str | os.PathLike[str] | None, PLAN]


@dataclass(frozen=True)
class Scenario:
    """What is predicted: a net, the cluster and how it is used, and how a step is divided.

    `batch_size` None is that of the net's file. `workers` are those of data parallelism, `scaling`
    how they share a batch. `notes` are what there is to know of the plan file that it is of.
    """

    net: NetSpec
    plan: Plan
    batch_size: Quantity | None
    workers: tuple[int, ...]
    scaling: tuple[str, ...]
    parallel: str
    hybrid_workers: int
    notes: tuple[str, ...] = ()

    def graph(self, batch_size: Quantity | None = None) -> Graph:
        """Return the net's graph as the cost model sees it, at this batch or the scenario's."""
        return self.plan.graph(self.net, self.batch_size if batch_size is None else batch_size)

    def workers_of(self, setting: str) -> tuple[int, ...]:
        """Return the numbers of workers that a kind of parallelism has in this setting."""
        if not setting:
            return ()
        workers = getattr(self, setting)
        return workers if isinstance(workers, tuple) else (workers,)

    @property
    def has_convolutions(self) -> bool:
        """Whether it matters how convolutions are priced."""
        return any(spec.layer.is_convolution for spec in self.net.few.layers)

    @property
    def settings(self) -> dict[str, Any]:
        """Return every setting of it by its name, as others are found from."""
        return self.plan.settings | {name: getattr(self, name) for name in _OF_SCENARIO}

    def changed(self, **settings: Any) -> Scenario:
        """Return the scenario with other settings. Raises a PaleoError with every mistake."""
        return scenario(self, **settings)


#: The settings that a scenario has besides those of its plan.
_OF_SCENARIO = ("batch_size", "workers", "scaling", "parallel", "hybrid_workers")
#: What a study is asked about: a net to be found, or a scenario that settings change.
ScenarioLike = NetLike | Scenario


def asked(
    nets: ScenarioLike | Iterable[ScenarioLike],
    kind: type,
    settings: Mapping[str, Any],
    mistakes: Mistakes,
    others: Mapping[str, Any] = MappingProxyType({}),
    *,
    arrays: bool = False,
) -> tuple[list[Scenario], dict[str, Any]]:
    """Return the scenarios that are meant by nets, or scenarios, and settings of a kind.

    `others` are settings that the kind has under another name. Second comes what each setting
    stands for. What is wrong is noted; the scenarios are those that are not.
    """
    known = declared(kind)
    check_names(known, settings, mistakes)
    given = {name: value for name, value in settings.items() if name in known} | {**others}
    many = mistakes.check(listed, "nets", nets, ONE_NET | Scenario) or []
    specs = [mistakes.check(_net_of, net, settings.get("importing"), arrays) for net in many]
    file = mistakes.check(_plan_file, given) if "plan" in known else None
    if file:
        given |= file.settings
        specs = [
            mistakes.check(_with_length, net, spec, file.seq_len, settings.get("importing"))
            for net, spec in zip(many, specs, strict=True)
        ]
    of_nets = None
    found = []
    for net, spec in zip(many or [None], specs or [None], strict=True):
        if isinstance(net, Scenario):
            values, plans = _planned(kind, _changed(net, given), mistakes, arrays)
        else:
            values, plans = of_nets = of_nets or _planned(kind, given, mistakes, arrays)
        for varied, plan in plans if spec else ():
            assert spec
            beside = sum(count for _, count in plan.other_devices)
            if plan.is_mesh and varied["parallel"] == PARALLEL.default:
                varied |= {"parallel": "mesh"}
            varied |= {"workers": workers_of(plan.topology, varied["workers"], beside)}
            notes = net.notes if isinstance(net, Scenario) else ()
            notes += _notes_of(file, spec) if file else ()
            one = Scenario(spec, plan, **{name: varied[name] for name in _OF_SCENARIO}, notes=notes)
            mistakes.check(_check_parallel, one)
            mistakes.check(_check_trained, one)
            found.append(one)
    return found, values


def _plan_file(given: dict[str, Any]) -> Planned | None:
    """Return what the plan file of settings says, which it is taken from; None without one."""
    path = given.pop("plan", None)
    if path is None:
        return None
    from paleo.step.plans.merge import planned  # here: most are asked without a file

    return planned(path, given)


def _with_length(
    net: ScenarioLike, spec: NetSpec | None, length: int | None, importing: ImportOptions | None
) -> NetSpec | None:
    """Return a net that is named with sequences of a plan file's length, unless one is given."""
    is_given = importing is not None and SEQ in importing.dims
    is_named = isinstance(net, str | os.PathLike)
    if not spec or not length or not is_named or is_given or SEQ not in spec.dims:
        return spec
    return spec.with_dims(**{SEQ: length})


def _notes_of(file: Planned, spec: NetSpec) -> tuple[str, ...]:
    """Return what there is to know of a plan file, and of a length that the net has not."""
    own, length = spec.dims.get(SEQ), file.seq_len
    if length in (None, own):
        return file.notes
    said = f"the net has {own}, which counts" if own else "the net has no dimension seq"
    return (*file.notes, f"{file.file}: sequences of {length}, but {said}")


def workers_of(cluster: Cluster, counts: Sequence[int], others: int = 0) -> tuple[int, ...]:
    """Return numbers of workers, those that are by default only as far as a cluster has as many.

    There are so many `others` beside them, on devices of other kinds.
    """
    if tuple(counts) != DEFAULT_WORKERS:
        return tuple(counts)
    most = cluster.size - others
    return tuple(count for count in counts if count <= most)


def _planned(
    kind: type, given: Mapping[str, Any], mistakes: Mistakes, arrays: bool
) -> tuple[dict[str, Any], list[tuple[dict[str, Any], Plan]]]:
    """Return what settings stand for; and if nothing is wrong with any, every combination.

    Of those, settings that may be several have one value each, and each has its plan.
    """
    here = Mistakes()
    values = found_settings(kind, given, here, arrays=arrays, base=SimulateSettings)
    if "loss" not in {*declared(kind), *given}:  # who trains nothing has none
        values["loss"] = NONE
    plans = []
    if not here:
        for combination in itertools.product(*_several(values)):
            varied = values | dict(zip(VARIED, combination, strict=True))
            plans.append((varied, plan_of(varied, here)))
    mistakes.check(here.raise_as, PaleoError)
    return values, [(varied, plan) for varied, plan in plans if plan]


def _check_parallel(scenario: Scenario) -> None:
    """Raise SettingError for settings that another kind of parallelism has."""
    names, kind = scenario.plan.of_data_parallel, PARALLELISMS[scenario.parallel]
    if bool(scenario.plan.other_devices) != kind.has_others:
        said = "takes other devices, such as K80:4" if kind.has_others else "has no other devices"
        raise SettingError(f"other_devices: --parallel={scenario.parallel} {said}")
    if scenario.plan.recompute.mode != "none" and kind.splits:
        raise SettingError(f"recompute: is not for --parallel={scenario.parallel}")
    if scenario.plan.loader_rate and not kind.loads:
        raise SettingError(f"loader_rate: is for --parallel=data or mesh, not {scenario.parallel}")
    if names and not kind.synchronizes:
        raise SettingError(f"{names[0]}: is for --parallel=data, not {scenario.parallel}")


def _check_trained(scenario: Scenario) -> None:
    """Raise SettingError for blocks to be computed again that there are not, or a loss."""
    scenario.plan.trained(scenario.net)
    recompute = scenario.plan.recompute
    if recompute.blocks:
        plan = scenario.plan
        recompute.regions(typical(plan.computable(scenario.net), plan.dtype, plan.adapt))


def _several(values: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    """Yield the values of each setting that varies."""
    for name in VARIED:
        value = values[name]
        yield value if isinstance(value, tuple) else (value,)


def _has_cluster(values: Mapping[str, Any]) -> bool:
    return values.get("cluster") not in (None, (None,))


def _changed(net: Scenario, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a scenario with others that are given.

    A cluster takes the place of a device and its network, and one of these that of a cluster.
    """
    own = net.settings
    if _has_cluster(given):
        own = {name: value for name, value in own.items() if name not in OF_CLUSTER}
    elif any(name in given for name in OF_CLUSTER):
        own |= {"cluster": None, "device": net.plan.device, "network": net.plan.network}
    return own | dict(given)


def _net_of(net: ScenarioLike, importing: ImportOptions | None, arrays: bool) -> NetSpec:
    found = net.net if isinstance(net, Scenario) else load(net, importing)
    if found.sweep and not arrays:
        names = ", ".join(found.sweep.sizes)
        raise SettingError(
            f"{names}: arrays of sizes are for paleo.data_parallel, the estimates and "
            "paleo.summarize, which have a result for each"
        )
    return found


def scenario(net: ScenarioLike, **settings: Unpack[SimulateSettings]) -> Scenario:
    """Return a net on a cluster under a plan; of a scenario, the one with these other settings.

    Settings are those of `paleo.simulate`. Raises a PaleoError with every mistake.
    """
    mistakes = Mistakes()
    found, _ = asked(net, SimulateSettings, settings, mistakes)
    if len(found) > 1:
        mistakes.add("a scenario has one value of each setting: here are several of one")
    mistakes.raise_as(PaleoError)
    return found[0]
