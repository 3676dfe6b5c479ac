"""Which plan is best: of all ways to share a net, of devices and their numbers, of batches.

Every combination of what is tried is evaluated as arrays, so that the best is the best of them.
Training is of devices that share a net (paleo.studies.plans) or have copies of it, inference of one
device; what a plan costs is as paleo.studies.metrics has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Unpack

from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.units import scale_for
from paleo.net.graph import typical
from paleo.net.load import load
from paleo.net.spec import NetSpec
from paleo.step.declarations import check_names, declared
from paleo.step.scenario import Scenario, ScenarioLike, SimulateSettings, asked
from paleo.step.settings import found_settings
from paleo.step.utilization import tokens_of
from paleo.studies.datasets import Schedule, takes_images
from paleo.studies.planning.candidates import Candidates, data_parallel, inference, on_mesh
from paleo.studies.planning.question import Question, found_limits
from paleo.studies.planning.search import Search
from paleo.studies.planning.sensitivity import changes, sureness
from paleo.studies.planning.serving import PLACES, USUAL_CLUSTERS, find_model, serving
from paleo.studies.planning.settings import (
    AXES,
    DATA,
    MESH,
    OBJECTIVES,
    OF_MESH,
    PlanningSettings,
    asks_inference,
    check_together,
)
from paleo.studies.planning.values import Alternative, Change, FoundPlan, Planning, Sureness
from paleo.studies.training import Rates, check_tokens, rates_of, schedule_of

__all__ = [
    "OBJECTIVES",
    "Alternative",
    "Change",
    "FoundPlan",
    "Planning",
    "PlanningSettings",
    "Sureness",
    "best_plans",
]

#: Plans that are returned.
COUNT = 10
#: Of reasons why plans cannot be, so many are said where none can.
_REASONS = 5
#: Classes of ImageNet, with and without one for the background.
_IMAGENET = (1000, 1001)


def best_plans(
    net: ScenarioLike, count: int = COUNT, **settings: Unpack[PlanningSettings]
) -> Planning:
    """Return the best plans of a net, `count` at most, and what is to be said of them.

    Settings of `paleo.simulate` and `paleo.metrics` mean the same; of which plans have each their
    own value there may be several, and what is not given is enumerated: see docs/plan.md. Raises a
    PaleoError with every mistake, and if no plan can be, fits, or keeps to the limits.

    >>> found = paleo.best_plans(
    ...     "resnet50", device=["T4", "L4"], objective="cost", latency="10 ms", batch_size=[1, 4]
    ... )
    >>> found.best.place, found.best.batch, found.considered, found.feasible
    ('L4', 4, 4, 3)
    """
    mistakes = Mistakes()
    known = declared(PlanningSettings)
    check_names(known, settings, mistakes)
    given: dict[str, Any] = {
        name: value for name, value in settings.items() if name in known and value is not None
    }
    importing = settings.get("importing")
    spec = net.net if isinstance(net, Scenario) else mistakes.check(load, net, importing)
    found = found_settings(PlanningSettings, given, mistakes, base=SimulateSettings)
    if not mistakes:
        check_together(found, mistakes)
    schedule = schedule_of(found, mistakes)
    mistakes.raise_as(PaleoError)
    assert spec is not None
    assert schedule is not None
    model = mistakes.check(find_model, spec, importing) if found["serve"] else None
    mistakes.raise_as(PaleoError)
    if model is None:
        found["parallel"] = _parallel(found, spec)
    else:
        given = {name: given[name] for name in PLACES if name in given} | {"workers": 1}
        if not given.keys() & {"device", "cluster"}:
            given["cluster"] = USUAL_CLUSTERS
    once = {name: value for name, value in given.items() if name not in AXES}
    plain = {name: once[name] for name in declared(SimulateSettings) if name in once}
    plain |= {} if asks_inference(found) else {"parallel": found["parallel"]}
    scenarios, _ = asked(
        net if isinstance(net, Scenario) else spec, SimulateSettings, plain, mistakes
    )
    schedule, notes = mistakes.check(_with_dataset, schedule, spec) or (schedule, ())
    for each in scenarios:
        mistakes.check(check_tokens, schedule, each)
    rates = [
        rates_of(each.plan.device, found["price"], found["prices"], found["power"])
        for each in scenarios
    ]
    question = mistakes.check(_question, found, schedule, rates)
    mistakes.raise_as(PaleoError)
    assert question is not None
    every: list[Candidates] = []
    for one, own in zip(scenarios, rates, strict=True):
        if model is None:
            every += mistakes.check(_candidates, one, own, found) or []
        else:
            every += mistakes.check(serving, model, one, own, found) or []
    mistakes.raise_as(PaleoError)
    return _planning(Search(question, tuple(every)), count, notes)


def _parallel(found: Mapping[str, Any], net: NetSpec) -> str:
    """Return how devices share a step: as asked, or as suits the net and what else is given."""
    if found["parallel"] is not None:
        return str(found["parallel"])
    if any(found[name] is not None for name in OF_MESH):
        return MESH
    return MESH if tokens_of(net) and found["accumulate"] is None else DATA


def _candidates(scenario: Scenario, rates: Rates, found: Mapping[str, Any]) -> list[Candidates]:
    """Return all plans of a scenario; raises a PaleoError for what none of them can have."""
    axes = {name: found[name] for name in AXES if found[name] is not None}
    if isinstance(axes.get("sequence_parallel"), bool):
        axes["sequence_parallel"] = [axes["sequence_parallel"]]
    if asks_inference(found):
        return list(inference(scenario, rates, axes))
    make = on_mesh if found["parallel"] == MESH else data_parallel
    return list(make(scenario, rates, axes, found["max_devices"]))


def _with_dataset(schedule: Schedule, net: NetSpec) -> tuple[Schedule, tuple[str, ...]]:
    """Return a schedule whose epochs are of some dataset; raises SettingError if none is known.

    A net that sorts images into as many classes as ImageNet has is trained on that.
    """
    if schedule.epochs is None or schedule.size is not None:
        return schedule, ()
    last = [node.output[-1] for node in typical(net, "fp32").nodes[-3:]]
    if not takes_images(net) or not set(last) & set(_IMAGENET):
        raise SettingError("epochs: of which dataset? Give --dataset or --dataset_size, too")
    said = "epochs are of imagenet, whose classes the net has: --dataset or --dataset_size"
    return replace(schedule, dataset="imagenet"), (said,)


def _question(found: dict[str, Any], schedule: Schedule, rates: list[Rates]) -> Question:
    """Return what is asked; raises SettingError for what cannot be answered by these prices."""
    serves = asks_inference(found)
    prices = [own.price for own in rates if own.price]
    currencies = sorted({price.currency for price in prices})
    counts_money = found["objective"] == "cost" or found["budget"] is not None
    if counts_money and not prices:
        raise SettingError("price: none is known of these devices: give --price or --prices")
    if counts_money and len(currencies) > 1:
        raise SettingError(
            f"price: amounts in {' and '.join(currencies)} do not compare: give --price or --prices"
        )
    if found["objective"] == "energy" and not any(own.power for own in rates):
        raise SettingError("power: none is known of these devices: give --power")
    currency = currencies[0] if len(currencies) == 1 else ""
    objective = found["objective"] or ("throughput" if found["serve"] else "time")
    question = Question(objective, (), schedule, serves, currency)
    return replace(question, limits=found_limits(found, question, currency))


def _planning(search: Search, count: int, notes: tuple[str, ...]) -> Planning:
    """Return what there is to say; raises a PaleoError if no plan can be taken."""
    scored, every = search.scored, search.every
    considered = sum(plans.considered for plans in every)
    refused: Counter[str] = Counter()
    for plans in every:
        refused.update(plans.refused)
    possible = len(scored.scores)
    if not possible:
        _none_can_be(considered, refused).raise_as(SettingError)
    best = scored.best()
    if best is None:
        _none_keeps(search).raise_as(SettingError)
    assert best is not None
    ranked = search.ranked(max(1, count))
    return Planning(
        question=search.question,
        plans=tuple(map(search.plan, ranked)),
        considered=considered,
        possible=possible,
        fitting=int(scored.fits.sum()),
        feasible=int(scored.feasible.sum()),
        refused=dict(refused.most_common()),
        front=tuple(map(search.plan, search.front())),
        alternatives=tuple(search.alternatives(ranked[0])),
        changes=tuple(changes(search, best)),
        sureness=sureness(search),
        notes=tuple(dict.fromkeys([*notes, *_notes(search)])),
    )


def _none_can_be(considered: int, refused: Counter[str]) -> Mistakes:
    """Return why no plan of a search can be: the most frequent reasons."""
    said = [f"no plan can be: {considered:,} were considered"]
    most = refused.most_common(_REASONS)
    said += [f"{times:,} of them: {reason}" for reason, times in most]
    if len(refused) > len(most):
        said.append(f"and {len(refused) - len(most):,} more reasons")
    found = Mistakes()
    for line in said:
        found.add(line)
    return found


def _none_keeps(search: Search) -> Mistakes:
    """Return by how much the plan that comes nearest misses, and how many miss what."""
    scored, limits = search.scored, search.question.limits
    count = len(scored.scores)
    misses = {"memory": int((~scored.fits).sum())}
    misses |= {
        limit.name: int((~keeps).sum()) for limit, keeps in zip(limits, scored.keeps, strict=True)
    }
    counts = ", ".join(f"{number:,} by {name}" for name, number in misses.items() if number)
    found = Mistakes()
    found.add(f"no plan keeps to all limits: of {count:,}, {counts} do not")
    miss = search.nearest_miss()
    if miss is None:
        return found
    place, values = miss
    units = {limit.name: limit.dimension or limit.currency for limit in limits}
    plan = search.plan(place)
    for name, (value, most) in values.items():
        unit = "bytes" if name == "memory" else units[name]
        taken, limit_said = _in_unit(value, unit, value), _in_unit(most, unit, most)
        share = value / most
        by = f"{share:,.0f} times as much" if share >= 2 else f"{100 * (share - 1):.2g} % too much"
        found.add(f"{name}: the nearest needs {taken} of {limit_said}, {by}: {plan.options}")
    return found


def _in_unit(value: float, unit: str, like: float) -> str:
    """Return a number in the unit that suits one like it."""
    if unit in ("bytes", "s"):
        scale = scale_for([[like]], "duration" if unit == "s" and like >= 600 else unit)
        return f"{value / scale.factor:.4g} {scale.unit}"
    return f"{value:,.4g} {unit}".rstrip()


def _notes(search: Search) -> Iterator[str]:
    """Yield what a reader should know of how plans were found."""
    question = search.question
    for plans in search.every:
        plan, net = plans.scenario.plan, plans.scenario.net
        if not plans.serves_requests:
            yield from net.notes
        yield from plan.notes_on(net)
        yield from plans.scenario.notes
        yield from plans.rates.notes
    sizes = {
        int(size)
        for plans in search.every
        if len(plans)
        for size in (plans.batch.min(), plans.batch.max())
    }
    if not question.serves and len(sizes) > 1:
        yield (
            "steps of plans differ in samples: how many more epochs a larger batch needs is not "
            "modelled; --global_batch gives all the same, --max_batch the most"
        )
    for limit in question.limits:
        if limit.name == "max_batch":
            yield f"steps have at most {int(limit.most):,} samples (--max_batch)"
    optimizers = {plans.scenario.plan.optimizer for plans in search.every}
    if not question.serves and optimizers == {"sgd"} and tokens_of(search.every[0].scenario.net):
        yield "the optimizer is sgd, which keeps no state: --optimizer=adamw keeps 8 bytes a weight"
