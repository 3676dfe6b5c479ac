"""TensorFlow 2 as an executor: graphs of its own operators, on CPUs and NVIDIA's GPUs.

What each layer is, is in `layers` and `elementwise`; how layers and nets are
traced and run, in `run`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from paleo.core.errors import ExecutorError, Mistakes
from paleo.core.tensor import num_elements
from paleo.measure.executors.executor import LayerRun, NetRun
from paleo.measure.executors.tensorflow import elementwise, layers
from paleo.measure.executors.tensorflow.builders import Block, block_of
from paleo.measure.executors.tensorflow.run import RunningLayer, RunningNet, running_parameter
from paleo.measure.executors.tensorflow.runtime import TensorFlowRuntime
from paleo.net.graph import Graph, Node

del elementwise, layers  # imported for what they register


class TensorFlow(TensorFlowRuntime):
    """TensorFlow's graphs, as a tf.function makes them; XLA is not used.

    In mixed precision parameters are fp32, and each layer casts those that it reads; gradients are
    not scaled. On a GPU, memory is taken as it is needed, and products of fp32 are rounded to tf32
    only if that is the element type; both hold for the whole process.
    """

    name: ClassVar[str] = "tensorflow"
    summary: ClassVar[str] = "TensorFlow 2.16 or newer, on a CPU or a CUDA device"

    def layer(self, graph: Graph, node: Node, needed: tuple[bool, ...]) -> LayerRun:
        """Return a layer in training, each pass run once.

        A pass that moves nothing is missing: TensorFlow's reshapes are views. A time has in it
        what the call of an operator from Python takes, some ten microseconds.
        """
        self.check_batch(graph)
        if node.layer.is_input:
            return LayerRun({})
        with self.telling(node), self.on_device():
            if node.layer.is_source():
                self.check_memory(_layer_bytes(graph, node, 0), node.name)
                return running_parameter(self, node)
            block = self.block(node)
            self.check_memory(_layer_bytes(graph, node, block.makes), node.name)
            return RunningLayer(self, node, block, needed).ready()

    def net(self, graph: Graph) -> NetRun:
        """Return a whole net; its graphs are traced when they are first run."""
        self.check_batch(graph)
        mistakes = Mistakes()
        blocks = [
            None if node.layer.is_source() else mistakes.check(self.block, node)
            for node in graph.nodes
        ]
        mistakes.raise_as(ExecutorError)
        return RunningNet(self, graph, blocks)

    def block(self, node: Node) -> Block:
        """Return what a node is; raises ExecutorError."""
        inputs: Any = node.inputs  # whole numbers: the batch is no array
        with self.telling(node):
            return block_of(self.tf, self.computing, node.layer, inputs)


def _layer_bytes(graph: Graph, node: Node, makes: int) -> int:
    """Return the bytes of a layer's tensors and parameters, and of their gradients."""
    elements = makes + sum(map(num_elements, (*node.inputs, node.output)))
    parameters = node.layer.num_params(node.inputs)
    return int(2 * (graph.element_size * elements + graph.precision.parameter_size * parameters))
