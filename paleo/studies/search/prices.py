"""What situations and nets take: quantities by the ordinary formulas of nets, plans and memory."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.operations import Operation, Pass, Unpriced
from paleo.core.quantity import Array, np, total
from paleo.core.tensor import find_precision, num_elements
from paleo.costs import Time
from paleo.net.graph import Graph
from paleo.net.spaces.layered import Layered, NotAdditiveError, Situation
from paleo.net.spec import NetSpec
from paleo.step.memory import footprint
from paleo.step.optimizers import OPTIMIZERS
from paleo.step.parallelism.computations import Computations
from paleo.step.passes import BACKWARD, gradient_sum, handed, priced
from paleo.step.plan import Plan
from paleo.step.scenario import Scenario
from paleo.studies.search.dynamic import Grid
from paleo.studies.search.quantities import Asked
from paleo.studies.search.terms import Passes, Queue, Sum, Term, Updated, lead_behind
from paleo.studies.training import HOUR, Rates

#: Updates of so many numbers of parameters show whether their time is a line.
_LINE = 65
#: By less than this share a line is straight: sums are rounded.
_STRAIGHT = 1e-12
#: Totals of whole numbers are below this, so that sums of them are exact.
_MOST = 2**62


@dataclass(frozen=True)
class Measured:
    """A device that nets are timed on: a scenario there, and what an hour of it costs and takes."""

    scenario: Scenario
    rates: Rates

    @property
    def plan(self) -> Plan:
        """How a step is priced there."""
        return self.scenario.plan

    def factor(self, name: str, batch: int) -> float:
        """Return what a quantity is for each second of its time; raises SettingError."""
        device = self.plan.device.name
        if name.endswith("energy"):
            if self.rates.power is None:
                raise SettingError(f"{name}: the file of {device} has no power: give one")
            return self.rates.power / batch
        if name.endswith("cost"):
            if self.rates.price is None:
                raise SettingError(f"{name}: nobody says what {device} costs: give a price")
            return 1e6 * self.rates.price.amount / HOUR / batch
        return 1.0


@dataclass(frozen=True)
class Nets:
    """What nets take, at one batch size: each of `devices` by its name, None for the first."""

    devices: Mapping[str | None, Measured]
    batch: int

    @property
    def plan(self) -> Plan:
        """How a step is priced on the first device."""
        return self.devices[None].plan

    def values(self, net: NetSpec, asked: Iterable[Asked]) -> dict[str, float]:
        """Return quantities of a net as they are for it alone; raises a PaleoError."""
        found: dict[str, float] = {}
        graph = self.plan.graph(net, self.batch, training=False)
        for each in asked:
            measured = self.devices[each.device]
            if each.quantity.source:
                seconds = self._seconds(net, measured, each.quantity.source)
                found[str(each)] = seconds * measured.factor(each.name, self.batch)
            elif each.name == "memory":
                found[each.name] = int(footprint(net, self.batch, **self.plan.in_memory).peak)
            else:
                of_node = functools.partial(counted, each.name, graph)
                found[each.name] = sum(map(of_node, range(len(graph.nodes))))
        return found

    def _seconds(self, net: NetSpec, measured: Measured, source: str) -> float:
        plan = measured.plan
        if source == "pass":
            return float(plan.inference(plan.graph(net, self.batch, training=False)).upper)
        return float(Computations(net, plan).of(self.batch).seconds)


def counted(name: str, graph: Graph, place: int) -> int:
    """Return a quantity of a node of a graph that no device changes."""
    node = graph.nodes[place]
    if name == "params":
        return node.num_params
    if name == "weights":
        return graph.precision.parameter_size * node.num_params
    if name == "layers":
        return int(node.num_params > 0)
    if name == "activations":
        return int(graph.element_size * num_elements(node.output))
    return int(sum(each.flops for each in graph.operations(node, Pass.FORWARD)))


class Terms:
    """The terms of quantities over the layers of a space."""

    def __init__(self, nets: Nets, layers: Layered, grid: Grid) -> None:
        self.nets, self.layers, self.grid = nets, layers, grid
        plan = nets.plan
        self.graph = Graph("", tuple(each.node for each in layers.situations), plan.dtype)

    def of(self, asked: Asked) -> Term:
        """Return the term of a quantity; raises NotAdditiveError if it is none."""
        if not asked.quantity.is_additive:
            raise NotAdditiveError(
                f"{asked.name}: it is not additive, since what is there at the same time decides: "
                "bound weights and activations, which are"
            )
        if not asked.quantity.source:
            return self._counts(asked.name)
        measured = self.nets.devices[asked.device]
        factor = measured.factor(asked.name, self.nets.batch)
        return self._time(asked.device, asked.quantity.source, factor)

    @functools.cache  # noqa: B019 (it lives as long as a search)
    def _counts(self, name: str) -> Sum:
        values = [
            0 if each.is_extra else counted(name, self.graph, place)
            for place, each in enumerate(self.layers.situations)
        ]
        if sum(values) * len(self.grid.before) >= _MOST:
            raise NotAdditiveError(f"{name}: sums over layers are too large to be exact")
        return Sum(np.array([*values, 0], np.int64))

    @functools.cache  # noqa: B019 (it lives as long as a search)
    def _time(self, device: str | None, source: str, factor: float) -> Term:
        plan = self.nets.devices[device].plan
        check_additive(plan)
        is_step = source == "step"
        forward, forward_kernels = self._pass(plan, (Pass.FORWARD,))
        nothing = np.zeros_like(forward)
        if not is_step:
            trains = np.array([*(each.is_extra for each in self.layers.situations), False])
            forward, forward_kernels = (
                np.where(trains, 0, each) for each in (forward, forward_kernels)
            )
        backward, backward_kernels = self._pass(plan, BACKWARD) if is_step else (nothing, nothing)
        target = plan.target
        host = float(plan.cost_model.host(target)) if not plan.graphs else 0.0
        if host and plan.use_pipeline and plan.cost_model.pipelines:
            raise NotAdditiveError(
                "use_pipeline: with a host that is waited for it is not additive"
            )
        slope, constant, update = self._update(plan, factor) if is_step else (0.0, 0.0, None)
        passes = Passes(
            factor * forward,
            forward_kernels,
            factor * backward,
            backward_kernels,
            slope * self._counts("params").of,
            factor * host,
        )
        term: Term = Sum(passes.seconds, constant)
        if host:
            kernels = self.grid.from_start(backward_kernels, most=True)
            term = Queue(passes, constant, self._leads(passes), kernels)
        if update is None:
            return term
        return Updated(term, self._counts("params"), update, int(self._ends("params")[0]))

    def _ends(self, name: str) -> tuple[float, float]:
        """Return the least and the most of a count of all nets."""
        of = self._counts(name).of
        return self.grid.to_end(of)[0][0], -self.grid.to_end(-of)[0][0]

    def _update(
        self, plan: Plan, factor: float
    ) -> tuple[float, float, Callable[[Array], Array] | None]:
        """Return the seconds of an update for each parameter, and besides, if they are a line.

        Else there is a function of parameters. Each is times the `factor`.
        """
        least, most = map(int, self._ends("params"))
        counts = np.unique(np.linspace(least, most, _LINE).astype(np.int64))
        seconds = np.broadcast_to(plan.update(counts), counts.shape)
        if np.ptp(np.broadcast_to(plan.update(counts, 37), counts.shape) - seconds):
            raise NotAdditiveError(
                f"optimizer_kernels: updates of {plan.optimizer} are counted by tensors here: that "
                "is not additive"
            )
        slope = float(seconds[-1] - seconds[0]) / max(most - least, 1)
        line = seconds[0] + slope * (counts - least)
        if abs(line - seconds).max() <= _STRAIGHT * seconds[-1]:
            return factor * slope, factor * float(seconds[0] - slope * least), None
        return 0.0, 0.0, lambda params: factor * np.broadcast_to(plan.update(params), params.shape)

    def _leads(self, passes: Passes) -> list[Array]:
        """Return by how much a device comes to each state after its host at least."""
        grid = self.grid
        found = [np.zeros(1)]
        for k, situations in enumerate(grid.situation):
            here = np.full(self.layers.states[k + 1], np.inf)
            behind = lead_behind(passes, found[k][grid.before[k]], situations)
            np.minimum.at(here, grid.after[k], behind)
            found.append(here)
        return found

    def _pass(self, plan: Plan, directions: tuple[Pass, ...]) -> tuple[Array, Array]:
        """Return the seconds of passes in each situation, and the kernels that a host hands over.

        All of them are priced at once, as the layers of a net are.
        """
        groups = [self._operations(each, directions) for each in self.layers.situations]
        every = list(itertools.chain(*groups))
        target = replace(plan.target, training=True)
        prices = priced(every, target, plan.cost_model) if every else ()
        each = iter(prices)
        times, kernels = [], []
        for group in groups:
            own = [next(each) for _ in group]
            times.append(plan.seconds(sum(own, Time())))
            pairs = zip(group, own, strict=True)
            kernels.append(total(handed(operation, time) for operation, time in pairs))
        return np.array([*times, 0.0], float), np.array([*kernels, 0], float)

    def _operations(self, each: Situation, directions: tuple[Pass, ...]) -> list[Operation]:
        needed = each.needed if Pass.FORWARD not in directions else None
        found: list[Operation] = []
        for direction in directions:
            if direction is Pass.INPUT_GRADIENT and each.sums:
                size = each.node.computing(self.graph)
                added = gradient_sum(size * num_elements(each.node.output))
                found += [added] * each.sums
            found += self.graph.operations(each.node, direction, needed)
        return [operation for operation in found if not isinstance(operation, Unpriced)]


def check_additive(plan: Plan) -> None:
    """Raise NotAdditiveError for settings by which layers are not priced one by one."""
    said = {
        "framework": plan.framework is not None,
        "fuse": plan.fuse,
        "compile": plan.compile,
        "recompute": plan.recompute.mode != "none",
        "accumulate": plan.accumulate > 1,
        "dtype": find_precision(plan.dtype).scaling is not None,  # casts that layers share
        "optimizer": OPTIMIZERS[plan.optimizer].by_matrix,
    }
    names = [name for name, is_so in said.items() if is_so]
    if names:
        raise NotAdditiveError(
            f"{names[0]}: with it a layer's time depends on the layers around: it is not additive"
        )
