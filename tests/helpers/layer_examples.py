"""Layers of every type, with a value other than the default for every key in one of them.

Those of a type that is not here are the examples of its own docstring.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import paleo
from paleo.core.operations import Pass, Work
from paleo.net.graph import Node

PASSES = (Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)
IMAGE, SEQUENCE, VOLUME = [2, 6, 6, 4], [2, 6, 4], [2, 4, 6, 6, 4]
HEADS = [2, 3, 6, 4]
#: 6 positions, 4 heads of 5 features and 2 groups: of states of 3 numbers, and of keys of 3.
SPACES = ([2, 6, 4, 5], [2, 6, 4], [2, 6, 2, 3], [2, 6, 2, 3])
#: A decay for each head, and for each feature of a key.
DELTAS = ([2, 6, 2, 3], [2, 6, 2, 3], [2, 6, 4, 5], [2, 6, 4], [2, 6, 4])
FEATURE_DELTAS = (*DELTAS[:3], [2, 6, 4, 3], DELTAS[4])


class Example(NamedTuple):
    """A type, its keys, and the shapes of its parents."""

    kind: str
    keys: dict[str, Any]
    inputs: tuple[list[int], ...] = (IMAGE,)

    def __str__(self) -> str:
        return " ".join([self.kind, *self.keys])

    @property
    def layers(self) -> dict[str, Any]:
        """The layers of a net: inputs, and the example as "x"."""
        layers = {
            f"in{i}": {"type": "Input", "parents": [], "tensor": shape}
            for i, shape in enumerate(self.inputs)
        }
        parents = list(layers) if paleo.LAYERS[self.kind].num_parents != (0, 0) else []
        return {**layers, "x": {"type": self.kind, "parents": parents, **self.keys}}

    def net(self) -> paleo.NetSpec:
        return paleo.loads(json.dumps({"name": "n", "layers": self.layers}))


def over(**keys: Any) -> dict[str, Any]:
    """Return the keys of a 3x3 window in steps of 2, but for `keys`."""
    return {"strides": [1, 2, 2, 1], "padding": "SAME"} | keys


DRESSED = {"activation_fn": "relu", "normalizer_fn": "batch_norm", "bias": [8]}
EXAMPLES = [
    Example("Input", {"tensor": IMAGE}, ()),
    Example("Parameter", {"shape": [6, 4]}),
    Example("Parameter", {"shape": [3], "trainable": False}),
    Example("Convolution", over(filter=[3, 3, -1, 8])),
    Example("Convolution", over(filter=[3, 3, 4, 8], **DRESSED)),
    Example(
        "Convolution",
        {"filter": [3, 2, 8], "strides": [1, 1, 1], "padding": [[2, 1]], "groups": 2}
        | {"dilations": [1, 2, 1], "use_bias": False},
        (SEQUENCE,),
    ),
    Example(
        "Convolution",
        {"filter": [1, 3, 3, 4, 8], "strides": [1, 1, 2, 2, 1], "padding": [0, 1, 1]},
        (VOLUME,),
    ),
    Example("Convolution", over(filter=[3, 3, 2, 8], groups=2), (IMAGE, [2, 3, 3, 2, 8])),
    Example("Deconvolution", over(filter=[3, 3, 8, 4], output_shape=[-1, 12, 12, 8])),
    Example("Deconvolution", over(filter=[3, 3, 8, 4], output_shape=[2, 12, 12, 8], **DRESSED)),
    Example(
        "Deconvolution",
        over(filter=[3, 3, 8, 4], output_shape=[-1, 12, 12, 8], use_bias=False),
        (IMAGE, [2, 3, 3, 8, 4]),
    ),
    Example(
        "Deconvolution",
        {"filter": [3, 2, -1], "strides": [1, 2, 1], "padding": [1], "output_shape": [-1, 13, 4]}
        | {"dilations": [1, 2, 1], "groups": 2, "use_bias": True},
        (SEQUENCE,),
    ),
    Example("Pooling", over(ksize=[1, 2, 2, 1])),
    Example("Pooling", over(ksize=[1, 2, 2, 1], rounding="ceil", dilations=[1, 2, 2, 1])),
    Example("Pooling", {"ksize": [1, 2, 1], "strides": [1, 2, 1], "padding": "VALID"}, (SEQUENCE,)),
    Example("AvgPool", over(ksize=[1, 2, 2, 1], padding=[1, 1])),
    Example(
        "AvgPool",
        {"ksize": [1, 2, 2, 2, 1], "strides": [1, 1, 1, 1, 1], "padding": [[0, 1], [1, 0], [1, 1]]}
        | {"rounding": "ceil", "dilations": [1, 1, 2, 2, 1]},
        (VOLUME,),
    ),
    Example("GlobalPooling", {}),
    Example("GlobalPooling", {"function": "maximum"}, (VOLUME,)),
    Example("UpSampling2D", {"ksize": [1, 2, 2, 1]}),
    Example("UpSampling2D", {"ksize": [1, 3, 1]}, (SEQUENCE,)),
    Example("Resize", {"size": [9, 12]}),
    Example("Resize", {"size": [3], "mode": "linear"}, (SEQUENCE,)),
    Example("InnerProduct", {"num_outputs": 8}),
    Example("InnerProduct", {"num_outputs": 8, "axis": -1, "use_bias": False}),
    Example("Experts", {"num_experts": 5, "num_outputs": 8}, (SEQUENCE,)),
    Example("Experts", {"num_experts": 20, "num_outputs": 8, "use_bias": False}, (SEQUENCE,)),
    Example("InnerProduct", {"num_outputs": 8, "weights": "int4", "group": 36}),
    Example("InnerProduct", {"num_outputs": 8, "weights": "nvfp4"}),
    Example("Experts", {"num_experts": 5, "num_outputs": 8, "load": 1.5}, (SEQUENCE,)),
    Example("Experts", {"num_experts": 5, "num_outputs": 8, "load": 1.5, "shared": 2}, (SEQUENCE,)),
    Example(
        "Experts", {"num_experts": 5, "num_outputs": 8, "weights": "fp8", "group": 4}, (SEQUENCE,)
    ),
    Example("TopK", {"k": 2}, (SEQUENCE,)),
    Example("Dispatch", {}, (SEQUENCE, [2, 6, 3])),
    Example("Dispatch", {"capacity": 1.5, "num_experts": 5}, (SEQUENCE, [2, 6, 3])),
    Example("Combine", {}, ([2, 6, 3, 4], [2, 6, 3])),
    Example("Combine", {}, ([2, 5, 6, 4], [2, 6, 3])),
    Example("AllReduce", {"group": "tensor"}, (SEQUENCE,)),
    Example("AllReduce", {"group": "tensor", "backward": True}, (SEQUENCE,)),
    Example("AllReduce", {"group": "tensor", "squares": 1}, (SEQUENCE,)),
    Example("AllGather", {"group": "tensor", "dim": 1, "ways": 4}, (SEQUENCE,)),
    Example("AllGather", {"group": "tensor", "dim": 1, "ways": 4, "again": False}, (SEQUENCE,)),
    Example("ReduceScatter", {"group": "tensor", "dim": 1, "ways": 3}, (SEQUENCE,)),
    Example("Ring", {"group": "context", "dim": 2, "ways": 2}, (HEADS,)),
    Example("Ring", {"group": "context", "dim": 2, "ways": 2, "seen": 6}, (HEADS,)),
    Example("Swap", {"group": "context", "joined": 2, "parted": 1, "ways": 3}, (HEADS,)),
    Example("AllToAll", {"group": "expert"}, (SEQUENCE,)),
    Example("AllToAll", {"group": "expert", "rows": [9]}, (SEQUENCE,)),
    Example("Embedding", {"num_embeddings": 50, "num_outputs": 8}, ([2, 6],)),
    Example("MatMul", {}, (SEQUENCE, [2, 4, 3])),
    Example("MatMul", {"transpose_a": True, "transpose_b": True}, ([2, 4, 6], [2, 3, 4])),
    Example("MatMul", {}, (HEADS, [2, 1, 4, 5])),
    Example("Einsum", {"equation": "nqhd,nkhd->nhqk"}, ([2, 6, 3, 4], [2, 5, 3, 4])),
    Example("Einsum", {"equation": "nij->nj"}, (SEQUENCE,)),
    Example("Einsum", {"equation": "nij,njk,nk->nj"}, (SEQUENCE, [2, 4, 3], [2, 3])),
    Example("Attention", {}, (HEADS, [2, 3, 5, 4], [2, 3, 5, 7])),
    Example("Attention", {"causal": True}, ([2, 6, 5, 4], HEADS, HEADS)),
    Example("Attention", {"causal": True, "best": 2}, (HEADS, HEADS, HEADS, [2, 1, 6, 1])),
    Example("SelectKeys", {"k": 2}, (HEADS, [2, 1, 5, 4], [2, 6, 3])),
    Example("Attention", {"causal": True, "window": 2}, ([2, 6, 5, 4], HEADS, HEADS)),
    Example("Attention", {"causal": True, "chunk": 4}, ([2, 6, 5, 4], HEADS, HEADS)),
    Example("Attention", {"sinks": True}, ([2, 6, 5, 4], HEADS, HEADS)),
    Example("Attention", {"alibi": True, "softcap": True}, ([2, 6, 5, 4], HEADS, HEADS)),
    Example("Attention", {"values_in_keys": True}, (HEADS, HEADS, [2, 3, 6, 2])),
    Example("RotaryEmbedding", {}, (HEADS,)),
    Example("RotaryEmbedding", {"rotated": 2}, (HEADS,)),
    Example("Similarity", {}, ([2, 6], [2, 6])),
    Example("Proposals", {"num_regions": 3, "num_compared": 5}, ([2, 6, 1], [2, 6, 4])),
    Example("Proposals", {"num_regions": 3, "num_values": 5}, (SEQUENCE,)),
    Example("RegionPooling", {"size": [2, 3]}, ([2, 8, 8, 6], [2, 8, 8, 6], [2, 5, 4])),
    Example("RegionPooling", {"size": [2, 3], "samples": 1}, ([2, 8, 8, 6], [2, 5, 4])),
    Example("RegionPooling", {"size": [2, 2], "mode": "maximum"}, ([2, 8, 8, 6], [2, 5, 4])),
    Example(
        "RegionPooling",
        {"size": [3, 2], "mode": "average", "position_sensitive": True},
        ([2, 8, 8, 12], [2, 5, 4]),
    ),
    Example("RNN", {"num_outputs": 5}, (SEQUENCE,)),
    Example(
        "GRU",
        {"num_outputs": 5, "num_layers": 2, "bidirectional": True, "num_biases": 1},
        (SEQUENCE,),
    ),
    Example("LSTM", {"num_outputs": 5, "num_biases": 0, "projection": 3}, (SEQUENCE,)),
    Example("LSTM", {"num_outputs": 5, "num_layers": 3, "bidirectional": True}, (SEQUENCE,)),
    Example("LSTM", {"num_outputs": 5, "num_biases": 1, "bidirectional": True}, (IMAGE,)),
    Example(
        "RNN",
        {"num_outputs": 5, "num_layers": 2, "bidirectional": True, "num_biases": 1},
        (SEQUENCE,),
    ),
    Example("SelectiveScan", {}, (SEQUENCE, SEQUENCE, [2, 6, 3], [2, 6, 3])),
    Example("SelectiveScan", {}, (SEQUENCE, SEQUENCE, [2, 6, 3], [2, 6, 3], SEQUENCE)),
    Example("StateSpaceDual", {}, SPACES),
    Example("StateSpaceDual", {"chunk": 4}, SPACES),
    Example("GatedDelta", {}, DELTAS),
    Example("GatedDelta", {"chunk": 4}, DELTAS),
    Example("GatedDelta", {"chunk": 4, "resumes": True}, FEATURE_DELTAS),
    Example("Dropout", {"dropout_keep_prob": 0.5}),
    Example("Activation", {"function": "relu"}),
    Example("Activation", {"function": "gelu", "custom": True}),
    Example("Gated", {}, (SEQUENCE, SEQUENCE)),
    Example("Gated", {"function": "gelu"}, (SEQUENCE,)),
    Example("PReLU", {}),
    Example("PReLU", {"shared": True}),
    Example("Sigmoid", {}),
    Example("Softmax", {"num_classes": 10}),
    Example("Softmax", {"dim": 2}),
    Example("Elementwise", {}),
    Example("Elementwise", {"function": "product"}, (IMAGE, [2, 1, 6, 1], [2, 4])),
    Example("Elementwise", {"adds_to_product": True}, (IMAGE, [2, 4])),
    Example("BatchNorm", {}),
    Example("BatchNorm", {"affine": False}),
    Example("Scale", {}),
    Example("Scale", {"bias_term": False}),
    Example("LRN", {"local_size": 3}),
    Example("LayerNorm", {"num_dims": 2}),
    Example("LayerNorm", {"affine": False, "bias_term": False}),
    Example("LayerNorm", {"custom": True}),
    Example("RMSNorm", {"num_dims": 2}),
    Example("RMSNorm", {"affine": False}),
    Example("GroupNorm", {"num_groups": 2}),
    Example("GroupNorm", {"num_groups": 4, "affine": False}),
    Example("InstanceNorm", {}),
    Example("InstanceNorm", {"affine": False}),
    Example("L2Norm", {}),
    Example("Concatenate", {"dim": 2}, (IMAGE, [2, 6, 3, 4])),
    Example("Slice", {"size": 2}),
    Example("Slice", {"dim": 1, "begin": 1, "size": 1, "step": 2, "keep_dim": False}),
    Example("Reshape", {"output_shape": [-1, 3, 12, -1]}),
    Example("Flatten", {}),
    Example("Transpose", {"perm": [0, 3, 1, 2]}),
    Example("Expand", {"output_shape": [-1, 5, 6, 4]}, ([2, 1, 4],)),
    Example("Pad", {"margins": [[1, 2], [0, 0], [3, 0]]}),
    Example("Rearrange", {}),
    Example("Rearrange", {"output_shape": [-1, 3, 3, 16]}),
    Example("Gather", {"output_shape": [-1, 3, 4]}, (SEQUENCE, [2, 3])),
    Example("Gather", {"output_shape": [-1, 3, 4], "distinct": True}, (SEQUENCE, [2, 3])),
    Example("Reduce", {"dims": [1, 2]}),
    Example("Reduce", {"dims": [3], "function": "maximum", "keep_dims": True}),
    Example("Loss", {"function": "hinge"}, ([2, 10], [2, 1])),
    Example("Loss", {"fused": True}, ([2, 6, 10], [2, 6])),
    Example("Loss", {"stepwise": True}, ([2, 6, 10], [2, 6])),
    Example("LinearCrossEntropy", {"num_outputs": 10}, (SEQUENCE, [2, 6])),
    Example(
        "LinearCrossEntropy",
        {"num_outputs": 10, "use_bias": True, "chunk": 5},
        (SEQUENCE, [2, 6]),
    ),
    Example("Accuracy", {}, ([2, 10], [2, 1])),
    Example("Unknown", {"operator": "NonMaxSuppression", "output_shape": [-1, 7, 4]}),
]


def documented() -> Iterator[Example]:
    """Yield the layers of the ```json blocks in docstrings of layer types, of that type."""
    for kind, layer in paleo.LAYERS.items():
        text = inspect.getdoc(layer) or ""
        for block in re.findall(r"^```json\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            given = json.loads(block)["layers"]
            for node in paleo.build(paleo.loads(block)).nodes:
                body = given.get(node.name, {})
                if body.get("type") == kind:
                    keys = {key: body[key] for key in layer.keys if key in body}
                    yield Example(kind, keys, tuple([*map(int, shape)] for shape in node.inputs))


EXAMPLES += documented()


def node_of(example: Example, batch: Any = None) -> tuple[paleo.Graph, Node]:
    graph = paleo.build(example.net(), batch)
    return graph, next(node for node in graph.nodes if node.name == "x")


def works(example: Example, batch: Any = None) -> tuple[Work, Work, Work]:
    graph, node = node_of(example, batch)
    forward, to_input, to_weights = (graph.work(node, direction) for direction in PASSES)
    return forward, to_input, to_weights
