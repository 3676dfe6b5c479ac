"""Model parallelism: the slices of a split net on devices of their own, one batch."""

from __future__ import annotations

from collections.abc import Sequence

from paleo.core.quantity import Quantity
from paleo.net.graph import Graph, Node
from paleo.net.spec import NetSpec
from paleo.step.parallelism.base import PARALLELISMS, Asked, Parallelism, Prediction
from paleo.step.parallelism.fetch import fetches_of, num_slices
from paleo.step.passes import PassTime
from paleo.step.pieces import Field, Piece, Step
from paleo.step.plan import Plan
from paleo.step.timeline.drawing import Drawing, Schedule, Span
from paleo.step.timeline.kernels import flows_between, pass_pieces, placed

_FIELDS = (
    Field("pass", lambda step: step.label, "pass"),
    Field("lower_s", lambda step: step.total(), "lower bound", "s", banded="time"),
    Field("upper_s", lambda step: step.busy, "upper bound", "s", banded="time"),
)


def model_parallel(net: NetSpec, plan: Plan, batch_size: Quantity) -> tuple[Step, Step]:
    """Return the forward and the backward pass. There is no update and no exchange.

    `total()` of a pass are the seconds with all branches and slices at once, `busy` those with one
    after another. Pipelining has no effect. Every layer is charged for inputs from other devices
    in both passes. Raises SettingError or NetSpecError.
    """
    forward, backward = (
        Step(
            1,
            batch_size,
            batch_size,
            (Piece(name, name, passed.lower, time=passed.time, busy=passed.upper),),
            _FIELDS,
            label=name,
            band=plan.band,
        )
        for name, passed in _passes(plan.graph(net, batch_size), plan)
    )
    return forward, backward


def _passes(graph: Graph, plan: Plan) -> list[tuple[str, PassTime]]:
    """Return the passes by name."""
    if plan.cost_model.conventions.model_fetches_from_memory:
        bandwidth = plan.device.rates_2017.memory_bandwidth
    else:
        bandwidth = plan.link_bandwidth(max(1, num_slices(graph)))
    passes = plan.in_turn.passes(graph, fetches_of(graph, plan, bandwidth))
    return list(zip(("forward", "backward"), passes, strict=True))


class ModelParallelism(Parallelism):
    """Each slice on a device; both passes of one batch, without updates."""

    name = "model"
    trains = False
    splits = True
    total_label = ("pass", "both")

    def predict(self, asked: Asked) -> Prediction:
        """Return both passes."""
        notes = []
        if not asked.net.splits:
            notes.append("the net has no split layers: bounds differ by parallel branches only")
        if asked.plan.cost_model.conventions.model_fetches_from_memory:
            notes.append(
                "in this cost model, model parallelism fetches at the device's memory "
                "bandwidth: network and pipelining have no effect"
            )
        steps = model_parallel(asked.net, asked.plan, asked.batch_size)
        return Prediction(tuple(step.of_floats() for step in steps), tuple(notes))

    def schedule(
        self, net: NetSpec, plan: Plan, steps: Sequence[Step], scheme: str | None
    ) -> Schedule:
        """Return both passes, every node as early as what it depends on allows."""
        graph = plan.graph(net, steps[0].batch_size)
        conventions = plan.cost_model.conventions
        remote, slices = conventions.slice_zero_is_remote, num_slices(graph)
        if remote:
            devices = ("unsplit layers", *(f"slice {i}" for i in range(slices)))
        else:
            first = "unsplit layers and slice 0" if slices else "unsplit layers"
            devices = (f"device 0, {first}", *(f"device {i}, slice {i}" for i in range(1, slices)))
        from_memory = conventions.model_fetches_from_memory
        network = "at memory bandwidth" if from_memory else plan.network.name

        def device(node: Node) -> int:
            return 0 if node.shard is None else node.shard + remote

        def span(name: str, passed: PassTime) -> Span:
            def draw(drawing: Drawing, start: float) -> None:
                layers = pass_pieces(passed, name, lambda node: devices[device(node)], network)
                events = {
                    layer.node.index: drawing.add(device(layer.node), pieces)
                    for layer, pieces in placed(graph, layers, name, start)
                }
                drawing.flows += flows_between(layers, events, name)

            return Span([Piece(f"{name}, lower bound", name, passed.lower)], draw)

        return Schedule(devices, [span(*named) for named in _passes(graph, plan)], {})


PARALLELISMS.add(ModelParallelism.name, ModelParallelism())
