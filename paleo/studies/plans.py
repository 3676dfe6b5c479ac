"""Plans as arrays: every combination of degrees, micro-batches, recomputation and ZeRO at once."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from paleo.core.checks import listed
from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.frozen import dataclass
from paleo.core.garbage import uncollected
from paleo.core.quantity import Array, np
from paleo.step.declarations import declared, found_setting
from paleo.step.plan import Plan
from paleo.step.plan_grid import AXES, check_known
from paleo.step.recompute import find_recompute
from paleo.step.scenario import Scenario, ScenarioLike, SimulateSettings, scenario
from paleo.step.settings import EstimateSettings
from paleo.step.utilization import tokens_of
from paleo.studies.combinations import Combinations
from paleo.studies.fastest import fastest
from paleo.studies.plan_evaluation import Evaluation

#: Settings that plans have each for themselves: given as one value or several.
_SEVERAL = ("tp", "pp", "micro_batch", "recompute", "zero", "interleave", "global_batch")
#: Fields of a plan that plans as arrays know, with the formulas of one plan: how operations are
#: priced, and what follows.
_KNOWN = (
    *_SEVERAL,
    *declared(EstimateSettings),
    *("device", "network", "cluster", "dtype", "ppp_comm", "optimizer", "optimizer_kernels"),
    *("clip_gradients", "scale_loss", "loss", "overlap", "bucket", "gradient_dtype", "nccl"),
    *("cp", "context", "ep", "schedule", "stages", "sequence_parallel", "order"),
    *("allocator_slack", "shard_degree", "jitter"),
)
#: The parts of a step that are messages.
_MESSAGES = ("tensor_parallel", "context_parallel", "expert_parallel", "pipeline_parallel")
_EXPOSED = (*_MESSAGES, "parameters_gathered", "data_parallel")


@dataclass(frozen=True, eq=False)
class Plans(Combinations):
    """Every plan that was asked for, in the order of the last axis quickest.

    `settings` are by name what a plan has, `columns` arrays of what follows, in SI units: `step_s`,
    its parts (`parts` names them) and `memory_bytes`; NaN, and 0 bytes, of plans that cannot be.
    `valid` tells which can; `reasons` are texts of why others cannot, `said` all of these texts
    after an empty one, `why` the place of each plan's in them.
    """

    net: str
    scenario: Scenario = field(repr=False)
    settings: Mapping[str, Array]
    columns: Mapping[str, Array] = field(repr=False)
    why: Array = field(repr=False)
    said: tuple[str, ...] = field(repr=False)
    parts: tuple[str, ...]
    tokens: int | None = None
    evaluation: Evaluation | None = field(default=None, repr=False)

    @property
    def step_s(self) -> Array:
        """Seconds of a step."""
        return self["step_s"]

    @property
    def samples_per_s(self) -> Array:
        """Samples a second of all devices."""
        found: Array = self["global_batch"] / self.step_s
        return found

    @property
    def tokens_per_s(self) -> Array | None:
        """Tokens a second of all devices; None of a net without tokens."""
        return None if self.tokens is None else self.tokens * self.samples_per_s

    @property
    def memory_bytes(self) -> Array:
        """Bytes of the fullest stage."""
        return self["memory_bytes"]

    @property
    def fits(self) -> Array:
        """Which plans can be and fit the memory of a device, if that is known."""
        capacity = self.scenario.plan.device.memory_capacity
        return self.valid if capacity is None else self.valid & (self.memory_bytes <= capacity)

    @property
    def bubble_s(self) -> Array:
        """Seconds of waiting in the pipeline."""
        return self["bubble"]

    @property
    def exposed_communication_s(self) -> Array:
        """Seconds of messages during which nothing is computed."""
        found: Array = sum(
            (self[name] for name in _EXPOSED if name in self.columns), np.zeros(len(self))
        )
        return found

    def seconds_under(self, plan: Plan, places: Array) -> Array:
        """Return the seconds of some plans that can be, where links alone are others.

        `plan` has these links, and is else that of `scenario`; `places` are those in the order of
        all plans that were asked for.
        """
        assert self.evaluation
        return self.evaluation.seconds_under(plan, places)

    def best(self, count: int = 1) -> list[int]:
        """Return the places of the plans that fit with most samples a second, best first."""
        rate = np.where(self.fits, self.samples_per_s, -np.inf)
        order = np.argsort(-rate, kind="stable")[:count]
        return [int(i) for i in order if self.fits[i]]

    def at(self, place: int) -> dict[str, Any]:
        """Return the settings of one plan, as `paleo.simulate` takes them."""
        found = {name: values[place] for name, values in self.settings.items()}
        named = {
            name: each.item() if hasattr(each, "item") else each for name, each in found.items()
        }
        del named["dp"]
        return named


def plans(
    net: ScenarioLike,
    workers: int | Sequence[int] | None = None,
    **settings: Any,
) -> Plans:
    """Return the steps of all plans of these settings, as arrays.

    `tp`, `pp`, `micro_batch`, `recompute`, `zero`, `interleave`, `global_batch` and `workers` may
    be one value or several: there is a plan for each combination. Other settings are those of
    `paleo.simulate` on a cluster, of which each has one value. The numbers are those of one plan at
    a time, within rounding. Raises a PaleoError for what plans as arrays do not know, such as
    balanced stages, DualPipe or a data loader; plans that cannot be are no error: see `Plans`.

    >>> found = paleo.plans("gpt2", cluster="dgx_a100", workers=16, tp=[1, 2], global_batch=64)
    >>> found.settings["dp"].tolist(), bool(found.valid.all())
    ([16, 8], True)
    """
    evaluation = Evaluation(*asked_for(net, workers, settings))
    evaluation.all()
    return _evaluated(evaluation)


def fastest_plans(
    net: ScenarioLike,
    workers: int | Sequence[int] | None = None,
    *,
    count: int = 1,
    **settings: Any,
) -> Plans:
    """Return the plans of these settings that fit with most samples a second, best first.

    They are those of `plans(...).best(count)`, found without looking at all: groups of plans are
    looked at as long as they might have a better one, and memory is found of those alone that
    would be among the best (branch and bound; see paleo.studies.fastest for the bounds). Takes
    what `plans` takes, and raises the same.

    >>> found = fastest_plans("gpt2", 16, cluster="dgx_a100", tp=[1, 2], global_batch=64)
    >>> found.at(0)["tp"]
    1
    """
    with uncollected():
        evaluation = Evaluation(*asked_for(net, workers, settings))
        return _evaluated(evaluation, fastest(evaluation, count))


def asked_for(
    net: ScenarioLike, workers: int | Sequence[int] | None, settings: Mapping[str, Any]
) -> tuple[Scenario, dict[str, list[Any]]]:
    """Return a scenario of settings of which some may be several, and the values of these axes.

    Raises a PaleoError with what is wrong with any.
    """
    axes: dict[str, list[Any]] = {}
    given: dict[str, Any] = dict(settings)
    for name in _SEVERAL:
        value = given.pop(name, None)
        several = isinstance(value, Sequence) and not isinstance(value, str)
        axes[name] = list(value) if several else [value]
    counts = [None] if workers is None else listed("workers", workers, int)
    base = _checked(net, given, axes, counts)
    plan = base.plan
    check_known(plan, _KNOWN)
    axes = {
        name: [getattr(plan, name) if value is None else value for value in values]
        for name, values in axes.items()
    }
    axes["recompute"] = [find_recompute(value) for value in axes["recompute"]]
    axes["workers"] = list(base.workers if workers is None else counts)
    return base, axes


def _checked(
    net: ScenarioLike, given: Mapping[str, Any], axes: Mapping[str, list[Any]], counts: list[Any]
) -> Scenario:
    """Return a scenario of the first values; raises a PaleoError with what is wrong with any."""
    mistakes = Mistakes()
    once = {name: next((v for v in values if v is not None), None) for name, values in axes.items()}
    once = {name: value for name, value in once.items() if value is not None}
    if counts != [None]:
        once["workers"] = counts[0]
    asked = {**given, **once, "parallel": "mesh"}
    first = mistakes.check(functools.partial(scenario, net, **asked))
    known = declared(SimulateSettings)
    for name, values in axes.items():
        for value in values[1:]:
            if first and known[name].is_number:
                # What does not go with other settings is why a plan cannot be, no mistake here.
                mistakes.check(functools.partial(found_setting, known[name], value))
            elif first and value is not None:
                mistakes.check(functools.partial(first.changed, **{name: value}))
    mistakes.raise_as(PaleoError)
    assert first
    if len(first.workers) > 1 and counts == [None]:
        raise SettingError("workers: give how many devices there are")
    return first


def _evaluated(evaluation: Evaluation, places: Array | None = None) -> Plans:
    """Return the plans of an evaluation: all, or those at some places."""
    axes, columns = evaluation.axes, evaluation.columns
    if places is None:
        places = np.arange(evaluation.places.size)
    why = evaluation.reasons[places]
    parts = tuple(name for name in columns if name != "memory_bytes")
    found = {name: np.where(why == 0, columns[name][places], np.nan) for name in parts}
    found["step_s"] = sum((found[name] for name in parts), np.where(why == 0, 0.0, np.nan))
    memory = columns.get("memory_bytes")
    found["memory_bytes"] = np.zeros(len(places), np.int64) if memory is None else memory[places]
    on_axes = np.unravel_index(places, evaluation.places.shape)
    settings: dict[str, Array] = {
        name: np.array([*map(_plain, axes[name])])[own]
        for name, own in zip(AXES, on_axes, strict=True)
    }
    settings["micro_batch"] = evaluation.micros[places]
    settings["global_batch"] = evaluation.batches[places]
    settings["dp"] = evaluation.dps[places]
    base = evaluation.base
    tokens = tokens_of(base.plan.trained(base.net))
    said = tuple(evaluation.said)
    return Plans(
        *(base.net.name, base, settings, found, why, said, parts, tokens or None),
        evaluation=evaluation,
    )


def _plain(value: Any) -> Any:
    """Return a value of an axis as a number or a text, 0 where it follows from others."""
    return 0 if value is None else value if isinstance(value, int) else str(value)
