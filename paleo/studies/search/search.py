"""The best net of a design space: of all nets where that can be proven, else of samples."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Unpack

from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import np, total
from paleo.net.graph import infer_nodes
from paleo.net.spaces import SPACES, Design, Space, find_design
from paleo.net.spaces.design import with_choices
from paleo.net.spaces.layered import NotAdditiveError, layered
from paleo.net.spec import NetSpec
from paleo.step.scenario import Scenario, ScenarioLike, asked
from paleo.studies.fronts import undominated
from paleo.studies.search.dynamic import Grid, Point, Solver, Wanted
from paleo.studies.search.misses import nearest_of, said_infeasible
from paleo.studies.search.prices import Measured, Nets, Terms
from paleo.studies.search.quantities import Asked, Constraint, Goal, joined
from paleo.studies.search.results import (
    ADDITIVE,
    EACH,
    SAMPLED,
    ChosenLayer,
    FoundNet,
    Search,
)
from paleo.studies.search.settings import SearchSettings
from paleo.studies.summary import summarize
from paleo.studies.training import rates_of

#: What is said of every net, if it is not asked for anyway.
_SAID = ("params", "flops", "layers")
#: A net alone takes what sums over states say, within this share: sums are in another order.
_SAME = 1e-9


@dataclass(frozen=True)
class _Task:
    """A space, what is asked of it, and what its nets take."""

    space: Space
    nets: Nets
    goal: Goal
    constraints: tuple[Constraint, ...]
    front: tuple[Goal, ...]

    @functools.cached_property
    def asked(self) -> tuple[Asked, ...]:
        """The quantities that decide."""
        goals = (self.goal, *self.front)
        every = (*(goal.asked for goal in goals), *(each.asked for each in self.constraints))
        return tuple(dict.fromkeys(every))

    @functools.cached_property
    def shown(self) -> tuple[Asked, ...]:
        """Those, and what is said of every net."""
        return tuple(dict.fromkeys([*self.asked, *map(Asked, _SAID)]))

    @property
    def is_inference(self) -> bool:
        """Whether it is about inference."""
        return self.goal.asked.quantity.source == "pass"

    @functools.cached_property
    def wanted(self) -> Wanted:
        """It for the search along states."""
        goals = {str(goal.asked): goal.most for goal in (self.goal, *self.front)}
        return Wanted(goals, joined(self.constraints))


@dataclass(frozen=True)
class _Answer:
    """Nets that are best: of a front several, the best by the objective first."""

    points: list[Point]
    how: str
    valid: int | None
    evaluated: int
    notes: tuple[str, ...] = ()


def search(net: ScenarioLike | None = None, **settings: Unpack[SearchSettings]) -> Search:
    """Return the best net of a design space of a net, exactly where it is additive.

    `space` is one of `paleo.net.spaces.SPACES`, a file, or a table of choices, and `vary` further
    choices, as texts "LAYER.KEY[INDEX]=VALUE,...". None for the net takes the one that the space
    names. `objective` is what the best has least of (or "most ..."), each `constraint` what it
    keeps to; with `front` there are also all nets of which none is better in these and in the
    objective. Other settings are those of a training step on one device. Where a space or a
    quantity is not additive, `samples` nets are evaluated, or with `exact` that is an error. Raises
    a PaleoError with every mistake, and with what the nearest net misses where none keeps to all
    constraints.

    >>> choices = {"conv8.filter[3]": [192, 384], "conv9.filter[3]": [192, 384, "none"]}
    >>> found = paleo.search("nin_227", space={"choices": choices}, constraint="params>=7.5e6")
    >>> found.count, found.is_exact, found.best.choices["conv8.filter[3]"]
    (6, True, '384')
    """
    task, scenario, original, exact, samples, seed = _task(net, settings)
    try:
        answer = _along_states(task)
    except NotAdditiveError as error:
        count = task.space.count
        if exact and count > samples:
            raise SettingError(
                f"{error}; --samples={count} would evaluate all of its nets one by one"
                if count <= 1_000_000
                else f"{error}; without --exact samples are evaluated"
            ) from None
        answer = _one_by_one(task, samples, seed, str(error))
    best, *_ = answer.points
    found = FoundNet(task.space, best.places, {})
    values = task.nets.values(found.net, (*task.shown, *_memory(task)))
    best_net = replace(found, values=values)
    front = [FoundNet(task.space, point.places, point.values) for point in answer.points]
    return Search(
        space=task.space,
        scenario=scenario,
        net=original,
        goal=task.goal,
        constraints=task.constraints,
        front_goals=task.front,
        best=best_net,
        original=_values_of(task, original),
        front=tuple(front) if task.front else (),
        layers=tuple(_chosen(best_net, scenario, backward=not task.is_inference)),
        how=answer.how,
        valid=answer.valid,
        evaluated=answer.evaluated,
        devices=task.nets.devices,
        notes=tuple(dict.fromkeys([*answer.notes, *_notes(task, scenario, best_net)])),
    )


def _task(
    net: ScenarioLike | None, settings: Mapping[str, Any]
) -> tuple[_Task, Scenario, NetSpec, bool, int, int]:
    """Return what settings mean; raises a PaleoError with every mistake."""
    mistakes = Mistakes()
    original = net if net is not None else mistakes.check(_own_net, settings.get("space"))
    # Settings are checked even where there is no net, so that all mistakes are said at once.
    stand_in = NetSpec("", ()) if original is None else original
    scenarios, found = asked(stand_in, SearchSettings, settings, mistakes)
    design: Design | None = found["space"]
    choices = found["vary"]
    if original is not None and not (mistakes or design or choices):
        mistakes.add(f"space: name a design space ({', '.join(SPACES)}), or vary the net")
    mistakes.raise_as(PaleoError)
    (scenario,) = scenarios
    if scenario.plan.is_mesh:
        mistakes.add("search: it is of one device: leave out what shares a net among several")
    space = mistakes.check(with_choices(design, choices).of, scenario.net)
    if scenario.batch_size is None:
        scenario = replace(scenario, batch_size=_own_batch(scenario.net))
    goal, constraints, front = found["objective"], found["constraint"], found["front"]
    mistakes.check(joined, constraints)
    names = [each.asked.device for each in (goal, *constraints, *front)]
    devices: dict[str | None, Scenario] = {None: scenario}
    for name in dict.fromkeys(names):
        if name is not None:
            other = mistakes.check(functools.partial(scenario.changed, device=name))
            devices[name] = other or scenario
    if space and (twice := _twice(space)):
        mistakes.add(f"space {space.name}: the choice {twice} is there twice")
    mistakes.raise_as(PaleoError)
    assert space
    measured: dict[str | None, Measured] = {
        name: Measured(
            each,
            rates_of(
                each.plan.device,
                found["price"] if name is None else None,
                found["prices"],
                found["power"] if name is None else None,
            ),
        )
        for name, each in devices.items()
    }
    assert isinstance(scenario.batch_size, int)
    task = _Task(space, Nets(measured, scenario.batch_size), goal, constraints, front)
    for each in task.asked:
        mistakes.check(measured[each.device].factor, each.name, task.nets.batch)
    mistakes.raise_as(PaleoError)
    return task, scenario, scenario.net, found["exact"], found["samples"], found["seed"]


def _own_net(space: Any) -> NetSpec:
    if space is None:
        raise SettingError("net: name a net, or a space that has one")
    return find_design(space).own_net


def _own_batch(net: NetSpec) -> int:
    nodes = infer_nodes(net, Mistakes())
    return int(next(node.output[0] for node in nodes if node.layer.is_input))


def _twice(space: Space) -> str | None:
    names = [choice.name for choice in space.choices]
    return next((name for name in names if names.count(name) > 1), None)


def _along_states(task: _Task) -> _Answer:
    """Return the best of all nets, by states of layers; raises NotAdditiveError, SettingError."""
    plan, space = task.nets.plan, task.space
    trained = plan.computable(plan.trained(space.net))
    own = {spec.name for spec in space.net.layers}
    extra = {spec.name for spec in trained.layers} - own
    if len(trained.layers) - len(extra) != len(own):
        raise NotAdditiveError(f"loss: with {plan.loss} in place of a layer it is not additive")
    for measured in task.nets.devices.values():
        if measured.plan.unknown_dtypes(space.net) != plan.unknown_dtypes(space.net):
            raise NotAdditiveError("dtype: devices compute layers in different types: not additive")
    layers = layered(
        replace(space, net=trained),
        task.nets.batch,
        plan.adapt,
        first_convolutions_skip=plan.cost_model.conventions.only_first_convolutions_skip,
        extra=extra,
    )
    grid = Grid(layers)
    terms = Terms(task.nets, layers, grid)
    solver = Solver(grid, {str(each): terms.of(each) for each in task.asked}, len(space.choices))
    points = solver.found(task.wanted)
    if not points:
        raise SettingError(said_infeasible(solver, task.constraints, task.wanted.bounds, space))
    points = _in_order(points, task.goal)
    _check(task, points[0])
    return _Answer(points, ADDITIVE, layers.valid, 0)


def _check(task: _Task, best: Point) -> None:
    """Raise NotAdditiveError where a net alone takes something else than the sums say."""
    alone = task.nets.values(task.space.net_of(best.places), task.asked)
    for name, value in alone.items():
        if abs(value - best.values[name]) > _SAME * abs(value):
            raise NotAdditiveError(
                f"{name}: the best by sums over layers takes {value:.9g}, not "
                f"{best.values[name]:.9g}: it is not additive"
            )


def _one_by_one(task: _Task, samples: int, seed: int, why: str) -> _Answer:
    """Return the best of the nets of a space that are evaluated, all of them or samples."""
    places, values, misfits = [], [], Mistakes()
    for each in task.space.sampled(samples, seed):
        try:
            net = task.space.net_of(each)
            found = task.nets.values(net, task.asked)
        except PaleoError as error:
            misfits.include(error)
            continue
        places.append(each)
        values.append(found)
    if not places:
        misfits.raise_as(PaleoError, most=3)
    keeps = [
        place
        for place, found in enumerate(values)
        if not any(each.missed(found[str(each.asked)]) for each in task.constraints)
    ]
    is_whole = samples >= task.space.count
    if not keeps:
        of = "" if is_whole else f" of the {len(places):,} that were looked at"
        raise SettingError(nearest_of(values, task.constraints, of))
    goals = (task.goal, *task.front)
    columns = [
        np.array([(-1 if goal.most else 1) * values[i][str(goal.asked)] for i in keeps])
        for goal in goals
    ]
    kept = [keeps[int(i)] for i in undominated(columns)]
    points = [Point(places[i], values[i]) for i in kept]
    notes = [] if is_whole else [f"samples, not all nets: {why}"]
    if misfits:
        notes.append(f"nets that cannot be are left out; the first: {misfits.found[0]}")
    how = EACH if is_whole else SAMPLED
    return _Answer(
        _in_order(points, task.goal),
        how,
        len(places) if is_whole else None,
        len(places),
        tuple(notes),
    )


def _in_order(points: Iterable[Point], goal: Goal) -> list[Point]:
    """Return points, the best by the objective first."""
    sign = -1 if goal.most else 1
    return sorted(points, key=lambda point: sign * point.values[str(goal.asked)])


def _memory(task: _Task) -> tuple[Asked, ...]:
    """Return the memory of training as something to be said, if it is known of such nets."""
    try:
        task.nets.values(task.space.net, [Asked("memory")])
    except PaleoError:
        return ()
    return (Asked("memory"),)


def _values_of(task: _Task, net: NetSpec) -> Mapping[str, float] | None:
    try:
        return task.nets.values(net, (*task.shown, *_memory(task)))
    except PaleoError:
        return None


def _notes(task: _Task, scenario: Scenario, best: FoundNet) -> Iterator[str]:
    plan = scenario.plan
    yield from plan.notes_on(scenario.net)
    capacity, memory = plan.device.memory_capacity, best.values.get("memory")
    if capacity is not None and memory is not None and memory > capacity:
        yield f"training the best net takes more memory than {plan.device.name} has"
    if any(each.name in ("energy", "cost") for each in task.asked):
        yield from task.nets.devices[None].rates.notes
    if not task.goal.most and not any(each.least is not None for each in task.constraints):
        labels = set(best.choices.values())
        if "none" in labels and not task.front:
            yield (
                "layers are left out since nothing asks for them: a constraint such as "
                "'layers>=12' or 'params>=4e6', or --front=params, does"
            )


def _chosen(best: FoundNet, scenario: Scenario, *, backward: bool) -> Iterator[ChosenLayer]:
    """Yield what is chosen at each place, with what the layers there take, `backward` too."""
    summary = summarize(replace(scenario, net=best.net))
    for choice, place in zip(best.space.choices, best.places, strict=True):
        option = choice.options[place]
        patterns = dict.fromkeys(
            itertools.chain(
                (setting.layer for each in choice.options for setting in each.settings),
                (name for each in choice.options for name in each.remove),
            )
        )
        own = [
            layer
            for layer in summary.layers
            if any(fnmatchcase(layer.name, pattern) for pattern in patterns)
        ]
        if not own:
            yield ChosenLayer(choice.name, option.label)
            continue
        yield ChosenLayer(
            choice.name,
            option.label,
            own[-1].output,
            sum(layer.num_params for layer in own),
            int(sum(layer.forward_flops for layer in own)),
            float(total(layer.forward or 0.0 for layer in own))
            + backward * float(total(layer.backward or 0.0 for layer in own)),
        )
