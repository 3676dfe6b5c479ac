"""Mixers that scan: Mamba (2312.00752), Mamba-2 (2405.21060), gated delta rule (2412.06464; arXiv).

Letters: D inner features, S numbers of a state, G groups that share B and C.
"""

from __future__ import annotations

from typing import Any

from paleo.core.frozen import dataclass
from paleo.net.importers.transformers.body import Block, Path
from paleo.net.importers.transformers.config import Config
from paleo.net.importers.transformers.functions import function
from paleo.net.importers.transformers.parts import (
    Length,
    activation,
    gated,
    linear,
    norm,
    part,
)


def _short(block: Block, x: Path, features: int, kernel: int, bias: bool, act: str) -> Path:
    """Write a convolution of each feature over the last positions, and a function."""
    without: dict[str, Any] = {} if bias else {"use_bias": False}
    x = block.add(
        "conv1d", "Convolution", x, filter=[kernel, 1, features], strides=[1, 1, 1],
        padding=[[kernel - 1, 0]], groups=features, **without,
    )  # fmt: skip
    return activation(block, "act", x, act)


@dataclass(frozen=True)
class Mamba:
    """Mamba's mixer; with `norms` steps, B and C are normalized, as in Jamba."""

    hidden: int
    inner: int
    state: int
    rank: int
    kernel: int
    function: str
    name: str = "mixer"
    bias: bool = False
    conv_bias: bool = True
    norms: bool = False

    def write(self, block: Block, x: Path, length: Length) -> Path:
        """Write it as a block."""
        block = block.block(self.name, x)
        both = linear(block, "in_proj", block.entry, 2 * self.inner, self.bias)
        gate = part(block, "gate", both, self.inner, self.inner)
        x = part(block, "x", both, 0, self.inner)
        x = _short(block, x, self.inner, self.kernel, self.conv_bias, self.function)
        made = linear(block, "x_proj", x, self.rank + 2 * self.state, False)
        steps = part(block, "dt", made, 0, self.rank)
        b = part(block, "b", made, self.rank, self.state)
        c = part(block, "c", made, self.rank + self.state, self.state)
        if self.norms:
            steps, b, c = (
                norm(block, f"{name}_layernorm", one, "rms")
                for name, one in (("dt", steps), ("b", b), ("c", c))
            )
        steps = linear(block, "dt_proj", steps, self.inner)
        x = block.add("scan", "SelectiveScan", x, steps, b, c, gate)
        return linear(block, "out_proj", x, self.hidden, self.bias)


@dataclass(frozen=True)
class Mamba2:
    """Mamba-2's mixer."""

    hidden: int
    num_heads: int
    head_dim: int
    groups: int
    state: int
    kernel: int
    chunk: int
    function: str
    bias: bool = False
    conv_bias: bool = True

    def write(self, block: Block, x: Path, length: Length) -> Path:
        """Write it as a block."""
        block = block.block("mixer", x)
        inner, states = self.num_heads * self.head_dim, self.groups * self.state
        mixed = inner + 2 * states
        made = linear(block, "in_proj", block.entry, inner + mixed + self.num_heads, self.bias)
        gate = part(block, "gate", made, 0, inner)
        x = part(block, "xbc", made, inner, mixed)
        steps = part(block, "dt", made, inner + mixed, self.num_heads)
        x = _short(block, x, mixed, self.kernel, self.conv_bias, self.function)
        shapes = {
            "x": (0, inner, self.num_heads, self.head_dim),
            "b": (inner, states, self.groups, self.state),
            "c": (inner + states, states, self.groups, self.state),
        }
        split = {}
        for name, (begin, size, *shape) in shapes.items():
            one = part(block, name, x, begin, size)
            split[name] = block.add(
                f"{name}_view", "Reshape", one, output_shape=[-1, length, *shape]
            )
        x = block.add(
            "scan", "StateSpaceDual", split["x"], steps, split["b"], split["c"], chunk=self.chunk
        )
        x = block.add("merge", "Reshape", x, output_shape=[-1, length, inner])
        inside = block.block("norm_gate", gate)
        x = norm(block, "norm", gated(inside, "silu", inside.entry, x), "rms")
        return linear(block, "out_proj", x, self.hidden, self.bias)


@dataclass(frozen=True)
class GatedDeltaNet:
    """Qwen3.5's linear attention (transformers, modeling_qwen3_5.py, Qwen3_5GatedDeltaNet)."""

    hidden: int
    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    kernel: int
    function: str

    def write(self, block: Block, x: Path, length: Length) -> Path:
        """Write it as a block."""
        block = block.block("linear_attn", x)
        x, keys, values = (
            block.entry, self.key_heads * self.key_dim, self.value_heads * self.value_dim,
        )  # fmt: skip
        mixed = linear(block, "in_proj_qkv", x, 2 * keys + values, False)
        mixed = _short(block, mixed, 2 * keys + values, self.kernel, False, self.function)
        shapes = {
            "q": (0, keys, self.key_heads, self.key_dim),
            "k": (keys, keys, self.key_heads, self.key_dim),
            "v": (2 * keys, values, self.value_heads, self.value_dim),
        }
        split = {}
        for name, (begin, size, *shape) in shapes.items():
            one = part(block, name, mixed, begin, size)
            split[name] = block.add(
                f"{name}_view", "Reshape", one, output_shape=[-1, length, *shape]
            )
        gate = linear(block, "in_proj_z", x, values, False)
        replaced = linear(block, "in_proj_b", x, self.value_heads, False)
        replaced = activation(block, "replaced", replaced, "sigmoid")
        decay = linear(block, "in_proj_a", x, self.value_heads, False)
        x = block.add("delta", "GatedDelta", *split.values(), decay, replaced)
        x = norm(block, "norm", x, "rms")
        x = block.add("merge", "Reshape", x, output_shape=[-1, length, values])
        inside = block.block("norm_gate", gate)
        return linear(
            block, "out_proj", gated(inside, self.function, inside.entry, x), self.hidden, False
        )


def gated_delta(c: Config, index: int) -> GatedDeltaNet | None:
    """Return the mixer of a layer of Qwen3.5, None where that is attention."""
    kinds = c.listed("layer_types", c.whole("num_hidden_layers"))
    every = c.whole("full_attention_interval")
    is_full = (index + 1) % every == 0 if kinds is None else kinds[index] == "full_attention"
    if index < 0 or is_full:
        return None
    heads, groups = c.whole("linear_num_value_heads"), c.whole("linear_num_key_heads")
    if heads % groups:
        c.wrong("linear_num_value_heads", f"{heads} cannot be divided among {groups} of keys")
        groups = heads
    return GatedDeltaNet(
        c.whole("hidden_size"), groups, c.whole("linear_key_head_dim"), heads,
        c.whole("linear_value_head_dim"), c.whole("linear_conv_kernel_dim"),
        function(c, "$hidden_act"),
    )  # fmt: skip


def mamba(c: Config, index: int) -> Mamba:
    """Return the mixer of a Mamba."""
    hidden = c.whole("hidden_size")
    return Mamba(
        hidden, int(c.number("expand") * hidden), c.whole("state_size"),
        _rank(c, "time_step_rank"), c.whole("conv_kernel"), function(c, "$hidden_act"),
        bias=c.flag("use_bias"), conv_bias=c.flag("use_conv_bias"),
    )  # fmt: skip


def jamba(c: Config, index: int) -> Mamba | None:
    """Return the mixer of a layer of Jamba, None where that is attention."""
    period, offset = c.whole("attn_layer_period"), c.whole("attn_layer_offset", 0)
    if index < 0 or index % period == offset:
        return None
    hidden = c.whole("hidden_size")
    return Mamba(
        hidden, int(c.number("mamba_expand") * hidden), c.whole("mamba_d_state"),
        _rank(c, "mamba_dt_rank"), c.whole("mamba_d_conv"), function(c, "$hidden_act"), "mamba",
        c.flag("mamba_proj_bias"), c.flag("mamba_conv_bias"), norms=True,
    )  # fmt: skip


def mamba2(c: Config, index: int) -> Mamba2:
    """Return the mixer of a Mamba-2."""
    hidden, heads, head_dim = (c.whole(key) for key in ("hidden_size", "num_heads", "head_dim"))
    groups, inner = c.whole("n_groups"), int(c.number("expand") * hidden)
    if heads * head_dim != inner:
        c.wrong("num_heads", f"{heads} heads of {head_dim} are not the {inner} inner features")
    if heads % groups:
        c.wrong("num_heads", f"{heads} cannot be divided among {groups} groups")
    return Mamba2(
        hidden, heads, head_dim, groups, c.whole("state_size"), c.whole("conv_kernel"),
        c.whole("chunk_size"), function(c, "$hidden_act"), c.flag("use_bias"),
        c.flag("use_conv_bias"),
    )  # fmt: skip


def _rank(c: Config, key: str) -> int:
    """Return the features that steps are made of: as given, or one for 16 of the model's."""
    return -(-c.whole("hidden_size") // 16) if c.get(key) == "auto" else c.whole(key)
