"""Encoders and decoders that read them: T5, BART, Whisper, from a table of what each family is.

The encoder's positions are the dimension `seq`, the decoder's `decoder_seq`, as many unless it is
set; Whisper's encoder has a fixed number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from paleo.core.frozen import dataclass
from paleo.net.importers.transformers.body import Block, Path
from paleo.net.importers.transformers.config import Config
from paleo.net.importers.transformers.decoder import MOST_POSITIONS
from paleo.net.importers.transformers.family import Family
from paleo.net.importers.transformers.functions import function
from paleo.net.importers.transformers.parts import (
    MLP,
    Attention,
    Length,
    activation,
    add,
    linear,
    norm,
    table,
)
from paleo.net.importers.transformers.stack import Layer, stack
from paleo.net.lengths import DECODER_SEQ, SEQ

#: The dimension of the decoder's positions.


@dataclass(frozen=True)
class Names:
    """What the modules of a layer are called, from the layer on."""

    own: str = "self_attn"
    cross: str = "encoder_attn"
    own_norm: str = "self_attn_layer_norm"
    cross_norm: str = "encoder_attn_layer_norm"
    feed: str = ""
    decoder_feed: str = ""
    up: str = "fc1"
    down: str = "fc2"
    feed_norm: str = "final_layer_norm"
    decoder_feed_norm: str = "final_layer_norm"


@dataclass(frozen=True)
class Seq2Seq:
    """What a family is; names of modules are paths from the root of the model.

    With `first` norms stand before what they are of, else behind each sum. `audio` says that the
    encoder reads sound, by two convolutions; `relative` that biases of distances are added to
    scores.
    """

    base: str = "model/"
    layers: str = "layers"
    names: Names = Names()
    norm: str = "layer"
    first: bool = False
    #: The table of words, and a second name where the decoder has one of its own.
    words: str = "shared"
    embed_norm: str = ""
    final: str = ""
    has_positions: bool = True
    before_positions: int = 0
    audio: bool = False
    relative: bool = False
    attention: Callable[[Config, str], Attention] | None = None
    count: Callable[[Config, str], int] = lambda c, side: c.whole(f"{side}_layers")
    size: Callable[[Config, str], int] = lambda c, side: c.whole(f"{side}_ffn_dim")
    act: Callable[[Config], str] = lambda c: function(c, "$activation_function")
    gated: Callable[[Config], bool] = lambda c: False
    bias: bool = True
    #: Whether the head is the table of words whatever the file says, as transformers has T5.
    ties: bool = False
    head: str = "lm_head"
    heads_of: ClassVar[dict[str, str]] = {"ForConditionalGeneration": "words", "Model": ""}
    usual_head: ClassVar[str] = "words"

    def write(self, c: Config, root: Block, head: str) -> dict[str, Any]:
        """Write it at the root of a net."""
        hidden, vocabulary = c.whole("hidden_size"), c.whole("vocab_size")
        dims: dict[str, Any] = {}
        words: Path | None = None

        def embedded(side: str, length: str) -> Path:
            nonlocal words
            name = "input_ids" if side == "encoder" else "decoder_input_ids"
            tokens = root.add(name, "Input", tensor=[1, length])
            place = f"{self.base}{self.words}"
            found = root.add(
                place if words is None else f"{self.base}{side}/embed_tokens", "Embedding", tokens,
                shares=words, num_embeddings=vocabulary, num_outputs=hidden,
            )  # fmt: skip
            words = words or found
            return found

        seq: Length = SEQ
        most = c.optional("max_position_embeddings") or MOST_POSITIONS
        if self.audio:
            seq = c.whole("max_source_positions")
            x = _sound(c, root, f"{self.base}encoder", seq)
            decoder_seq = SEQ
            dims = {SEQ: min(c.whole("max_target_positions"), MOST_POSITIONS)}
        else:
            x = embedded("encoder", SEQ)
            decoder_seq = DECODER_SEQ
            dims = {SEQ: min(most, MOST_POSITIONS), DECODER_SEQ: SEQ}
        memory = self._side(c, root, x, "encoder", seq, None)
        x = embedded("decoder", decoder_seq)
        x = self._side(c, root, x, "decoder", decoder_seq, (memory, seq))
        if head:
            assert words
            shared = words if self.ties or c.get("tie_word_embeddings") is not False else None
            linear(root, self.head, x, vocabulary, False, shared)
        return dims

    def _side(
        self,
        c: Config,
        root: Block,
        x: Path,
        side: str,
        length: Length,
        memory: tuple[Path, Length] | None,
    ) -> Path:
        """Write the encoder, or the decoder that reads a memory."""
        names, hidden, place = self.names, c.whole("hidden_size"), f"{self.base}{side}"
        if self.has_positions:
            most = "max_position_embeddings"
            if self.audio:
                most = "max_source_positions" if memory is None else "max_target_positions"
            rows = c.whole(most) + self.before_positions
            places = table(
                root, f"{place}/embed_positions", rows, hidden, length, self.before_positions
            )
            x = add(root, f"{place}/embed", x, places)
        x = norm(root, self.embed_norm and f"{place}/{self.embed_norm}", x, self.norm)
        assert self.attention
        base = self.attention(c, side)
        own = replace(base, name=names.own)
        cross = replace(base, name=names.cross, memory=memory) if memory else None
        if memory:
            own = replace(own, keys=(("causal", True),))
        if self.relative:
            scores = _distances(c, root, f"{place}/relative_attention_bias", length)
            own = replace(own, scores=scores)
        gated = self.gated(c)
        feed = MLP(
            hidden, self.size(c, side), self.act(c),
            names.feed if memory is None else names.decoder_feed,
            "wi_1" if gated else names.up, names.down, "wi_0" if gated else "", bias=self.bias,
        )  # fmt: skip
        feed_norm = names.feed_norm if memory is None else names.decoder_feed_norm
        kinds: dict[str, Any] = (
            {"before": names.own_norm, "before_feed": feed_norm, "before_cross": names.cross_norm}
            if self.first
            else {"summed": names.own_norm, "summed_feed": feed_norm,
                  "summed_cross": names.cross_norm}
        )  # fmt: skip
        layer = Layer(own, feed, self.norm, cross=cross, **kinds)
        x = stack(root, f"{place}/{self.layers}", x, [layer] * self.count(c, side), length)
        return norm(root, self.final and f"{place}/{self.final}", x, self.norm)


def _sound(c: Config, root: Block, place: str, positions: int) -> Path:
    """Write what reads a spectrogram: two convolutions, the second of every other frame."""
    hidden, bins = c.whole("hidden_size"), c.whole("num_mel_bins")
    x = root.add("input_features", "Input", tensor=[1, 2 * positions, bins])
    for k, (before, step) in enumerate(((bins, 1), (hidden, 2)), start=1):
        x = root.add(
            f"{place}/conv{k}", "Convolution", x, filter=[3, before, hidden], strides=[1, step, 1],
            padding=[1],
        )  # fmt: skip
        x = activation(root, f"{place}/conv{k}_act", x, "gelu")
    return x


def _distances(c: Config, root: Block, place: str, length: Length) -> Path:
    """Write T5's biases: a number for each head and bucket of distances."""
    buckets = root.add(f"{place}_buckets", "Parameter", shape=[length, length], trainable=False)
    found = root.add(
        place, "Embedding", buckets, num_embeddings=c.whole("relative_attention_num_buckets"),
        num_outputs=c.whole("num_attention_heads"),
    )  # fmt: skip
    return root.add(f"{place}_heads", "Transpose", found, perm=[0, 3, 1, 2])


def _t5_attention(c: Config, side: str) -> Attention:
    heads = c.whole("num_attention_heads")
    return Attention(
        c.whole("hidden_size"), heads, heads, c.whole("d_kv"), q="q", k="k", v="v", out="o"
    )


def _t5_layers(c: Config, side: str) -> int:
    count = c.optional("num_decoder_layers") if side == "decoder" else None
    return count or c.whole("num_hidden_layers")


def _t5_act(c: Config) -> str:
    """Return the function of T5's MLP: "relu", or behind "gated-"; GELU is by tanh then."""
    return function(c, "$feed_forward_proj", c.text("feed_forward_proj").removeprefix("gated-"))


def _bart_attention(c: Config, side: str) -> Attention:
    key = f"{side}_attention_heads"
    heads, size = c.whole(key), c.divided("hidden_size", key)
    return Attention(
        c.whole("hidden_size"), heads, heads, size, out="out_proj", bias=True, out_bias=True
    )


T5 = Seq2Seq(
    base="", layers="block", norm="rms", first=True, final="final_layer_norm", has_positions=False,
    relative=True, ties=True, attention=_t5_attention, count=_t5_layers,
    size=lambda c, side: c.whole("d_ff"), act=_t5_act, bias=False,
    gated=lambda c: str(c.get("feed_forward_proj")).startswith("gated"),
    names=Names(
        own="layer/0/SelfAttention", cross="layer/1/EncDecAttention",
        own_norm="layer/0/layer_norm", cross_norm="layer/1/layer_norm",
        feed="layer/1/DenseReluDense", decoder_feed="layer/2/DenseReluDense", up="wi", down="wo",
        feed_norm="layer/1/layer_norm", decoder_feed_norm="layer/2/layer_norm",
    ),
)  # fmt: skip
BART = Seq2Seq(embed_norm="layernorm_embedding", before_positions=2, attention=_bart_attention)
WHISPER = Seq2Seq(
    first=True, final="layer_norm", audio=True, words="decoder/embed_tokens", head="proj_out",
    attention=lambda c, side: replace(_bart_attention(c, side), k_bias=False),
)  # fmt: skip

#: How each `model_type` is read.
SEQ2SEQ: Mapping[str, Family] = {
    "t5": Family(
        T5,
        {
            "vocab_size": 32128, "hidden_size": 512, "d_kv": 64, "d_ff": 2048,
            "num_hidden_layers": 6, "num_attention_heads": 8, "feed_forward_proj": "relu",
            "relative_attention_num_buckets": 32, "max_position_embeddings": 512,
        },
        {
            "hidden_size": ("d_model",), "num_hidden_layers": ("num_layers",),
            "num_attention_heads": ("num_heads",), "max_position_embeddings": ("n_positions",),
        },
    ),
    "bart": Family(
        BART,
        {
            "vocab_size": 50265, "hidden_size": 1024, "max_position_embeddings": 1024,
            "encoder_layers": 12, "encoder_ffn_dim": 4096, "encoder_attention_heads": 16,
            "decoder_layers": 12, "decoder_ffn_dim": 4096, "decoder_attention_heads": 16,
            "activation_function": "gelu",
        },
        {"hidden_size": ("d_model",)},
    ),
    "whisper": Family(
        WHISPER,
        {
            "vocab_size": 51865, "num_mel_bins": 80, "hidden_size": 384, "encoder_layers": 4,
            "encoder_ffn_dim": 1536, "encoder_attention_heads": 6, "decoder_layers": 4,
            "decoder_ffn_dim": 1536, "decoder_attention_heads": 6, "max_source_positions": 1500,
            "max_target_positions": 448, "activation_function": "gelu",
        },
        {"hidden_size": ("d_model",)},
    ),
}  # fmt: skip
