"""An executor that runs nothing: its clock goes on by what the cost model says, with some noise."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from paleo.cluster import Device
from paleo.core.errors import ExecutorError, Mistake
from paleo.core.operations import LAYER_PASSES, Pass
from paleo.costs import Target, find_cost_model
from paleo.measure.calibrate import Point
from paleo.measure.calibrate.points import in_turn
from paleo.measure.executors import Executor, LayerRun, NetRun
from paleo.net.graph import Graph, Node
from paleo.step.passes import BACKWARD, estimate_pass, update_time
from paleo.step.passes import FORWARD as FORWARDS

#: The forward pass, and all passes.
FORWARD, ALL = ("forward",), tuple(each.value for each in LAYER_PASSES)


def point(kind: str, layer: Mapping[str, Any], *inputs: tuple[int, ...], **more: Any) -> Point:
    return Point(kind, json.dumps(layer), inputs, **more)


def _convolution(width: int) -> dict[str, Any]:
    return {
        "type": "Convolution",
        "filter": [width, width, 64, 96],
        "strides": [1, 1, 1, 1],
        "padding": "SAME",
    }


_SIZES = ((128, 1024, 1024), (1, 4096, 4096), (256, 256, 256), (2048, 64, 64), (512, 768, 768))
_RELU = {"type": "Activation", "function": "relu"}
#: A few of every kind, in an order that is not theirs to be measured in.
POINTS = tuple(
    in_turn(
        [
            *(
                point(
                    "product", {"type": "InnerProduct", "num_outputs": n}, (m, k),
                    parts=ALL, reference=not i,
                )
                for i, (m, n, k) in enumerate(_SIZES)
            ),
            *(
                point("convolution", _convolution(width), (2, side, side, 64), reference=not i)
                for i, (width, side) in enumerate(((3, 56), (1, 56), (1, 14), (3, 14), (5, 28)))
            ),
            *(
                point("copy", {"type": "Concatenate"}, *((1, size),) * 2, reference=not i)
                for i, size in enumerate((2**23, 2**12, 2**17, 2**20, 2**15))
            ),
            *(
                point("pointwise", _RELU, (2, side, side, 64), parts=ALL[:2])
                for side in (112, 14, 28, 56)
            ),
            point("launch", _RELU, (1, 64), parts=ALL[:2]),
            point("launch", {"type": "Elementwise"}, (1, 64), (1, 64)),
            point("launch", {"type": "InnerProduct", "num_outputs": 8}, (1, 8)),
        ]
    )
)  # fmt: skip


class Modelled(Executor):
    """A machine that is exactly a device with these constants of `tiled`, but for noise.

    `noise` is the standard deviation of the logarithm of each run. From run number `slow_from` on,
    and before `slow_until`, everything takes twice as long; run number `interrupt_at` is
    interrupted. Layers of the types `unknown` cannot be built. One that `joins` makes all gradients
    of a layer at once.
    """

    name = "modelled"
    summary = "runs nothing"

    def __init__(
        self,
        device: Device,
        constants: Mapping[str, float],
        *,
        noise: float = 0.0,
        place: str = "cuda",
        dtype: str = "fp32",
        hardware: str = "",
        slow_from: int | None = None,
        slow_until: float = math.inf,
        interrupt_at: int | None = None,
        unknown: tuple[str, ...] = (),
        joins: bool = False,
    ) -> None:
        self.target = Target(device, dtype, 1.0, constants)
        self.noise = noise
        self.place = place
        self._hardware = hardware or device.title
        self.slow_from, self.slow_until = slow_from, slow_until
        self.interrupt_at = interrupt_at
        self.unknown, self.joins = unknown, joins
        self.random = random.Random(1)
        self.now = 0.0
        self.runs = 0

    def make(self, place: str | None, dtype: str) -> Executor:
        """Return this executor: what `paleo.measure.calibrate.calibrate` wants."""
        return self

    def clock(self) -> float:
        return self.now

    @property
    def hardware(self) -> str:
        return self._hardware

    @property
    def versions(self) -> Mapping[str, str]:
        return {"modelled": "1.0"}

    def _run(self, seconds: float) -> None:
        self.runs += 1
        if self.runs == self.interrupt_at:
            raise KeyboardInterrupt
        if self.slow_from is not None and self.slow_from <= self.runs < self.slow_until:
            seconds *= 2
        self.now += seconds * math.exp(self.random.gauss(0, self.noise))

    def layer(self, graph: Graph, node: Node, needed: tuple[bool, ...]) -> LayerRun:
        if node.type_name in self.unknown:
            raise ExecutorError(Mistake(f"modelled knows no {node.type_name}", None, node.name))
        model = find_cost_model("tiled")

        def timed(direction: Pass) -> Callable[[], None]:
            operations = graph.operations(node, direction, needed)
            if self.joins and direction is Pass.WEIGHT_GRADIENT:
                operations += graph.operations(node, Pass.INPUT_GRADIENT, needed)
            seconds = sum(float(model.price(each, self.target).total) for each in operations)
            return lambda: self._run(seconds)

        directions = [Pass.FORWARD, Pass.INPUT_GRADIENT]
        if node.num_params:
            directions = [Pass.FORWARD, Pass.WEIGHT_GRADIENT] if self.joins else list(LAYER_PASSES)
        update = float(update_time(node.num_params, self.target, model).total)
        return LayerRun(
            {direction: timed(direction) for direction in directions},
            (lambda: self._run(update)) if node.num_params else None,
            joins=self.joins and bool(node.num_params),
        )

    def net(self, graph: Graph) -> NetRun:
        return _Net(self, graph)

    def synchronize(self) -> None:
        pass


class _Net(NetRun):
    """A net whose passes take what the cost model says."""

    def __init__(self, executor: Modelled, graph: Graph) -> None:
        model = find_cost_model("tiled")
        self.executor = executor
        self.seconds = {}
        for training in (False, True):
            target = replace(executor.target, training=training)
            directions = (FORWARDS, BACKWARD) if training else (FORWARDS,)
            self.seconds[training] = sum(
                float(estimate_pass(graph, each, target, model, training=training).upper)
                for each in directions
            )
        self.seconds[True] += float(update_time(graph.num_params, executor.target, model).total)

    def infer(self) -> None:
        self.executor._run(self.seconds[False])

    def step(self, mark: Callable[[str], object] = lambda part: None) -> None:
        self.executor._run(self.seconds[True])
