"""Predicting rows of language models that many devices share: steps on a mesh.

Nothing is fitted to them. Nets are built of the shapes that rows state, as the software of a source
wrote them: Megatron-LM's GPT has dropout, and before 2023 attention as two products with a softmax
between, whose kernel scales and masks as well (megatron/model/fused_softmax.py).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from paleo.cluster import Cluster, find_cluster
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import ceil_div
from paleo.measure.validate.measured import Measurement
from paleo.measure.validate.spellings import UnmappedError
from paleo.net.load import loads
from paleo.net.spec import NetSpec
from paleo.step.mesh import Mesh
from paleo.step.meshed import Meshed
from paleo.step.scenario import scenario

_DEGREE = re.compile(r"\b(tp|pp|dp|cp|ep|interleave)(\d+)\b")
#: The probability by which Megatron-LM keeps an element (--hidden-dropout, --attention-dropout).
_KEPT = 0.9


class Source(NamedTuple):
    """How the software of a source runs: settings of a scenario, and whether gradients overlap."""

    settings: dict[str, Any]
    vocabulary: int | None = None


#: Megatron-DeepSpeed and Megatron-LM of 2021 and 2022 on nodes of eight A100: no gradients are
#: exchanged before the backward pass is done.
_MEGATRON: dict[str, Any] = {
    "cluster": "dgx_a100", "framework": "megatron", "dtype": "fp16", "optimizer": "adamw",
    "clip_gradients": True, "scale_loss": True, "loss": "fused",
}  # fmt: skip
SOURCES = {
    "vtrain": Source(_MEGATRON),
    "megatron_seqsel": Source(_MEGATRON),
    "megatron_a100": Source(_MEGATRON),
}


@dataclass(frozen=True)
class MeshCase:
    """A row, and the step that is predicted for it: so many samples on a mesh, in how long."""

    row: Measurement
    mesh: Mesh
    global_batch: int
    settings: tuple[tuple[str, Any], ...]
    shape: tuple[int, int, int, int, int, int]
    seconds: float

    def predicted(self) -> float:
        """Return the seconds that the model predicts."""
        meshed = _meshed(self.mesh, self.settings, self.shape)
        return float(meshed.step(self.global_batch).total("auto"))


def mesh_cases(rows: Iterable[Measurement]) -> tuple[list[MeshCase], dict[str, int]]:
    """Return the cases of rows, and how many rows are left out for which reason."""
    found, left_out = [], dict[str, int]()
    for row in rows:
        try:
            found.append(mesh_case(row))
        except UnmappedError as error:
            left_out[str(error)] = left_out.get(str(error), 0) + 1
    return found, left_out


def mesh_case(row: Measurement) -> MeshCase:
    """Return what is predicted for a row; raises UnmappedError."""
    if row.source_id not in SOURCES:
        raise UnmappedError(f"no mesh of {row.source_id} is modelled")
    degrees = {name: int(count) for name, count in _DEGREE.findall(row.parallelism)}
    mesh = Mesh.of(row.n_devices, degrees.get("tp", 1), pp=degrees.get("pp", 1))
    shape = row.sizes
    missing = [name for name in ("layers", "hidden", "heads") if name not in shape]
    if missing or not row.global_batch or not row.seq_len:
        raise UnmappedError(f"rows that do not say {', '.join([*missing, 'the batch'][:2])}")
    vocabulary = int(shape.get("vocab", 51200))
    sizes = (
        int(shape["layers"]), int(shape["hidden"]), int(shape["heads"]),
        int(shape.get("ffn", 4 * shape["hidden"])), vocabulary, int(row.seq_len),
    )  # fmt: skip
    again = re.search(r"recompute: (\w+)", row.notes)
    modes = {"full": "full", "attn_only": "selective", "none": "none"}
    settings: dict[str, Any] = {
        "tp": mesh.tp,
        "pp": mesh.pp,
        "micro_batch": int(row.micro_batch) if row.micro_batch else None,
        "interleave": degrees.get("interleave", 1),
        "sequence_parallel": "sequence parallel" in row.notes and mesh.tp > 1,
        "recompute": modes[again[1]] if again and again[1] in modes else "full",
    }
    batch = int(row.global_batch)
    return MeshCase(row, mesh, batch, tuple(settings.items()), sizes, _seconds(row, batch, sizes))


def _seconds(row: Measurement, batch: int, sizes: tuple[int, ...]) -> float:
    """Return the seconds of a step that a row says."""
    layers, hidden, _, _, vocabulary, seq = sizes
    if row.quantity.part == "step":
        return row.value * row.quantity.scale
    if row.quantity.name == "tflops_per_gpu":
        # With all of the forward pass computed again (Narayanan et al., arXiv:2104.04473, eq. 3).
        per_sample: float = 96 * seq * layers * hidden**2
        per_sample *= 1 + seq / (6 * hidden) + vocabulary / (16 * layers * hidden)
        return batch * per_sample / (row.value * 1e12 * row.n_devices)
    if row.quantity.name == "tokens_per_s_per_gpu":
        return batch * seq / (row.value * row.n_devices)
    raise UnmappedError(f"{row.quantity.name} is no time of a step on a mesh")


@functools.lru_cache(maxsize=64)
def _meshed(mesh: Mesh, settings: tuple[tuple[str, Any], ...], shape: tuple[int, ...]) -> Meshed:
    cluster = _of_so_many(mesh.size)
    found = scenario(gpt(*shape), **_MEGATRON | {"cluster": cluster} | dict(settings))
    return Meshed(found.net, found.plan, mesh)


def _of_so_many(devices: int) -> Cluster:
    """Return DGX A100 as Selene has them, of which there are more than in a SuperPOD."""
    cluster = find_cluster(str(_MEGATRON["cluster"]))
    *inner, outer = cluster.tiers
    most = max(outer.size, ceil_div(devices, cluster.size // outer.size))
    return replace(cluster, tiers=(*inner, replace(outer, size=most)))


@functools.lru_cache(maxsize=16)
def gpt(layers: int, hidden: int, heads: int, ffn: int, vocabulary: int, seq: int) -> NetSpec:
    """Return GPT as Megatron-LM has it, with dropout and attention of which each step is a kernel.

    Its layers are those of arXiv:1909.08053, section 3; positions are learned.
    """
    size = hidden // heads

    def product(parent: str, outputs: int) -> dict[str, Any]:
        return {"type": "InnerProduct", "parents": [parent], "num_outputs": outputs, "axis": -1}

    def dropout(parent: str) -> dict[str, Any]:
        return {"type": "Dropout", "parents": [parent], "dropout_keep_prob": _KEPT}

    def part(of: str, begin: int) -> dict[str, Any]:
        return {"type": "Slice", "parents": [of], "dim": -1, "begin": begin, "size": hidden}

    def heads_of(name: str, order: list[int]) -> dict[str, Any]:
        view = {"type": "Reshape", "parents": [name], "output_shape": [-1, seq, heads, size]}
        return {
            f"{name}_view": view,
            f"{name}_heads": {"type": "Transpose", "parents": [f"{name}_view"], "perm": order},
        }

    block: dict[str, Any] = {
        "ln_1": {"type": "LayerNorm", "parents": []},
        "qkv": product("ln_1", 3 * hidden),
        **{name: part("qkv", i * hidden) for i, name in enumerate("qkv")},
        **heads_of("q", [0, 2, 1, 3]),
        **heads_of("k", [0, 2, 3, 1]),
        **heads_of("v", [0, 2, 1, 3]),
        "scores": {"type": "MatMul", "parents": ["q_heads", "k_heads"]},
        "softmax": {"type": "Softmax", "parents": ["scores"], "dim": -1},
        "kept": dropout("softmax"),
        "values": {"type": "MatMul", "parents": ["kept", "v_heads"]},
        "turned": {"type": "Transpose", "parents": ["values"], "perm": [0, 2, 1, 3]},
        "merged": {"type": "Reshape", "parents": ["turned"], "output_shape": [-1, seq, hidden]},
        "proj": product("merged", hidden),
        "proj_kept": dropout("proj"),
        "add_1": {"type": "Elementwise", "parents": ["..", "proj_kept"]},
        "ln_2": {"type": "LayerNorm", "parents": ["add_1"]},
        "fc": product("ln_2", ffn),
        "gelu": {"type": "Activation", "parents": ["fc"], "function": "gelu"},
        "fc_back": product("gelu", hidden),
        "fc_kept": dropout("fc_back"),
        "add_2": {"type": "Elementwise", "parents": ["add_1", "fc_kept"]},
    }
    net = {
        "name": f"gpt {layers} x {hidden}",
        "layers": {
            "words": {"type": "Input", "parents": [], "tensor": [1, seq]},
            "wte": {
                "type": "Embedding", "parents": ["words"], "num_embeddings": vocabulary,
                "num_outputs": hidden,
            },
            "wpe": {"type": "Parameter", "parents": [], "shape": [seq, hidden]},
            "embed": {"type": "Elementwise", "parents": ["wte", "wpe"]},
            "embed_kept": dropout("embed"),
            "h": {
                "type": "Block", "parents": ["embed_kept"], "repeat": layers, "endpoint": "add_2",
                "layers": block,
            },
            "ln_f": {"type": "LayerNorm", "parents": ["h"]},
            "head": {**product("ln_f", vocabulary), "shares": "wte", "use_bias": False},
        },
    }  # fmt: skip
    return loads(json.dumps(net))
