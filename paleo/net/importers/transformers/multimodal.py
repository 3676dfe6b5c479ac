"""Language models that see images: Gemma 3 and Llama 4; of Kimi K2.5 and Qwen3.5 the text alone.

An image becomes some tokens that stand before those of the text. There is one image, of one tile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from paleo.core.frozen import dataclass
from paleo.net.importers.transformers.body import Block, Path
from paleo.net.importers.transformers.config import Config
from paleo.net.importers.transformers.families import DENSE
from paleo.net.importers.transformers.family import Family
from paleo.net.importers.transformers.pairs import SIGLIP_IMAGE
from paleo.net.importers.transformers.parts import activation, linear, norm
from paleo.net.importers.transformers.sparse import SPARSE
from paleo.net.importers.transformers.vision import SIGLIP_VISION, Tower, attention_pool

#: What writes an image's tokens: of the configuration, that of images, the root and the features of
#: a token of the text. It returns them and how many they are.
_Image = Callable[[Config, Config, Block, int], tuple[Path, int]]


@dataclass(frozen=True)
class Multimodal:
    """A family: `text` is the `model_type` of its language model, whose modules are at `base`.

    Without an `image` only the language model is read, which a note says.
    """

    text: str
    base: str
    head: str
    image: _Image | None = None
    image_defaults: tuple[tuple[str, Any], ...] = ()
    heads_of: ClassVar[dict[str, str]] = {"ForConditionalGeneration": "words", "Model": ""}
    usual_head: ClassVar[str] = "words"

    @property
    def notes(self) -> list[str]:
        """What is said of what is not read."""
        return [] if self.image else ["what sees images (vision_config) is left out"]

    def write(self, c: Config, root: Block, head: str) -> dict[str, Any]:
        """Write it at the root of a net."""
        family = {**DENSE, **SPARSE}[self.text]
        text = c.inner("text_config", family.defaults, family.spellings)
        if c.has("tie_word_embeddings"):
            tied = c.flag("tie_word_embeddings")
            text = text.with_values(tie_word_embeddings=tied)
        tokens = None
        if self.image:
            image = c.inner("vision_config", dict(self.image_defaults))
            tokens = self.image(c, image, root, text.whole("hidden_size"))
        form = replace(family.form, base=self.base, head=self.head)
        dims: dict[str, Any] = form.write(text, root, head, tokens)
        return dims


def _gemma(c: Config, image: Config, root: Block, features: int) -> tuple[Path, int]:
    """Write Gemma 3's image tokens: means of patches, normalized and projected."""
    form = replace(SIGLIP_VISION, base="model/vision_tower")
    hidden, count = image.whole("hidden_size"), c.whole("mm_tokens_per_image")
    x, total, (rows, columns) = form.body(image, root)
    x = norm(root, f"{form.base}/{form.after}", x, "layer")
    if image.get("vision_use_head") is not False:
        attention_pool(image, root, f"{form.base}/head", x, total)
    side = round(count**0.5)
    if side * side != count or rows % side or columns % side:
        c.wrong("mm_tokens_per_image", f"{rows} x {columns} patches do not become {count} tokens")
        return x, total
    place, step = "model/multi_modal_projector", rows // side
    x = root.add(f"{place}/view", "Reshape", x, output_shape=[-1, rows, columns, hidden])
    if step > 1:
        steps = [1, step, columns // side, 1]
        x = root.add(f"{place}/avg_pool", "AvgPool", x, ksize=steps, strides=steps, padding="VALID")
    x = root.add(f"{place}/tokens", "Reshape", x, output_shape=[-1, count, hidden])
    x = norm(root, f"{place}/mm_soft_emb_norm", x, "rms")
    return linear(root, f"{place}/mm_input_projection", x, features, False), count


_LLAMA4_TOWER = Tower(
    base="vision_model", projection="patch_embedding/linear", has_bias=False,
    tokens=("class_embedding",), tokens_last=True, positions="positional_embedding_vlm",
    before="layernorm_pre", after="layernorm_post", layers="model/layers",
    norms=("input_layernorm", "post_attention_layernorm"), attention="self_attn",
    qkv_bias=lambda c: True, act=lambda c: "gelu",
    rotary=lambda c: c.whole("hidden_size") // c.whole("num_attention_heads"),
)  # fmt: skip


def _llama4(c: Config, image: Config, root: Block, features: int) -> tuple[Path, int]:
    """Write Llama 4's image tokens: neighbouring patches joined, an MLP and a product."""
    form, hidden = _LLAMA4_TOWER, image.whole("hidden_size")
    x, total, (rows, columns) = form.body(image, root)
    x = norm(root, f"{form.base}/{form.after}", x, "layer")
    side = round(1 / image.number("pixel_shuffle_ratio"))
    joined, wanted = side * side * hidden, image.whole("intermediate_size")
    if joined != wanted or rows % side or columns % side:
        image.wrong(
            "pixel_shuffle_ratio",
            f"{side} x {side} of {rows} x {columns} patches are {joined} features, not the "
            f"{wanted} of the projector",
        )
        return x, total
    count = rows * columns // side**2
    x = root.add(f"{form.base}/patches", "Slice", x, dim=1, begin=0, size=total - 1)
    place = f"{form.base}/vision_adapter"
    x = root.add(f"{place}/pixel_shuffle", "Rearrange", x, output_shape=[-1, count, joined])
    for name, key in (("fc1", "projector_input_dim"), ("fc2", "projector_output_dim")):
        x = linear(root, f"{place}/mlp/{name}", x, image.whole(key), False)
        x = activation(root, f"{place}/mlp/{name}_act", x, "gelu")
    return linear(root, "multi_modal_projector/linear_1", x, features, False), count


_LLAMA4_IMAGE = {
    "hidden_size": 768, "num_hidden_layers": 34, "num_attention_heads": 16, "num_channels": 3,
    "intermediate_size": 5632, "image_size": 448, "patch_size": 14, "pixel_shuffle_ratio": 0.5,
    "projector_input_dim": 4096, "projector_output_dim": 4096,
}  # fmt: skip

#: How each `model_type` is read.
MULTIMODAL: Mapping[str, Family] = {
    "gemma3": Family(
        Multimodal(
            "gemma3_text", "model/language_model", "lm_head", _gemma, tuple(SIGLIP_IMAGE.items())
        ),
        {"mm_tokens_per_image": 256, "tie_word_embeddings": True},
    ),
    "llama4": Family(
        Multimodal(
            "llama4_text", "language_model/model", "language_model/lm_head", _llama4,
            tuple(_LLAMA4_IMAGE.items()),
        ),
        {"tie_word_embeddings": False},
    ),
    "kimi_k25": Family(Multimodal("kimi_k2", "language_model/model", "language_model/lm_head"), {}),
    "qwen3_5": Family(Multimodal("qwen3_5_text", "model/language_model", "lm_head"), {}),
    "qwen3_5_moe": Family(Multimodal("qwen3_5_moe_text", "model/language_model", "lm_head"), {}),
}  # fmt: skip
