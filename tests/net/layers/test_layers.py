"""Shapes, parameters and work of the newer layer types, derived by hand.

tests/core/test_operations.py has those of the first types.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from layer_examples import HEADS, IMAGE, PASSES, SEQUENCE, Example, node_of, works

import paleo
from paleo.core.operations import Pass, Work

#: FLOPs, then elements read and written.
Counts = tuple[int, int, int]
NONE = (0, 0, 0)


def plain(rank: int, padding: Any) -> dict[str, Any]:
    """Return strides of 1, and no bias."""
    return {"strides": [1] * (rank + 2), "padding": padding, "use_bias": False}


class Case:
    """An example; its output, parameters, and the counts of the three passes by hand."""

    def __init__(
        self,
        kind: str,
        keys: dict[str, Any],
        inputs: list[list[int]],
        output: tuple[int, ...],
        params: int,
        *passes: Counts,
    ) -> None:
        self.example = Example(kind, keys, tuple(inputs))
        self.output, self.params, self.passes = output, params, passes


# Of a convolution: x, w and y elements of the input, the filter and the output.
CONVOLUTIONS = [
    # P = ceil((9 - 3 + 1) / 2) = 4; x = 2*9*8 = 144, w = 3*8*16 = 384, y = 2*4*16 = 128;
    # 2 * 3*8 * 128 = 6144 FLOPs; the bias reads and writes y, and its gradient reads it.
    Case(
        "Convolution",
        {"filter": [3, 8, 16], "strides": [1, 2, 1], "padding": "VALID"},
        [[2, 9, 8]],
        (2, 4, 16),
        384 + 16,
        (6144, 144 + 384 + 128, 128 + 128),
        (6144, 128 + 384, 144),
        (6144, 144 + 128 + 128, 384 + 16),
    ),
    # 4 = 5 - 2 + 1 deep; x = 2*5*6*6*4 = 1440, w = 2*3*3*4*8 = 576, y = 2*4*6*6*8 = 2304;
    # 2 * 2*3*3*4 * 2304 = 165888 FLOPs
    Case(
        "Convolution",
        {"filter": [2, 3, 3, 4, 8], **plain(3, [0, 1, 1])},
        [[2, 5, 6, 6, 4]],
        (2, 4, 6, 6, 8),
        576,
        (165888 * 2, 1440 + 576, 2304),
        (165888 * 2, 2304 + 576, 1440),
        (165888 * 2, 1440 + 2304, 576),
    ),
    # 2 * 3 images; x = 6*36*4 = 864, w = 3*3*4*8 = 288, y = 6*36*8 = 1728; 2*36 * 1728 FLOPs
    Case(
        "Convolution",
        {"filter": [3, 3, 4, 8], **plain(2, "SAME")},
        [[2, 3, 6, 6, 4]],
        (2, 3, 6, 6, 8),
        288,
        (124416, 864 + 288, 1728),
        (124416, 1728 + 288, 864),
        (124416, 864 + 1728, 288),
    ),
    # A filter for each sample: x = 2*36*4, w = 2*3*3*4*8, y = 2*36*8; its gradient is an input's.
    Case(
        "Convolution",
        {"filter": [3, 3, 4, 8], **plain(2, "SAME")},
        [[2, 6, 6, 4], [2, 3, 3, 4, 8]],
        (2, 6, 6, 8),
        0,
        (41472, 288 + 576, 576),
        (2 * 41472, (576 + 576) + (288 + 576), 288 + 576),
        NONE,
    ),
    # V takes 9 to floor((9 + 2 - 3) / 2) + 1 = 5; the small side 2*5*6 = 60, the large 2*9*4 =
    # 72, w = 3*2*6 = 36, as each filter gives 4 / 2 channels; 2 * 3*2 * 60 = 720 FLOPs
    Case(
        "Deconvolution",
        {"filter": [3, 2, 6], "strides": [1, 2, 1], "padding": [1], "output_shape": [-1, 9, 4]}
        | {"groups": 2, "use_bias": True},
        [[2, 5, 6]],
        (2, 9, 4),
        36 + 4,
        (720, 60 + 36 + 72, 72 + 72),
        (720, 72 + 36, 60),
        (720, 72 + 60 + 72, 36 + 4),
    ),
]
POOLS = [
    # 6 / 2 = 3 windows of 2; x = 48, y = 24
    Case(
        "Pooling",
        {"ksize": [1, 2, 1], "strides": [1, 2, 1], "padding": "VALID"},
        [SEQUENCE],
        (2, 3, 4),
        0,
        (48, 48, 24),
        (48, 24 + 48, 48),
        NONE,
    ),
    # It spans (3 - 1) * 2 + 1 = 5: 6 - 5 + 1 = 2; x = 48, y = 16
    Case(
        "AvgPool",
        {"ksize": [1, 3, 1], "strides": [1, 1, 1], "padding": [0], "dilations": [1, 2, 1]},
        [SEQUENCE],
        (2, 2, 4),
        0,
        (3 * 16, 48, 16),
        (3 * 16, 16, 48),
        NONE,
    ),
    # ceil((4 - 2) / 2) + 1 = 2 deep, ceil((6 - 5) / 2) + 1 = 2 high, 6 wide; y = 2*2*2*6*4
    Case(
        "Pooling",
        {"ksize": [1, 2, 5, 1, 1], "strides": [1, 2, 2, 1, 1], "padding": [0, 0, 0]}
        | {"rounding": "ceil"},
        [[2, 4, 6, 6, 4]],
        (2, 2, 2, 6, 4),
        0,
        (2 * 5 * 192, 1152, 192),
        (2 * 5 * 192, 192 + 1152, 1152),
        NONE,
    ),
    # x = 2*6*6*4 = 288, y = 8; a window of 36
    Case("GlobalPooling", {}, [IMAGE], (2, 1, 1, 4), 0, (36 * 8, 288, 8), (36 * 8, 8, 288), NONE),
    Case(
        "GlobalPooling",
        {"function": "maximum"},
        [SEQUENCE],
        (2, 1, 4),
        0,
        (6 * 8, 48, 8),
        (6 * 8, 8 + 48, 48),
        NONE,
    ),
    Case(
        "UpSampling2D",
        {"ksize": [1, 3, 1]},
        [SEQUENCE],
        (2, 18, 4),
        0,
        (0, 48, 144),
        (0, 144, 48),
        NONE,
    ),
    Case(
        "Resize", {"size": [9, 12]}, [IMAGE], (2, 9, 12, 4), 0, (0, 288, 864), (0, 864, 288), NONE
    ),
    Case("Resize", {"size": [3]}, [IMAGE], (2, 6, 3, 4), 0, (0, 288, 144), (0, 144, 288), NONE),
]
# Of a product: a, b and c elements of A, B and C.
PRODUCTS = [
    # 2*6 rows of 4: a = 48, b = 32, c = 96; 2 * 12*4*8 = 768
    Case(
        "InnerProduct",
        {"num_outputs": 8, "axis": -1, "use_bias": False},
        [SEQUENCE],
        (2, 6, 8),
        32,
        (768, 48 + 32, 96),
        (768, 96 + 32, 48),
        (768, 48 + 96, 32),
    ),
    # 2*3 rows of 2*5: a = 60, b = 70, c = 42; 2 * 6*10*7 = 840
    Case(
        "InnerProduct",
        {"num_outputs": 7, "axis": 2},
        [[2, 3, 2, 5]],
        (2, 3, 7),
        77,
        (840, 60 + 70 + 42, 42 + 42),
        (840, 42 + 70, 60),
        (840, 60 + 42 + 42, 70 + 7),
    ),
    # 12 indices, 12*8 = 96 elements of rows, a table of 50*8 = 400
    Case(
        "Embedding",
        {"num_embeddings": 50, "num_outputs": 8},
        [[2, 6]],
        (2, 6, 8),
        400,
        (0, 12 + 96, 96),
        NONE,
        (0, 12 + 96, 400),
    ),
    # 2*3 products of 6x4 and 4x5: a = 144, b = 120, c = 180; 2 * 6 * 6*5*4 = 1440. The gradients
    # are C' B^T and A^T C'.
    Case(
        "MatMul",
        {},
        [HEADS, [2, 3, 4, 5]],
        (2, 3, 6, 5),
        0,
        (1440, 144 + 120, 180),
        (2880, (180 + 120) + (144 + 180), 144 + 120),
        NONE,
    ),
    # One B for three A: 2 products of 18x4 and 4x5; b = 40
    Case(
        "MatMul",
        {},
        [HEADS, [2, 1, 4, 5]],
        (2, 3, 6, 5),
        0,
        (1440, 144 + 40, 180),
        (2880, (180 + 40) + (144 + 180), 144 + 40),
        NONE,
    ),
    # One A of 7x6 for three B of 6x4, of fewer dimensions: 2 products of 7x6 and 6x12
    Case(
        "MatMul",
        {},
        [[2, 7, 6], HEADS],
        (2, 3, 7, 4),
        0,
        (2 * 2 * 7 * 12 * 6, 84 + 144, 168),
        (2 * 2 * 2 * 7 * 12 * 6, (168 + 144) + (84 + 168), 84 + 144),
        NONE,
    ),
    # 6x4 and 4x3, both written the other way: a = 48, b = 24, c = 36; 2 * 2 * 6*3*4 = 288
    Case(
        "MatMul",
        {"transpose_a": True, "transpose_b": True},
        [[2, 4, 6], [2, 3, 4]],
        (2, 6, 3),
        0,
        (288, 48 + 24, 36),
        (576, (36 + 24) + (48 + 36), 48 + 24),
        NONE,
    ),
    # n and h in both and kept: 6 products of q x d and d x k, 6x4 and 4x5
    Case(
        "Einsum",
        {"equation": "nqhd, nkhd -> nhqk"},
        [[2, 6, 3, 4], [2, 5, 3, 4]],
        (2, 3, 6, 5),
        0,
        (1440, 144 + 120, 180),
        (2880, (180 + 120) + (144 + 180), 144 + 120),
        NONE,
    ),
    Case("Einsum", {"equation": "nij->nj"}, [SEQUENCE], (2, 4), 0, (0, 48, 8), (0, 8, 48), NONE),
    Case(
        "Einsum", {"equation": "ni,ni->n"}, [[2, 6]] * 2, (2, 1), 0, (24, 24, 2), (48, 28, 24), NONE
    ),
    # The first is summed over i, 48 to 8. Then 8 products of 1 and 1x3 (48 FLOPs, 8 + 24 read, 24
    # written), then 2 of 4x3 and 3x1 (48, 24 + 6, 8). Their gradients: 24 + 24 and 8 + 24 read, 8
    # and 24 written; 8 + 6 and 24 + 8 read, 24 and 6 written.
    Case(
        "Einsum",
        {"equation": "nij,njk,nk->nj"},
        [SEQUENCE, [2, 4, 3], [2, 3]],
        (2, 4),
        0,
        (96, 48 + 32 + 30, 8 + 24 + 8),
        (192, 8 + 48 + 32 + 14 + 32, 48 + 8 + 24 + 24 + 6),
        NONE,
    ),
    # 2*6 heads; Q = 2*6*5*4 = 240, K = 2*3*7*4 = 168, V = 2*3*7*3 = 126, O = 2*6*5*3 = 180.
    # Forward 2 * 12*5*7 * (4 + 3) = 5880; backward the two gradients of each product.
    Case(
        "Attention",
        {},
        [[2, 6, 5, 4], [2, 3, 7, 4], [2, 3, 7, 3]],
        (2, 6, 5, 3),
        0,
        (5880, 240 + 168 + 126, 180),
        (2 * 5880, 240 + 168 + 126 + 2 * 180, 240 + 168 + 126),
        NONE,
    ),
    # 12 rows of 4 features over 5 experts of 4x8: 12*4 = 48 and 5*32 = 160 read, 12*8 = 96 written;
    # 2 * 12*4*8 = 768. The biases read and write all rows again. Back: 96 and 160 read, 48 written;
    # 48 and 96 read, 160 written, and the 5*8 biases are sums of 96.
    Case(
        "Experts",
        {"num_experts": 5, "num_outputs": 8},
        [SEQUENCE],
        (2, 6, 8),
        5 * (32 + 8),
        (768, 48 + 160 + 96, 96 + 96),
        (768, 96 + 160, 48),
        (768, 48 + 96 + 96, 160 + 40),
    ),
    # 12 rows over 20 experts: 12 of them are read.
    Case(
        "Experts",
        {"num_experts": 20, "num_outputs": 8, "use_bias": False},
        [SEQUENCE],
        (2, 6, 8),
        20 * 32,
        (768, 48 + 12 * 32, 96),
        (768, 96 + 12 * 32, 48),
        (768, 48 + 96, 12 * 32),
    ),
    # 2x6 times 6x2: 2 * 2*2*6 = 48, and so is either gradient.
    Case("Similarity", {}, [[2, 6], [2, 6]], (2, 2), 0, (48, 24, 4), (96, 32, 24), NONE),
    # 2 samples of 5 boxes: 10 pairs each. 12 + 48 elements are sorted to 2*5*4 = 40; these are
    # read, and 2 * 5 masks of 8 bytes (2 elements of 4 bytes) written: 20; 60 read, 24 written.
    Case(
        "Proposals",
        {"num_regions": 3, "num_compared": 5},
        [[2, 6, 1], [2, 6, 4]],
        (2, 3, 4),
        0,
        (12 * 2 * 10, 60 + 40 + 60, 40 + 20 + 24),
        NONE,
        NONE,
    ),
    # 2*5 regions of 2*3*6 = 360 elements, each the mean of 4 samples of 7 FLOPs.
    Case(
        "RegionPooling",
        {"size": [2, 3]},
        [[2, 8, 8, 6], [2, 4, 4, 6], [2, 5, 4]],
        (2, 5, 2, 3, 6),
        0,
        (7 * 4 * 360, 768 + 192 + 40, 360),
        (7 * 4 * 360, 360 + 40, 768 + 192),
        NONE,
    ),
    Case(
        "RegionPooling",
        {"size": [3, 2], "mode": "maximum", "position_sensitive": True},
        [[2, 8, 8, 12], [2, 5, 4]],
        (2, 5, 3, 2, 2),
        0,
        (0, 1536 + 40, 120),
        (0, 120 + 40, 1536),
        NONE,
    ),
]
RECURRENT = [
    # 12x4 and 4x5 at once (480 FLOPs), 6 times 2x5 and 5x5 (600), then 60 elements of each
    # product and of the state before make 60 of gates and of states. Back: 480 for the input;
    # 5 * 100 to go back from the last step to the first, 600 for the state's matrix, 480 for the
    # input's, a pass over the gates, and the sums that are both biases' gradients.
    Case(
        "RNN",
        {"num_outputs": 5},
        [SEQUENCE],
        (2, 6, 5),
        5 * (4 + 5 + 2),
        (480 + 600, (48 + 20) + 6 * (10 + 25) + 3 * 60, 60 + 60 + 2 * 60),
        (480, 60 + 20, 48),
        (
            500 + 600 + 480,
            5 * (10 + 25) + 12 * (5 + 5) + 2 * 60 + 12 * (4 + 5) + 60,
            50 + 25 + 60 + 20 + 10,
        ),
    ),
    # 3 gates; the second layer sees 2*5 features
    Case(
        "GRU",
        {"num_outputs": 5, "num_layers": 2, "bidirectional": True},
        [SEQUENCE],
        (2, 6, 10),
        2 * 15 * (4 + 5 + 2) + 2 * 15 * (10 + 5 + 2),
    ),
    # 4 gates; the output is brought down from 5 to 3, and so is what comes into the second layer
    Case(
        "LSTM",
        {"num_outputs": 5, "num_layers": 2, "projection": 3},
        [SEQUENCE],
        (2, 6, 3),
        20 * (4 + 3 + 2) + 3 * 5 + 20 * (3 + 3 + 2) + 3 * 5,
    ),
    Case("LSTM", {"num_outputs": 5, "num_biases": 1}, [SEQUENCE], (2, 6, 5), 20 * (4 + 5 + 1)),
    Case("GRU", {"num_outputs": 5, "num_biases": 0}, [SEQUENCE], (2, 6, 5), 15 * (4 + 5)),
    # 2 * 3 sequences: 36x4 and 4x5 at once (1440), 6 times 6x5 and 5x5 (1800); 180 of each pass.
    Case(
        "RNN",
        {"num_outputs": 5, "num_biases": 0},
        [[2, 3, 6, 4]],
        (2, 3, 6, 5),
        5 * (4 + 5),
        (1440 + 1800, (144 + 20) + 6 * (30 + 25) + 3 * 180, 180 + 180 + 2 * 180),
        (1440, 180 + 20, 144),
        (
            1500 + 1800 + 1440,
            5 * (30 + 25) + 36 * (5 + 5) + 2 * 180 + 36 * (4 + 5),
            150 + 25 + 180 + 20,
        ),
    ),
]
# Passes over memory: 288 elements in an image, 48 in a sequence.
PASSES_OVER_MEMORY = [
    Case("PReLU", {}, [IMAGE], (2, 6, 6, 4), 4, (0, 288, 288), (0, 576, 288), (0, 576, 4)),
    Case("PReLU", {"shared": True}, [IMAGE],
         (2, 6, 6, 4), 1, (0, 288, 288), (0, 576, 288), (0, 576, 1)),
    Case("Softmax", {"dim": 1}, [SEQUENCE], (2, 6, 4), 0, (0, 48, 48), (0, 96, 48), NONE),
    Case("LayerNorm", {}, [SEQUENCE], (2, 6, 4), 8, (0, 48, 48), (0, 96, 48), (0, 96, 8)),
    Case("LayerNorm", {"num_dims": 2, "bias_term": False}, [SEQUENCE],
         (2, 6, 4), 24, (0, 48, 48), (0, 96, 48), (0, 96, 24)),
    Case("LayerNorm", {"affine": False}, [SEQUENCE], (2, 6, 4), 0, (0, 48, 48), (0, 96, 48), NONE),
    Case("RMSNorm", {"num_dims": 2}, [SEQUENCE],
         (2, 6, 4), 24, (0, 48, 48), (0, 96, 48), (0, 96, 24)),
    Case("GroupNorm", {"num_groups": 2}, [IMAGE],
         (2, 6, 6, 4), 8, (0, 576, 288), (0, 1152, 288), (0, 576, 8)),
    Case("InstanceNorm", {}, [IMAGE], (2, 6, 6, 4), 8, (0, 576, 288), (0, 1152, 288), (0, 576, 8)),
    Case("InstanceNorm", {"affine": False}, [IMAGE],
         (2, 6, 6, 4), 0, (0, 576, 288), (0, 1152, 288), NONE),
    Case("L2Norm", {}, [SEQUENCE], (2, 6, 4), 0, (0, 48, 48), (0, 96, 48), NONE),
    # 288 + 12 + 8 come in; back, each reads the output's gradient and all of them.
    Case("Elementwise", {"function": "product"}, [IMAGE, [2, 1, 6, 1], [2, 4]],
         (2, 6, 6, 4), 0, (0, 308, 288), (0, 288 + 308, 308), NONE),
    # What was repeated is summed: the output's gradient is read for each of those.
    Case("Elementwise", {}, [IMAGE, [2, 1, 6, 1], [2, 4]],
         (2, 6, 6, 4), 0, (0, 308, 288), (0, 2 * 288, 12 + 8), NONE),
    Case("Elementwise", {"function": "difference"}, [IMAGE, IMAGE],
         (2, 6, 6, 4), 0, (0, 576, 288), NONE, NONE),
    Case("Elementwise", {"function": "compare"}, [IMAGE, IMAGE],
         (2, 6, 6, 4), 0, (0, 576, 288), NONE, NONE),
    Case("Slice", {"dim": 2, "begin": 1, "size": 3, "step": 2}, [IMAGE],
         (2, 6, 3, 4), 0, NONE, NONE, NONE),
    Case("Slice", {"size": 1, "keep_dim": False}, [IMAGE], (2, 6, 6), 0, NONE, NONE, NONE),
    Case("Slice", {"size": 1, "keep_dim": False}, [[2, 6]], (2, 1), 0, NONE, NONE, NONE),
    Case("Transpose", {"perm": [0, 3, 1, 2]}, [IMAGE],
         (2, 4, 6, 6), 0, (0, 288, 288), (0, 288, 288), NONE),
    Case("Expand", {"output_shape": [-1, 5, 6, 4]}, [[2, 1, 4]],
         (2, 5, 6, 4), 0, (0, 8, 240), (0, 240, 8), NONE),
    Case("Pad", {"margins": [[1, 2], [0, 0], [3, 0]]}, [IMAGE],
         (2, 9, 6, 7), 0, (0, 288, 756), (0, 756, 288), NONE),
    Case("Rearrange", {"output_shape": [-1, 3, 3, 16]}, [IMAGE],
         (2, 3, 3, 16), 0, (0, 288, 288), (0, 288, 288), NONE),
    Case("Gather", {"output_shape": [-1, 3, 4]}, [SEQUENCE, [2, 3]],
         (2, 3, 4), 0, (0, 24 + 6, 24), (0, 24 + 6, 48), NONE),
    Case("Gather", {"output_shape": [-1, 3, 4]}, [SEQUENCE],
         (2, 3, 4), 0, (0, 24, 24), (0, 24, 48), NONE),
    Case("Reduce", {"dims": [1, 2]}, [IMAGE], (2, 4), 0, (0, 288, 8), (0, 8, 288), NONE),
    Case("Reduce", {"dims": [1, 2, 3]}, [IMAGE], (2, 1), 0, (0, 288, 2), (0, 2, 288), NONE),
    # The largest has to be found again.
    Case("Reduce", {"dims": [3], "function": "maximum", "keep_dims": True}, [IMAGE],
         (2, 6, 6, 1), 0, (0, 288, 72), (0, 72 + 288, 288), NONE),
    Case("Reduce", {"dims": [3], "function": "argmax"}, [IMAGE],
         (2, 6, 6), 0, (0, 288, 72), NONE, NONE),
    # Logarithms of 20 scores, of which 2 are read with 2 labels; backward a gradient of them all by
    # the labels, which is read with the logarithms.
    Case("Loss", {}, [[2, 10], [2, 1]], (2, 1), 0,
         (0, 20 + 2 + 2, 20 + 2), (0, 2 + 20 + 20, 20 + 20), NONE),
    # Labels that are shares of each class are read with all logarithms.
    Case("Loss", {}, [[2, 10], [2, 10]], (2, 1), 0,
         (0, 20 + 20 + 20, 20 + 2), (0, 20 + 20 + 20, 20 + 20), NONE),
    Case("Loss", {"function": "hinge"}, [[2, 10], [2, 1]],
         (2, 1), 0, (0, 22, 2), (0, 22, 20), NONE),
    Case("Accuracy", {}, [[2, 10], [2, 1]], (2, 1), 0, (0, 22, 2), NONE, NONE),
    Case("Parameter", {"shape": [6, 4]}, [IMAGE], (1, 6, 4), 24, NONE, NONE, (0, 24, 24)),
    Case("Parameter", {"shape": [6, 4], "trainable": False}, [IMAGE],
         (1, 6, 4), 0, NONE, NONE, NONE),
    Case("Unknown", {"operator": "Roll", "output_shape": [-1, 7]}, [IMAGE, SEQUENCE],
         (2, 7), 0, NONE, NONE, NONE),
]  # fmt: skip


@pytest.mark.parametrize(
    "case",
    CONVOLUTIONS + POOLS + PRODUCTS + RECURRENT + PASSES_OVER_MEMORY,
    ids=lambda case: str(case.example),
)
def test_shape_parameters_and_work_are_those_by_hand(case: Case) -> None:
    graph, node = node_of(case.example)
    assert node.output == case.output
    assert node.num_params == case.params
    for direction, (flops, reads, writes) in zip(PASSES, case.passes, strict=False):
        assert graph.work(node, direction) == Work(flops, 4 * reads, 4 * writes), direction


@pytest.mark.parametrize(
    ("kind", "keys", "flops", "first"),
    [
        # Each layer and direction: 2 * 12 rows * gates * 5 * (features in + state). What goes back
        # to the first state is 2 * 2 rows * gates * 5 * state.
        (
            "GRU",
            {"num_layers": 2, "bidirectional": True},
            2 * 24 * 15 * ((4 + 5) + (10 + 5)),
            2 * 2 * 4 * 15 * 5,
        ),
        ("LSTM", {}, 24 * 20 * (4 + 5), 4 * 20 * 5),
        # ... and 2 * 12 * 5 * 3 to bring the output down
        ("LSTM", {"projection": 3}, 24 * 20 * (4 + 3) + 24 * 5 * 3, 4 * 20 * 3),
    ],
)
def test_a_recurrent_layer_counts_its_products(
    kind: str, keys: Any, flops: int, first: int
) -> None:
    forward, *back = works(Example(kind, {"num_outputs": 5, **keys}, (SEQUENCE,)))
    assert forward.flops == flops
    # Nobody needs the gradient of the state before the first step.
    assert sum(each.flops for each in back) == 2 * flops - first


def test_a_single_step_goes_back_nowhere() -> None:
    forward, *back = works(Example("RNN", {"num_outputs": 5}, ([2, 1, 4],)))
    assert forward.flops == 2 * 2 * 5 * (4 + 5)
    assert sum(each.flops for each in back) == 2 * forward.flops - 2 * 2 * 5 * 5


def test_a_recurrent_layer_needs_steps() -> None:
    with pytest.raises(paleo.PaleoError, match="its input must be N x T x D, got 2x4"):
        works(Example("RNN", {"num_outputs": 5}, ([2, 4],)))


def made(**layers: Any) -> paleo.Graph:
    data = {"type": "Input", "tensor": [2, 6, 4]}
    return paleo.build(paleo.loads(json.dumps({"name": "n", "layers": {"data": data, **layers}})))


def test_what_is_the_same_for_every_sample_is_read_once() -> None:
    graph = made(
        matrix={"type": "Parameter", "shape": [4, 5]},
        product={"type": "MatMul", "parents": ["data", "matrix"]},
        turned={"type": "MatMul", "parents": ["matrix", "data"],
                "transpose_a": True, "transpose_b": True},
        sum={"type": "Einsum", "parents": ["data", "matrix"], "equation": "ntd,ndk->ntk"},
    )  # fmt: skip
    _, _, product, turned, einsum = graph.nodes
    assert product.output == einsum.output == (2, 6, 5)
    assert turned.output == (2, 5, 6)
    # 2*6*4 = 48 and 4*5 = 20 to 2*6*5 = 60 elements, 2 * 12*5*4 FLOPs, in one product
    for node in (product, turned, einsum):
        assert graph.work(node, Pass.FORWARD) == Work(480, 4 * (48 + 20), 4 * 60)
        assert graph.work(node, Pass.INPUT_GRADIENT) == Work(
            960, 4 * ((60 + 20) + (48 + 60)), 4 * (48 + 20)
        )


def test_what_is_added_to_every_sample_has_their_sum_as_its_gradient() -> None:
    layers = {
        "place": {"type": "Parameter", "shape": [6, 4]},
        "sum": {"type": "Elementwise", "parents": ["data", "place"]},
        "token": {"type": "Parameter", "shape": [1, 4]},
        "both": {"type": "Concatenate", "parents": ["token", "sum"], "dim": 1},
    }
    graph = made(**layers)
    _, _, total, _, both = graph.nodes
    assert (total.output, both.output) == ((2, 6, 4), (2, 7, 4))
    assert graph.num_params == 24 + 4
    assert graph.work(total, Pass.FORWARD) == Work(0, 4 * (48 + 24), 4 * 48)
    assert graph.work(total, Pass.INPUT_GRADIENT) == Work(0, 4 * 48, 4 * 24)
    assert graph.work(both, Pass.FORWARD) == Work(0, 4 * (4 + 48), 4 * 56)
    data = {"type": "Input", "tensor": [2, 6, 4]}
    net = paleo.loads(json.dumps({"name": "n", "layers": {"data": data, **layers}}))
    batches = [1, 2, 5]
    whole = paleo.build(net, np.array(batches))
    for i, batch in enumerate(batches):
        one = paleo.build(net, batch)
        for direction in PASSES:
            many = whole.work(whole.nodes[2], direction).num_bytes
            single = one.work(one.nodes[2], direction).num_bytes
            assert np.broadcast_to(many, len(batches))[i] == single


def test_a_graph_of_constants_has_the_inputs_batch() -> None:
    graph = made(
        own={"type": "Parameter", "shape": [4, 5]},
        mean={"type": "Reduce", "parents": ["own"], "dims": [2]},
        x={"type": "Elementwise", "parents": ["mean", "data"]},
    )
    assert [node.output for node in graph.nodes] == [(2, 6, 4), (1, 4, 5), (1, 4), (2, 6, 4)]
    assert graph.batch_size == 2


def test_layers_of_a_split_block_are_divided() -> None:
    one = paleo.LAYERS["Embedding"](num_embeddings=50, num_outputs=9).shard(2)
    assert one.num_params(((2, 6),)) == 50 * 4
    keys = {"filter": [3, -1, 8], "strides": [1, 2, 1], "padding": [1], "output_shape": [-1, 11, 6]}
    _, node = node_of(Example("Deconvolution", keys, ([2, 6, 8],)))
    assert node.layer.shard(2).infer_shape(node.inputs) == (2, 11, 3)
