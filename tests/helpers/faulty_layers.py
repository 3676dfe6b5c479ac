"""Layers with one mistake each, and what Paleo says of it; how to write such layers and nets."""

from __future__ import annotations

import json
from math import inf, nan
from typing import Any

DATA = {"type": "Input", "parents": [], "tensor": [2, 8, 8, 3]}
ONE = [1, 1, 1, 1]
LEFT_OUT = "left out"


def layer(kind: str, **keys: Any) -> dict[str, Any]:
    found = {"type": kind, "parents": ["data"], **keys}
    return {name: value for name, value in found.items() if value != LEFT_OUT}


def conv(**keys: Any) -> dict[str, Any]:
    """A 3x3 convolution that fits, but for the `keys`."""
    return layer(
        "Convolution", **{"filter": [3, 3, 3, 4], "strides": ONE, "padding": "SAME"} | keys
    )


def flat(*parents: str) -> dict[str, Any]:
    return layer("Flatten", parents=list(parents))


def deconv(**keys: Any) -> dict[str, Any]:
    right = {"filter": [5, 5, 4, 3], "strides": [1, 2, 2, 1], "output_shape": [2, 16, 16, 4]}
    return layer("Deconvolution", **{"padding": "SAME"} | right | keys)


def pool(**keys: Any) -> dict[str, Any]:
    return layer("Pooling", **{"strides": ONE, "padding": "VALID"} | keys)


def block(**layers: Any) -> dict[str, Any]:
    return layer("Block", layers=layers)


def split(splits: Any = 2, **layers: Any) -> dict[str, Any]:
    return layer("ModelParallel", layers=layers, splits=splits)


def net(**layers: Any) -> str:
    return json.dumps({"name": "net", "layers": {"data": DATA, **layers}})


#: The layer "c" after "data" of 2x8x8x3; the key at fault (if there is one) and the message.
LAYERS: list[tuple[Any, str]] = [
    (3, ": expected an object, got 3"),
    ({"parents": ["data"]}, "type: expected a layer type, it is missing"),
    (layer("") | {"type": 3}, "type: expected a layer type, got 3"),
    (layer("Flaten"), "type: unknown layer type \"Flaten\" (did you mean 'Flatten'?)"),
    (conv(bais=None), "bais: unknown key (did you mean 'bias'?)"),
    (conv(filter=LEFT_OUT), "filter: missing; it is [R, S, C, K]"),
    (conv(filter="3x3"), 'filter: expected [R, S, C, K], got "3x3"'),
    (conv(filter=[3, 3]), "filter: expected [R, S, C, K], or 1 or 3 sizes in the place of R, S;"),
    (conv(filter=[0, 3, 3, 4]), "filter: expected 1 or more, got 0"),
    (conv(filter=[3, 3, 3, -4]), "filter: expected 1 or more, got -4"),
    (conv(filter=[3, 3, 3, 4.5]), "filter: expected a whole number, got 4.5"),
    (conv(filter=[3, 3, 3, True]), "filter: expected a whole number, got true"),
    (conv(strides=[1, 0, 1, 1]), "strides: expected 1 or more, got 0"),
    (conv(strides=2), "strides: expected [1, height, width, 1], got 2"),
    (conv(strides=[1, 1]), "strides: expected [1, height, width, 1], or 1 or 3 sizes between the "),
    (conv(strides=[1, 1, 1]), "strides: it has 1 spatial dimension, the window has 2"),
    (conv(padding=[1, 1, 1]), "padding: it has 3 spatial dimensions, the window has 2"),
    (conv(padding=[[1, 1]] * 4), 'padding: expected "VALID", "SAME", [p_h, p_w] or [[top, '),
    (conv(padding=[[1, 1, 1]]), "padding: expected [before, after], got [1, 1, 1]"),
    (conv(dilations=[1, 2, 1]), "dilations: it has 1 spatial dimension, the window has 2"),
    (conv(groups=2), "groups: 3 channels and 4 filters do not divide into 2 groups"),
    (conv(use_bias="no"), 'use_bias: expected true or false, got "no"'),
    (deconv(use_bias="no"), 'use_bias: expected true or false or null, got "no"'),
    (
        conv(filter=[3, 3, 3, 3, 4], strides=[1] * 5),
        ": its input must be N x D x H x W x C, got 2x8x8x3",
    ),
    (conv(strides=[2, 1, 1, 1]), "strides: expected [1, height, width, 1] (whole in batch and"),
    (
        conv(padding="same"),
        (
            'padding: expected "VALID", "SAME", [p_h, p_w] or [[top, bottom], [left, right]], '
            'got "same"'
        ),
    ),
    (conv(padding=[0, -1]), "padding: expected 0 or more, got -1"),
    (conv(activation_fn=3), "activation_fn: expected a name or null, got 3"),
    (conv(bias="yes"), 'bias: expected a list such as [K], got "yes"'),
    (layer("Activation", function="rleu"), "function: unknown \"rleu\" (did you mean 'relu'?)"),
    (layer("BatchNorm", affine=1), "affine: expected true or false, got 1"),
    (layer("GroupNorm", num_groups=2), "num_groups: 3 channels do not divide into 2 groups"),
    (layer("LayerNorm", num_dims=4), "num_dims: 2x8x8x3 has no 4 dimensions besides the batch"),
    (layer("Transpose", perm=[0, 1, 1]), "perm: expected an order of dimensions in which 0 is fir"),
    (layer("Transpose", perm=[1, 0]), "perm: expected an order of dimensions in which 0 is first"),
    (layer("Transpose", perm=[0, 2, 1]), "perm: expected an order of 4 dimensions, as 2x8x8x3 has"),
    (layer("Slice", size=4), "size: it ends behind dimension 3 of 2x8x8x3"),
    (layer("Slice", dim=1, begin=2, size=3, step=3), "size: it ends behind dimension 1 of 2x8x8x3"),
    (layer("Slice", dim=4, size=1), "dim: there is no dimension 4 in 2x8x8x3"),
    (layer("Slice", dim=0, size=1), "dim: expected 1 or more, got 0"),
    (layer("Slice", dim=8, size=1), "dim: expected 1 to 7, or -1, got 8"),
    (layer("Softmax", dim=4), "dim: there is no dimension 4 in 2x8x8x3"),
    (layer("InnerProduct", num_outputs=3, axis=5), "axis: there is no dimension 5 in 2x8x8x3"),
    (layer("Reduce", dims=[]), "dims: expected different dimensions from 1 to 7, got []"),
    (layer("Reduce", dims=[1, 1]), "dims: expected different dimensions from 1 to 7, got [1, 1]"),
    (layer("Reduce", dims=[4]), "dims: there is no dimension 4 in 2x8x8x3"),
    (layer("Reduce", dims=1), "dims: expected a list of dimensions, such as [1, 2], got 1"),
    (layer("Pad", margins=[[1, 1]]), "margins: expected 3 pairs, for 2x8x8x3, got 1"),
    (layer("Pad", margins=[1]), "margins: expected [before, after], got 1"),
    (layer("Pad", margins=[]), "margins: expected a list of [before, after], got []"),
    (
        layer("Expand", output_shape=[-1, 9, 8, 3]),
        "output_shape: 2x8x8x3 cannot be repeated to [-1, 9, 8, 3]",
    ),
    (
        layer("Rearrange", output_shape=[-1, 8]),
        "output_shape: 2x8x8x3 cannot become [-1, 8]",
    ),
    (layer("Resize", size=[1, 1, 1, 1]), "size: there are at most 3 spatial dimensions"),
    (layer("Einsum", equation="nhwc"), 'equation: expected an equation such as "nij,njk->nik", '),
    (layer("Einsum", equation=3), 'equation: expected an equation such as "nij,njk->nik", got 3'),
    (
        layer("Einsum", equation="nhhc->nc"),
        'equation: expected an equation such as "nij,njk->nik", each letter once in a term and ',
    ),
    (layer("Einsum", equation="nhwc->ncx"), 'equation: expected an equation such as "nij,njk->'),
    (
        layer("Einsum", equation="hnwc->nc"),
        "equation: expected an equation whose terms all begin with the batch, got ",
    ),
    (layer("Einsum", equation="nhc->nc"), "equation: nhc has 3 dimensions, its input 2x8x8x3"),
    (layer("Einsum", equation="na,nb->n"), "equation: it has 2 terms, and there are 1 parents"),
    (layer("MatMul"), "parents: MatMul takes 2 parents, got 1"),
    (layer("Attention", parents=["data"] * 4), ": a mask of 2x8x8x3 is none of 8 x 8"),
    (layer("Attention", parents=["data"] * 5), "parents: "),
    (
        layer("Gather", parents=["data"] * 3, output_shape=[-1, 2]),
        "parents: Gather takes 1 to 2 parents, got 3",
    ),
    (
        layer("Gather", output_shape=[-1, 9, 8, 3], distinct=True),
        "output_shape: it picks 9 different rows, such as positions, of 8",
    ),
    (
        layer("MatMul", parents=["data", "data"]),
        ": it cannot multiply 2x8x8x3, 2x8x8x3: 3 is not 8",
    ),
    (
        layer("Attention", parents=["data"] * 2 + ["d"]),
        'parents: there is no layer "d"',
    ),
    (
        layer("Attention", parents=["data"] * 3, causal=True, window=2, chunk=2),
        ": a query sees a window of keys or those of its chunk, not both",
    ),
    (layer("Attention", parents=["data"] * 3, chunk=0), "chunk: expected 1 or more, got 0"),
    (layer("Attention", parents=["data"] * 3, best=2), ": the best keys are chosen by a fourth pa"),
    (layer("SelectKeys", parents=["data"] * 3, k=2), ": its parents must be N x H x T x d, N x 1 "),
    (layer("SelectKeys", parents=["data"] * 3, k=0), "k: expected 1 or more, got 0"),
    (layer("Gated"), ": 3 elements are no gate and as many others"),
    (layer("RotaryEmbedding"), "rotated: 3 elements are no pairs"),
    (layer("RotaryEmbedding", rotated=4), "rotated: 2x8x8x3 has fewer than 4 elements to"),
    (layer("Experts", num_outputs=4), "num_experts: missing"),
    (layer("Experts", num_outputs=4, num_experts=2, load="od"), 'load: expected "even" or a nu'),
    (layer("Experts", num_outputs=4, num_experts=2, load=0), 'load: expected "even" or a num'),
    (layer("SelectiveScan"), "parents: SelectiveScan takes 4 to 5 parents, got 1"),
    (layer("SelectiveScan", parents=["data"] * 4), ": its parents must be N x L x D twice, N x L"),
    (layer("StateSpaceDual", parents=["data"] * 4), ": its parents must be N x L x H x P, N x L "),
    (layer("StateSpaceDual", parents=["data"] * 4, chunk=0), "chunk: expected 1 or more, got 0"),
    (layer("GatedDelta", parents=["data"] * 5), ": its parents must be twice N x L x G x d, N x "),
    (layer("LinearCrossEntropy", num_outputs=4), "parents: LinearCrossEntropy takes 2 parents"),
    (
        layer("LinearCrossEntropy", parents=["data"] * 2, num_outputs=4),
        ": its parents must be N x ... x D and labels of N x ..., got 2x8x8x3, 2x8x8x3",
    ),
    (layer("InnerProduct", num_outputs=4, weights="int5"), 'weights: unknown "int5" (did you mean'),
    (
        layer("InnerProduct", num_outputs=4, group=8),
        "group: a group shares a scale of weights in f",
    ),
    (
        layer("Experts", num_experts=2, num_outputs=4, weights="mxfp4", group=8),
        "group: mxfp4 has groups of 32, not of 8",
    ),
    (layer("TopK", k=4), "k: of 3 scores it cannot take 4"),
    (layer("TopK", k=0), "k: expected 1 or more, got 0"),
    (layer("Dispatch"), "parents: Dispatch takes 2 parents, got 1"),
    (
        layer("Dispatch", parents=["data"] * 2, capacity=2),
        "num_experts: with a capacity, the number of experts is needed",
    ),
    (
        layer("Dispatch", parents=["data"] * 2, capacity=-1),
        "capacity: expected a number above 0, up to 1000, or null, got -1",
    ),
    (layer("Similarity"), "parents: Similarity takes 2 parents, got 1"),
    (
        layer("Similarity", parents=["data", "data"]),
        ": its inputs must be N x D each, got 2x8x8x3, 2x8x8x3",
    ),
    (
        layer("RegionPooling", parents=["data", "data"], size=[2, 2]),
        ": its regions must be N x R x 4, got 2x8x8x3",
    ),
    (layer("Parameter", shape=[2]), "parents: Parameter takes no parents, got 1"),
    (layer("Parameter", parents=[], shape=[]), "shape: expected a list of 1 or more whole numbers"),
    (
        layer("Parameter", parents=[], shape=[1] * 8),
        "shape: 1x1x1x1x1x1x1x1x1 has 9 dimensions, 8 are the most",
    ),
    (flat("data") | {"shares": 3}, "shares: expected the name of a layer, got 3"),
    (flat("data") | {"dtype": "int9"}, 'dtype: expected an element type, got "int9"'),
    (flat("data") | {"dtype": 8}, "dtype: expected an element type, got 8"),
    (
        flat("data") | {"shares": "dato"},
        "shares: there is no layer \"dato\" (did you mean 'data'?)",
    ),
    (
        flat("data") | {"shares": "c"},
        "shares: name the layer that the parameters belong to, which shares nobody's",
    ),
    (layer("InnerProduct", num_outputs=0), "num_outputs: expected 1 or more, got 0"),
    (layer("Dropout", dropout_keep_prob=0), "dropout_keep_prob: expected a number above 0, up to"),
    (layer("Dropout", dropout_keep_prob=nan), "dropout_keep_prob: expected a number above 0, up"),
    (DATA | {"tensor": [2]}, "tensor: expected a list of 2 or more whole numbers (8 at most), "),
    (DATA | {"tensor": True}, "tensor: expected a list of 2 or more whole numbers, got true"),
    (DATA | {"tensor": [2, inf]}, "tensor: expected a whole number, got Infinity"),
    (DATA | {"tensor": [2, nan]}, "tensor: expected a whole number, got NaN"),
    (DATA | {"tensor": [2, 10**30]}, f"tensor: {10**30} is too large to mean anything"),
    (DATA | {"tensor": [2, *[2**31 - 1] * 2]}, ": 9.22e+18 elements in its output are too many"),
    (DATA | {"parents": ["data"]}, "parents: Input takes no parents, got 1"),
    (conv(parents=[]), "parents: it has no parents"),
    (conv(parents=LEFT_OUT), "parents: expected a list of layer names, it is missing"),
    (conv(parents="data"), 'parents: expected a list of layer names, got "data"'),
    (conv(parents=[1]), "parents: expected a list of layer names, got [1]"),
    (conv(parents=["data"] * 3), "parents: Convolution takes 1 to 2 parents, got 3"),
    (
        conv(parents=["data", "data"]),
        "parents: its second parent must be a filter of 3x3x3x4, got 8x8x3",
    ),
    (flat("dato"), "parents: there is no layer \"dato\" (did you mean 'data'?)"),
    (flat("ä"), 'parents: there is no layer "ä"'),
    (flat("c"), "parents: a cycle: c -> c"),
    (conv(filter=[3, 3, 5, 4]), "filter: the filter takes 5 channels, the input has 3"),
    (conv(filter=[9, 3, 3, 4], padding="VALID"), "filter: a window of 9 is larger than its padded"),
    (pool(ksize=[1, 9, 1, 1]), "ksize: a window of 9 is larger than its padded input of 8"),
    (pool(ksize=[1, 1, 11, 1], padding=[1, 1]), "ksize: a window of 11 is larger than its padded "),
    (layer("Reshape", output_shape=[-1, 7]), "output_shape: 2x8x8x3 cannot become [-1, 7]"),
    (layer("Concatenate", dim=4), "dim: there is no dimension 4 in 2x8x8x3"),
    (deconv(output_shape=[2, 20, 16, 4]), "output_shape: an output of 20x16 needs an input of 10x"),
    (deconv(filter=[5, 5, 4, 7]), "filter: the filter takes 7 channels, the input has 3"),
    (deconv(filter=[5, 5, 6, 3]), "filter: the filter gives 6 channels, output_shape 4"),
    (flat("data@all"), 'parents: "@all" of "data", a layer that is not split'),
    (flat("data@self"), 'parents: "@self" of "data", a layer that is not split'),
    (block(), "layers: it is empty"),
    (layer("Block"), "layers: it is missing"),
    (
        block(last=flat()) | {"endpoint": "lst"},
        "endpoint: there is no layer \"lst\" in this block (did you mean 'last'?)",
    ),
    (split(0, x=flat()), "splits: expected 1 or more, got 0"),
    (split("2", x=flat()), 'splits: expected a whole number, got "2"'),
    (split(10**6, x=flat()), "splits: 1000000 slices are too many to mean anything"),
]
