"""Models of images and texts: CLIP and SigLIP, which compare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from paleo.core.frozen import dataclass
from paleo.net.importers.transformers.body import Block, Path
from paleo.net.importers.transformers.config import Config
from paleo.net.importers.transformers.decoder import MOST_POSITIONS
from paleo.net.importers.transformers.family import Family
from paleo.net.importers.transformers.parts import (
    activation,
    add,
    first_of,
    linear,
    norm,
    table,
)
from paleo.net.importers.transformers.stack import stack
from paleo.net.importers.transformers.swin import Swin
from paleo.net.importers.transformers.vision import (
    CLIP_VISION,
    DEIT,
    SIGLIP_VISION,
    VIT,
    Tower,
    attention_pool,
    layers,
)
from paleo.net.lengths import SEQ


def text_tower(c: Config, root: Block, form: Tower, causal: bool) -> Path:
    """Write an encoder of texts whose layers are a tower's; return its tokens, N x T x H."""
    hidden, base = c.whole("hidden_size"), "text_model"
    tokens = root.add("input_ids", "Input", tensor=[1, SEQ])
    words = root.add(
        f"{base}/embeddings/token_embedding", "Embedding", tokens,
        num_embeddings=c.whole("vocab_size"), num_outputs=hidden,
    )  # fmt: skip
    rows = c.whole("max_position_embeddings")
    places = table(root, f"{base}/embeddings/position_embedding", rows, hidden, SEQ)
    x = add(root, f"{base}/embeddings/add", words, places)
    x = stack(root, f"{base}/encoder/layers", x, layers(c, form, causal), SEQ)
    return norm(root, f"{base}/final_layer_norm", x, "layer")


def image_tower(c: Config, root: Block, form: Tower, pooled: bool) -> Path:
    """Write an encoder of images; return the image's features, N x H.

    They are those of the first token, or of a learned query where there is none.
    """
    x, count, _ = form.body(c, root)
    place = f"{form.base}/{form.after}"
    if form.tokens:
        return norm(root, place, first_of(root, f"{form.base}/first", x), "layer")
    x = norm(root, place, x, "layer")
    return attention_pool(c, root, f"{form.base}/head", x, count) if pooled else x


@dataclass(frozen=True)
class Pair:
    """A family: SigLIP where `is_siglip`, else CLIP."""

    is_siglip: bool
    heads_of: ClassVar[dict[str, str]] = {"Model": "compare"}
    usual_head: ClassVar[str] = "compare"

    def write(self, c: Config, root: Block, head: str) -> dict[str, Any]:
        """Write both encoders at the root of a net, and the products of all pairs."""
        text = c.inner("text_config", SIGLIP_TEXT if self.is_siglip else CLIP_TEXT)
        image = c.inner("vision_config", SIGLIP_IMAGE if self.is_siglip else CLIP_IMAGE)
        form = SIGLIP_VISION if self.is_siglip else CLIP_VISION
        seen = image_tower(image, root, form, pooled=True)
        read = text_tower(text, root, form, causal=not self.is_siglip)
        # The last token of a text, whichever it is.
        last = root.add(
            "text_model/last", "Gather", read, output_shape=[-1, text.whole("hidden_size")]
        )
        if self.is_siglip:
            size = text.optional("projection_size") or text.whole("hidden_size")
            last = linear(root, "text_model/head", last, size)
        else:
            size = c.whole("projection_dim")
            seen = linear(root, "visual_projection", seen, size, False)
            last = linear(root, "text_projection", last, size, False)
        seen = root.add("image_embeds", "L2Norm", seen)
        last = root.add("text_embeds", "L2Norm", last)
        # Scaling texts scales all products, which are as many as the square of the batch.
        scale = root.add("logit_scale", "Parameter", shape=[1])
        last = root.add("scaled", "Elementwise", last, scale, function="product")
        logits = root.add("similarity", "Similarity", last, seen)
        if self.is_siglip:
            # One number is added to all of them, which stands beside the pass that does it.
            root.add("logit_bias", "Parameter", shape=[1])
            activation(root, "logits", logits, "affine")
        return {SEQ: min(text.whole("max_position_embeddings"), MOST_POSITIONS)}


@dataclass(frozen=True)
class Alone:
    """One of the encoders of a pair, as it stands alone."""

    is_siglip: bool
    is_text: bool
    heads_of: ClassVar[dict[str, str]] = {"Model": ""}
    usual_head: ClassVar[str] = ""

    def write(self, c: Config, root: Block, head: str) -> dict[str, Any]:
        """Write it at the root of a net."""
        form = SIGLIP_VISION if self.is_siglip else CLIP_VISION
        if not self.is_text:
            pooled = c.get("vision_use_head") is not False
            image_tower(c, root, form, pooled)
            return {}
        x = text_tower(c, root, form, causal=not self.is_siglip)
        last = root.add("text_model/last", "Gather", x, output_shape=[-1, c.whole("hidden_size")])
        if self.is_siglip:
            size = c.optional("projection_size") or c.whole("hidden_size")
            linear(root, "text_model/head", last, size)
        return {SEQ: min(c.whole("max_position_embeddings"), MOST_POSITIONS)}


CLIP_TEXT: Mapping[str, Any] = {
    "vocab_size": 49408, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12,
    "num_attention_heads": 8, "max_position_embeddings": 77, "hidden_act": "quick_gelu",
}  # fmt: skip
CLIP_IMAGE: Mapping[str, Any] = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 12, "num_channels": 3, "image_size": 224, "patch_size": 32,
    "hidden_act": "quick_gelu",
}  # fmt: skip
SIGLIP_TEXT: Mapping[str, Any] = {
    "vocab_size": 32000, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 12, "max_position_embeddings": 64, "hidden_act": "gelu_pytorch_tanh",
}  # fmt: skip
SIGLIP_IMAGE: Mapping[str, Any] = {
    **CLIP_IMAGE, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh",
}  # fmt: skip
_VIT: Mapping[str, Any] = {
    **CLIP_IMAGE, "patch_size": 16, "hidden_act": "gelu", "qkv_bias": True, "pooler_act": "tanh",
    "num_labels": 2,
}  # fmt: skip

#: How each `model_type` that sees images is read.
IMAGES: Mapping[str, Family] = {
    "vit": Family(VIT, _VIT),
    "deit": Family(DEIT, _VIT),
    "swin": Family(
        Swin(),
        {
            "image_size": 224, "patch_size": 4, "num_channels": 3, "embed_dim": 96,
            "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24], "window_size": 7,
            "mlp_ratio": 4.0, "qkv_bias": True, "hidden_act": "gelu", "num_labels": 2,
        },
    ),
    "clip": Family(Pair(False), {"projection_dim": 512}),
    "siglip": Family(Pair(True), {}),
    "clip_text_model": Family(Alone(False, True), CLIP_TEXT),
    "clip_vision_model": Family(Alone(False, False), CLIP_IMAGE),
    "siglip_text_model": Family(Alone(True, True), SIGLIP_TEXT),
    "siglip_vision_model": Family(Alone(True, False), SIGLIP_IMAGE),
}  # fmt: skip
