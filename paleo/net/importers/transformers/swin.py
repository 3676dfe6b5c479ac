"""Swin: attention in windows of patches, shifted in every other layer (arXiv:2103.14030).

Letters: T patches of a window, W windows. Patches that do not fill a window are padded.
"""

from __future__ import annotations

from typing import Any, ClassVar

from paleo.core.checks import is_whole, shown
from paleo.core.frozen import dataclass
from paleo.net.importers.transformers.body import Block, Path
from paleo.net.importers.transformers.config import Config
from paleo.net.importers.transformers.decoder import num_labels
from paleo.net.importers.transformers.functions import function
from paleo.net.importers.transformers.parts import MLP, Length, linear, norm
from paleo.net.importers.transformers.stack import Layer, stack
from paleo.net.importers.transformers.vision import patches


@dataclass(frozen=True)
class Windows:
    """Attention of the patches of each window.

    `places` are the rows and columns of patches, `side` those of a window, `shift` how far windows
    are moved, `table_side` the side that the table of biases is for.
    """

    features: int
    num_heads: int
    places: tuple[int, int]
    side: int
    shift: int
    table_side: int
    bias: bool

    def write(self, block: Block, x: Path, length: Length) -> Path:
        """Write it as a block: N x P x C to N x P x C."""
        block = block.block("attention", x)
        x, size, side = block.entry, self.features, self.side
        rows, columns = (-(-place // side) * side for place in self.places)
        down, across = rows // side, columns // side
        padded = (rows, columns) != self.places
        if padded or self.shift:
            x = block.add("image", "Reshape", x, output_shape=[-1, *self.places, size])
        if padded:
            more = [[0, rows - self.places[0]], [0, columns - self.places[1]], [0, 0]]
            x = block.add("pad", "Pad", x, margins=more)
        if self.shift:
            x = block.add("shift", "Rearrange", x)
        split = [-1, down, side, across, side, size]
        x = block.add("windows_view", "Reshape", x, output_shape=split)
        x = block.add("windows", "Transpose", x, perm=[0, 1, 3, 2, 4, 5])
        windows, patches_each = down * across, side * side
        shape = [-1, windows, patches_each]
        x = block.add("tokens", "Reshape", x, output_shape=[*shape, size])
        made = []
        for name in "qkv":
            one = linear(block, f"{name}_proj", x, size, self.bias)
            each = [*shape, self.num_heads, size // self.num_heads]
            one = block.add(f"{name}_view", "Reshape", one, output_shape=each)
            made.append(block.add(f"{name}_heads", "Transpose", one, perm=[0, 1, 3, 2, 4]))
        biases = self._biases(block, windows, patches_each)
        x = block.add("attention", "Attention", *made, biases)
        x = block.add("transpose", "Transpose", x, perm=[0, 1, 3, 2, 4])
        x = block.add("merge", "Reshape", x, output_shape=[*shape, size])
        x = linear(block, "o_proj", x, size)
        split = [-1, down, across, side, side, size]
        x = block.add("back_view", "Reshape", x, output_shape=split)
        x = block.add("back", "Transpose", x, perm=[0, 1, 3, 2, 4, 5])
        if padded or self.shift:
            x = block.add("image_back", "Reshape", x, output_shape=[-1, rows, columns, size])
        if self.shift:
            x = block.add("shift_back", "Rearrange", x)
        if padded:
            x = block.add("crop_rows", "Slice", x, dim=1, size=self.places[0])
            x = block.add("crop", "Slice", x, dim=2, size=self.places[1])
        count = self.places[0] * self.places[1]
        return block.add("patches", "Reshape", x, output_shape=[-1, count, size])

    def _biases(self, block: Block, windows: int, count: int) -> Path:
        """Write what is added to scores: biases of distances, and where windows wrap around."""
        distances = block.add("distances", "Parameter", shape=[count, count], trainable=False)
        found = block.add(
            "relative_position_bias", "Embedding", distances,
            num_embeddings=(2 * self.table_side - 1) ** 2, num_outputs=self.num_heads,
        )  # fmt: skip
        found = block.add("bias_heads", "Transpose", found, perm=[0, 3, 1, 2])
        if not self.shift:
            return found
        shape = [-1, 1, self.num_heads, count, count]
        found = block.add("bias_view", "Reshape", found, output_shape=shape)
        mask = block.add("mask", "Parameter", shape=[windows, 1, count, count], trainable=False)
        return block.add("bias", "Elementwise", found, mask)


@dataclass(frozen=True)
class Swin:
    """The family."""

    heads_of: ClassVar[dict[str, str]] = {"ForImageClassification": "classify", "Model": ""}
    usual_head: ClassVar[str] = "classify"

    def write(self, c: Config, root: Block, head: str) -> dict[str, Any]:
        """Write it at the root of a net."""
        features, act = c.whole("embed_dim"), function(c, "$hidden_act")
        depths, heads = _numbers(c, "depths"), _numbers(c, "num_heads")
        if len(depths) != len(heads):
            c.wrong("num_heads", f'{len(heads)} stages, and {len(depths)} of key "depths"')
            return {}
        name = "swin/embeddings/patch_embeddings/projection"
        x, places = patches(c, root, name, features)
        x = norm(root, "swin/embeddings/norm", x, "layer")
        ratio, window = c.number("mlp_ratio"), c.whole("window_size")
        for stage, (depth, count) in enumerate(zip(depths, heads, strict=True)):
            place = f"swin/encoder/layers/{stage}"
            if features % count:
                c.wrong("num_heads", f"{features} features cannot be divided among {count}")
                return {}
            side = min(window, *places)
            feed = MLP(features, int(ratio * features), act, up="fc1", down="fc2", bias=True)
            layers = []
            for index in range(depth):
                shift = window // 2 if index % 2 and min(places) > window else 0
                mixer = Windows(features, count, places, side, shift, window, c.flag("qkv_bias"))
                layers.append(
                    Layer(
                        mixer, feed, "layer", before="layernorm_before",
                        before_feed="layernorm_after",
                    )
                )  # fmt: skip
            x = stack(root, f"{place}/blocks", x, layers, places[0] * places[1])
            if stage < len(depths) - 1:
                x, places = _merged(root, f"{place}/downsample", x, places, features)
                features *= 2
        x = norm(root, "swin/layernorm", x, "layer")
        x = root.add("swin/pooler", "Reduce", x, dims=[1])
        if head:
            linear(root, "classifier", x, num_labels(c))
        return {}


def _numbers(c: Config, key: str) -> list[int]:
    """Return a list of whole numbers."""
    value = c.get(key)
    if isinstance(value, list | tuple) and value and all(is_whole(v) and v > 0 for v in value):
        return list(value)
    c.wrong(key, f"expected a list of whole numbers, got {shown(value)}")
    return [1]


def _merged(
    root: Block, place: str, x: Path, places: tuple[int, int], features: int
) -> tuple[Path, tuple[int, int]]:
    """Write the merging of 2 x 2 patches; return it, and the rows and columns that are left."""
    rows, columns = ((place + 1) // 2 for place in places)
    block = root.block(place, x)
    x = block.entry
    if (2 * rows, 2 * columns) != places:
        x = block.add("image", "Reshape", x, output_shape=[-1, *places, features])
        more = [[0, 2 * rows - places[0]], [0, 2 * columns - places[1]], [0, 0]]
        x = block.add("pad", "Pad", x, margins=more)
    split = [-1, rows, 2, columns, 2, features]
    x = block.add("view", "Reshape", x, output_shape=split)
    x = block.add("transpose", "Transpose", x, perm=[0, 1, 3, 4, 2, 5])
    x = block.add("merge", "Reshape", x, output_shape=[-1, rows * columns, 4 * features])
    x = norm(block, "norm", x, "layer")
    return linear(block, "reduction", x, 2 * features, False), (rows, columns)
