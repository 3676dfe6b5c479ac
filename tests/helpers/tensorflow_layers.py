"""Layers and graphs for the tests of TensorFlow's executor."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import numpy as np

import paleo
from paleo.core.operations import Pass
from paleo.measure.executors import LayerRun

Array = Any
_RANDOM = np.random.default_rng(5)


def normal(*shape: int) -> Array:
    return _RANDOM.normal(size=shape).astype(np.float32)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def normalized(x: Array, dims: Any) -> Array:
    """Return what has mean 0 and variance 1 over some dimensions."""
    variance = x.var(dims, keepdims=True)
    return (x - x.mean(dims, keepdims=True)) / np.sqrt(variance + 1e-5)


def close(found: Array, wanted: Array) -> bool:
    return bool(np.allclose(found, wanted, rtol=1e-4, atol=1e-5))


def made(kind: str, *shapes: tuple[int, ...], **keys: Any) -> Any:
    """Return a layer as a net file has it; inputs of a smaller batch are parameters."""
    batch = max(shape[0] for shape in shapes)
    layers: dict[str, Any] = {
        f"in{i}": {"type": "Input", "tensor": list(shape)}
        if shape[0] == batch
        else {"type": "Parameter", "shape": list(shape[1:])}
        for i, shape in enumerate(shapes)
    }
    layers["x"] = {"type": kind, "parents": list(layers), **keys}
    net = paleo.loads(json.dumps({"name": "n", "layers": layers}))
    return next(spec.layer for spec in net.layers if spec.name == "x")


def computed(
    kind: str, *xs: Array, ws: tuple[Array, ...] = (), training: bool = True, **keys: Any
) -> Array:
    """Return what a layer gives for these inputs and parameters."""
    import_module("paleo.measure.executors.tensorflow.executor")  # registers what layers are
    blocks: Any = import_module("paleo.measure.executors.tensorflow.builders")
    tf: Any = import_module("tensorflow")
    shapes = tuple(x.shape for x in xs)
    layer = made(kind, *shapes, **keys)
    block = blocks.block_of(tf, tf.float32, layer, shapes)
    assert [each.shape for each in block.parameters] == [w.shape for w in ws]
    states = [tf.Variable(tf.fill(each.shape, each.start)) for each in block.statistics]
    scene = blocks.Scene(tf, tf.float32, training)

    @tf.function(autograph=False)
    def run(*tensors: Any) -> Any:
        return block.run(scene, tensors[: len(xs)], tensors[len(xs) :], states)

    result = run(*map(tf.constant, (*xs, *ws))).numpy()
    assert result.shape == layer.infer_shape(shapes)
    return result


PERCEPTRON = {
    "data": {"type": "Input", "tensor": [2, 3]},
    "fc": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 4},
}


def graph_of(layers: dict[str, Any], dtype: str = "fp32") -> paleo.Graph:
    return paleo.build(paleo.loads(json.dumps({"name": "n", "layers": layers})), dtype=dtype)


def one(layer: dict[str, Any], *inputs: list[int], dtype: str = "fp32") -> paleo.Graph:
    """Return a graph of inputs and one layer, "x"."""
    layers: dict[str, Any] = {
        f"in{i}": {"type": "Input", "tensor": shape} for i, shape in enumerate(inputs)
    }
    layers["x"] = {"parents": list(layers), **layer}
    return graph_of(layers, dtype)


def run_all(run: LayerRun) -> dict[Pass, Any]:
    """Run every pass twice, and the update, and return what each pass gave."""
    found = {}
    for direction, call in run.passes.items():
        call()
        found[direction] = call()
    if run.update is not None:
        run.update()
        run.update()
    return found
