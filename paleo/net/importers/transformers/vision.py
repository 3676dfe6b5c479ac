"""Encoders of images: ViT and DeiT, and the towers of CLIP and SigLIP.

Letters: P patches of an image, H features. Images are N x height x width x channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

from paleo.core.checks import is_whole, shown
from paleo.core.frozen import dataclass
from paleo.net.importers.transformers.body import Block, Path
from paleo.net.importers.transformers.config import Config
from paleo.net.importers.transformers.decoder import num_labels
from paleo.net.importers.transformers.functions import function
from paleo.net.importers.transformers.parts import (
    MLP,
    Attention,
    activation,
    add,
    first_of,
    heads,
    linear,
    norm,
    together,
)
from paleo.net.importers.transformers.stack import Layer, stack


def pair(c: Config, key: str) -> tuple[int, int]:
    """Return a height and a width: a key has one number for both, or a list of two."""
    value = c.get(key)
    if isinstance(value, list) and len(value) == 2 and all(is_whole(one) for one in value):
        return value[0], value[1]
    if isinstance(value, list):
        c.wrong(key, f"expected a whole number or two, got {shown(value)}")
        return 1, 1
    return c.whole(key), c.whole(key)


def patches(
    c: Config, root: Block, name: str, features: int, bias: bool = True
) -> tuple[Path, tuple[int, int]]:
    """Write the image and its patches, N x P x features; return them and P's rows and columns."""
    sizes, steps, channels = pair(c, "image_size"), pair(c, "patch_size"), c.whole("num_channels")
    for size, step in zip(sizes, steps, strict=True):
        if size < step:
            c.wrong("patch_size", f"patches of {step} are larger than an image of {size}")
    image = root.add("pixel_values", "Input", tensor=[1, *sizes, channels])
    without: dict[str, Any] = {} if bias else {"use_bias": False}
    x = root.add(
        name, "Convolution", image, filter=[*steps, channels, features], strides=[1, *steps, 1],
        padding="VALID", **without,
    )  # fmt: skip
    rows, columns = (max(1, size // step) for size, step in zip(sizes, steps, strict=True))
    view = root.add(f"{name}_view", "Reshape", x, output_shape=[-1, rows * columns, features])
    return view, (rows, columns)


def layers(c: Config, form: Tower, causal: bool = False) -> list[Layer]:
    """Return the layers of a tower: norms first, an MLP of two products."""
    hidden, count = c.whole("hidden_size"), c.whole("num_attention_heads")
    size = c.divided("hidden_size", "num_attention_heads")
    bias = form.qkv_bias(c)
    keys = (("causal", True),) if causal else ()
    mixer = Attention(
        hidden, count, count, size, form.attention, out=form.out, bias=bias, out_bias=True,
        rotary=form.rotary(c), keys=keys,
    )  # fmt: skip
    feed = MLP(hidden, c.whole("intermediate_size"), form.act(c), up="fc1", down="fc2", bias=True)
    before, before_feed = form.norms
    layer = Layer(mixer, feed, "layer", before=before, before_feed=before_feed)
    return [layer] * c.whole("num_hidden_layers")


@dataclass(frozen=True)
class Tower:
    """An encoder of images; names of modules are paths from its root.

    `tokens` are learned ones before the patches, or behind them with `tokens_last`. `before` and
    `after` are norms before and behind the layers.
    """

    base: str = "vit"
    projection: str = "embeddings/patch_embeddings/projection"
    has_bias: bool = True
    tokens: tuple[str, ...] = ("embeddings/cls_token",)
    tokens_last: bool = False
    positions: str = "embeddings/position_embeddings"
    before: str = ""
    after: str = "layernorm"
    layers: str = "layers"
    norms: tuple[str, str] = ("layernorm_before", "layernorm_after")
    attention: str = "attention"
    out: str = "o_proj"
    qkv_bias: Callable[[Config], bool] = lambda c: c.flag("qkv_bias")
    rotary: Callable[[Config], int] = lambda c: 0
    act: Callable[[Config], str] = lambda c: function(c, "$hidden_act")
    heads_of: Mapping[str, str] = field(
        default_factory=lambda: {"ForImageClassification": "classify", "Model": "pool"}
    )
    usual_head: ClassVar[str] = "classify"

    def body(self, c: Config, root: Block) -> tuple[Path, int, tuple[int, int]]:
        """Write all but a head; return the tokens, how many, and the patches' rows and columns."""
        hidden = c.whole("hidden_size")
        base = f"{self.base}/"
        x, places = patches(c, root, base + self.projection, hidden, self.has_bias)
        count = places[0] * places[1]
        if self.tokens:
            own = [root.add(base + name, "Parameter", shape=[1, hidden]) for name in self.tokens]
            parts = [x, *own] if self.tokens_last else [*own, x]
            count += len(own)
            x = root.add(f"{base}embeddings/concatenate", "Concatenate", *parts, dim=1)
        table = root.add(base + self.positions, "Parameter", shape=[count, hidden])
        x = add(root, f"{base}embeddings/add", x, table)
        x = norm(root, self.before and base + self.before, x, "layer")
        x = stack(root, base + self.layers, x, layers(c, self), count)
        return x, count, places

    def write(self, c: Config, root: Block, head: str) -> dict[str, Any]:
        """Write it at the root of a net, with a classifier of the first token or a pooler."""
        x, _, _ = self.body(c, root)
        x = norm(root, self.after and f"{self.base}/{self.after}", x, "layer")
        if head == "pool":
            size = c.optional("pooler_output_size") or c.whole("hidden_size")
            first = first_of(root, f"{self.base}/pooler/first", x)
            dense = linear(root, f"{self.base}/pooler/dense", first, size)
            activation(root, f"{self.base}/pooler/act", dense, function(c, "$pooler_act"))
        elif head == "distil":
            for k, name in enumerate(("cls_classifier", "distillation_classifier")):
                token = root.add(
                    f"{name}_token", "Slice", x, dim=1, begin=k, size=1, keep_dim=False
                )
                linear(root, name, token, num_labels(c))
        else:
            linear(root, "classifier", first_of(root, "first", x), num_labels(c))
        return {}


VIT = Tower()
DEIT = replace(
    VIT, base="deit", tokens=("embeddings/cls_token", "embeddings/distillation_token"),
    heads_of={**VIT.heads_of, "WithTeacher": "distil"},
)  # fmt: skip
CLIP_VISION = Tower(
    base="vision_model", projection="embeddings/patch_embedding", has_bias=False,
    tokens=("embeddings/class_embedding",), positions="embeddings/position_embedding",
    before="pre_layrnorm", after="post_layernorm", layers="encoder/layers",
    norms=("layer_norm1", "layer_norm2"), attention="self_attn", out="out_proj",
    qkv_bias=lambda c: True,
)  # fmt: skip
SIGLIP_VISION = replace(CLIP_VISION, has_bias=True, tokens=(), before="")


def attention_pool(c: Config, root: Block, place: str, x: Path, count: int) -> Path:
    """Write SigLIP's pooling: a learned query that attends to all patches, and an MLP (N x H)."""
    hidden, number = c.whole("hidden_size"), c.whole("num_attention_heads")
    size = c.divided("hidden_size", "num_attention_heads")
    probe = root.add(f"{place}/probe", "Parameter", shape=[1, hidden])
    attention = f"{place}/attention"
    split = {}
    for name, source, length in (("q", probe, 1), ("k", x, count), ("v", x, count)):
        made = linear(root, f"{attention}/{name}_proj", source, hidden)
        split[name] = heads(root, f"{attention}/{name}", made, (length, number, size))
    mixed = root.add(f"{attention}/attention", "Attention", *split.values())
    inner = root.block(f"{attention}/merged", mixed)
    merged = together(inner, inner.entry, (1, hidden))
    x = linear(root, f"{attention}/out_proj", merged, hidden)
    read = norm(root, f"{place}/layernorm", x, "layer")
    mlp = MLP(
        hidden, c.whole("intermediate_size"), function(c, "$hidden_act"), f"{place}/mlp", "fc1",
        "fc2", bias=True,
    )  # fmt: skip
    x = add(root, f"{place}/add", x, mlp.write(root, read, 1))
    return first_of(root, f"{place}/first", x)
