"""Predicting rows of steps that devices share by more than their data: steps on a mesh.

Nothing is fitted to them. `SOURCES` has what the software of a source does that its rows do not
say; a row of any other source says all in its columns (docs/validate.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from paleo.cluster import Cluster, Device, Network, cluster_names, find_cluster
from paleo.cluster.figures import Figure
from paleo.cluster.frameworks import FRAMEWORKS
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Quantity, ceil_div, rounded_up
from paleo.core.units import GIB
from paleo.measure.validate.groups import CaseGroup
from paleo.measure.validate.link_constants import LINK_CONSTANTS, known_links, link_of, linked
from paleo.measure.validate.measured import Measurement
from paleo.measure.validate.mesh_nets import GptSizes, gpt, singles, with_layers
from paleo.measure.validate.names import meant, net_of
from paleo.measure.validate.nets import Remembering
from paleo.measure.validate.sequences import length_of, with_length
from paleo.measure.validate.spellings import UnmappedError, device_of, dtype_of
from paleo.measure.validate.traced import traced_step
from paleo.measure.validate.wiring import wiring_of
from paleo.net.graph import build
from paleo.net.spec import NetSpec
from paleo.step.mesh import Mesh
from paleo.step.meshed import Meshed, micro_batch_of
from paleo.step.part import Part
from paleo.step.scenario import scenario

_DEGREES = re.compile(r"\b(tp|pp|dp|cp|ep|zero|interleave)(\d+)\b")
_WAYS = ("tp", "cp", "ep", "pp")
#: The quantity of rows of what a device takes of memory at its peak.
MEMORY = "peak_memory_gib"
_SHARDED = re.compile(r"\bfsdp\b", re.IGNORECASE)
_TRAIN = ("", "train", "training")
#: Words of notes for what is computed again.
_AGAIN = re.compile(r"(?:recompute: |recompute=|act_ckpt=)(\w+)")
_MODES = {
    "full": "full", "True": "full", "attn_only": "selective", "selective": "selective",
    "none": "none", "False": "none",
}  # fmt: skip
#: What a row says of cards: how many of how many Gbit/s, or Gbit/s in all.
_CARDS = re.compile(r"(?:(\d+) ?x[^,;:]*?)?(\d+) ?G(?:b|bit)(?:/s|ps|/Sec)", re.IGNORECASE)
_OTHER_CARDS = re.compile(r"Storage|Management")
_GBIT = 1e9 / 8
#: What rows of boards say that stand in a server with a switch, and such servers.
_BEHIND = re.compile(r"NV(?:Link|Switch)|inter-node|Selene", re.IGNORECASE)
_SWITCHED = ("dgx_a100", "dgx_h100", "hgx_h200", "hgx_b200")


class Source(NamedTuple):
    """How the software of a source runs: settings of a scenario, and the net of a row.

    The `degrees` hold where a row says none.
    """

    settings: Mapping[str, Any]
    net: Callable[[Measurement], NetSpec]
    degrees: Mapping[str, int] = {}


@dataclass(frozen=True)
class MeshCase:
    """What is predicted for a row: a step of so many samples on a mesh of a cluster's devices.

    `settings` are those of a scenario besides. Where a step was composed of a trace of one layer,
    the net has that layer alone, and `composed` is how many the step has.
    """

    net: NetSpec
    mesh: Mesh
    global_batch: int
    cluster: Cluster
    settings: tuple[tuple[str, Any], ...]
    composed: int = 0

    def seconds(self, meshed: Meshed) -> Quantity:
        """Return the seconds of the step, of what `meshed` returns."""
        if self.composed:
            return traced_step(meshed, self.mesh, self.composed, self.global_batch)
        step = meshed.step(self.global_batch)
        found: Quantity = step.total(step.best_scheme)
        return found

    def meshed(
        self,
        device: Device,
        links: Mapping[str, Quantity] | None = None,
        part: Part | None = None,
        **settings: Any,
    ) -> Meshed:
        """Return the net on devices of this kind, under these settings besides its own.

        `links` are constants of the links inside a node, as paleo.measure.validate.link_constants
        has them; a `part` that was found with other devices or links is not built anew.
        """
        cluster = linked(replace(self.cluster, device=device), links or {})
        found = scenario(self.net, **{"cluster": cluster, **dict(self.settings), **settings})
        part = part.under_plan(found.plan) if part else None
        mesh = Mesh.of(self.mesh.tp, self.mesh.tp) if self.composed else self.mesh
        return Meshed(found.net, found.plan, mesh, part)

    def memory_bytes(self, device: Device) -> int:
        """Return the bytes that tensors take on a device of the fullest stage.

        That is what was measured (torch.cuda.max_memory_allocated): an allocator's slack is not in.
        """
        meshed = self.meshed(device)
        micro = micro_batch_of(self.net, meshed.plan, self.mesh, self.global_batch)
        stages = meshed.memory(micro, meshed.batches(self.global_batch))
        return int(max(stage.allocated for stage in stages))


@dataclass(frozen=True, eq=False)
class MeshGroup(CaseGroup):
    """Rows of one step on a mesh.

    `parts` has what a device has of the net by cost model, where it is kept for other constants.
    """

    case: MeshCase
    parts: dict[str, Part] | None = None

    def seconds(self, pricing: Remembering, constants: Mapping[str, Quantity]) -> Quantity:
        figures = {
            name: Figure(value, "", "given")
            for name, value in constants.items()
            if name not in LINK_CONSTANTS
        }
        device = replace(self.device, constants={**self.device.constants, **figures})
        model = pricing.model
        asked: dict[str, Any] = {"cost_model": model}
        if not model.knows_attention_kernels:
            asked["attention"] = None
        kept = {} if self.parts is None else self.parts
        meshed = self.case.meshed(device, constants, kept.get(model.name), **asked)
        kept[model.name] = meshed.part
        return self.case.seconds(meshed)

    def keeping(self) -> MeshGroup:
        return replace(self, parts={})

    @property
    def links(self) -> Network | None:
        """The links inside a node, if there are several devices and collectives were measured."""
        return link_of(self.case.cluster)

    def known(self, name: str) -> float | None:
        links = known_links(self.case.cluster)
        if name == "host" and (framework := dict(self.case.settings).get("framework")):
            return float(FRAMEWORKS[framework].host_of(self.device))
        return links.get(name) if name in LINK_CONSTANTS else super().known(name)

    @property
    def software(self) -> str:
        """The family of what runs the net, "" for none of paleo.cluster.frameworks."""
        name = dict(self.case.settings).get("framework")
        return FRAMEWORKS[name].family if name else ""

    def describe(self, place: int) -> str:
        mesh = self.case.mesh
        degrees = {name: getattr(mesh, name) for name in ("tp", "cp", "ep", "pp", "dp")}
        said = " ".join(f"{name} {count}" for name, count in degrees.items() if count > 1)
        return f"{said or 'one device'}, batch {self.case.global_batch}"


def is_shared(row: Measurement) -> bool:
    """Tell whether a row is of training that is shared by more than its data."""
    trains = row.direction.casefold() in _TRAIN and not row.operator
    says = _DEGREES.search(row.parallelism) or _SHARDED.search(row.parallelism)
    return trains and bool(says or _source(row))


def mesh_case(row: Measurement, device: Device) -> tuple[MeshCase, float]:
    """Return what is predicted for a row, and the seconds that it says; raises UnmappedError."""
    case = shared_step(row, device)
    return case, _seconds(row, case.net, case.global_batch)


def memory_errors(rows: Iterable[Measurement]) -> list[float]:
    """Return by what share the memory of each row of peak memory, in GiB, is predicted wrong.

    Raises UnmappedError for a row that says no step on a mesh.
    """
    found = []
    for row in rows:
        if row.quantity.name == MEMORY:
            device = device_of(row.device)
            found.append(shared_step(row, device).memory_bytes(device) / (row.value * GIB) - 1)
    return found


def shared_step(row: Measurement, device: Device) -> MeshCase:
    """Return the step that a row is of, on these devices; raises UnmappedError."""
    source = _source(row) or Source({}, _named)
    mesh, degrees = _mesh(row, source)
    if not row.global_batch or row.global_batch % 1:
        raise UnmappedError("no batch of all devices")
    settings: dict[str, Any] = dict(source.settings) or _settings(row)
    again = _AGAIN.search(row.notes)
    divides = "sequence parallel" in row.notes or settings.get("sequence_parallel", False)
    settings |= {name: getattr(mesh, name) for name in _WAYS}
    settings |= {name: degrees[name] for name in ("zero", "interleave") if name in degrees}
    settings |= {
        "micro_batch": int(row.micro_batch) if row.micro_batch else None,
        "recompute": _MODES.get(again[1], "none") if again else settings.get("recompute", "none"),
        "sequence_parallel": divides and mesh.tp > 1,
        "dtype": settings.get("dtype") or dtype_of(row.precision, device, is_net=True),
    }
    if row.framework == TRACED:
        return _composed(row, mesh, settings, _cluster(row, device))
    net = source.net(row)
    if "layers" in row.sizes and mesh.pp > 1 and singles(net):
        # Stages have as many layers each; a block that is there once stands before those dealt out.
        first = int(row.sizes["layers"]) // mesh.pp
        settings["stages"] = (first - singles(net), *[first] * (mesh.pp - 1))
    cluster = _cluster(row, device)
    return MeshCase(net, mesh, int(row.global_batch), cluster, tuple(settings.items()))


def _composed(
    row: Measurement, mesh: Mesh, settings: Mapping[str, Any], cluster: Cluster
) -> MeshCase:
    """Return what vTrain composes of a trace of one layer: see `traced_step`.

    Its model has no words more than fill the shares of a tensor-parallel group (src/model), and is
    updated without a look at its gradients.
    """
    sizes = _gpt_sizes(row)
    words = sizes.vocabulary // mesh.tp * mesh.tp
    net = gpt(sizes._replace(layers=1, vocabulary=words))
    own = {**settings, **_TRACED, "pp": 1, "micro_batch": int(row.micro_batch or 1)}
    return MeshCase(
        net, mesh, int(row.global_batch or 0), cluster, tuple(own.items()), sizes.layers
    )


def _mesh(row: Measurement, source: Source) -> tuple[Mesh, dict[str, int]]:
    """Return the mesh of a row, and the degrees that it says."""
    degrees = {name: int(count) for name, count in _DEGREES.findall(row.parallelism)}
    degrees = degrees or dict(source.degrees)
    if _SHARDED.search(row.parallelism):
        degrees["zero"] = 3
    if not degrees:
        raise UnmappedError("no degrees of parallelism")
    tp, cp, ep, pp = (degrees.get(name, 1) for name in _WAYS)
    mesh = Mesh.of(row.n_devices, tp, cp, ep, pp)
    if degrees.get("dp", mesh.dp) != mesh.dp:
        raise UnmappedError("degrees of parallelism that are not those of so many devices")
    return mesh, degrees


def _settings(row: Measurement) -> dict[str, Any]:
    """Return the settings that a row of no source in particular says."""
    said = row.framework.casefold()
    names = sorted((name for name in FRAMEWORKS if name in said), key=len)
    settings: dict[str, Any] = {"framework": names[-1] if names else None}
    return settings | {"optimizer": row.optimizer or "adamw"}


def _seconds(row: Measurement, net: NetSpec, batch: int) -> float:
    """Return the seconds of a step that a row says."""
    if row.quantity.part == "step":
        return row.value * row.quantity.scale
    if row.quantity.name == "tflops_per_gpu":
        return batch * _flops(row) / (row.value * 1e12 * row.n_devices)
    if row.quantity.name == "tokens_per_s_per_gpu":
        return batch * length_of(net) / (row.value * row.n_devices)
    if row.quantity.kind == "rate" and row.quantity.things != "images":
        return batch * (length_of(net) if row.quantity.things == "tokens" else 1) / row.value
    raise UnmappedError(f"{row.quantity.name} is no time of a step on a mesh")


def _flops(row: Measurement) -> float:
    """Return the FLOPs of a sample with all of the forward pass computed again.

    That is how rates of TFLOP/s count them (Narayanan et al., arXiv:2104.04473, equation 3).
    """
    sizes = _gpt_sizes(row)
    found: float = 96 * sizes.seq * sizes.layers * sizes.hidden**2
    return found * (
        1 + sizes.seq / (6 * sizes.hidden) + sizes.vocabulary / (16 * sizes.layers * sizes.hidden)
    )


# Clusters


def _cluster(row: Measurement, device: Device) -> Cluster:
    """Return the cluster of a row, of as many nodes as it needs.

    It is what the interconnect names; of boards behind NVLink or a switch that of their server,
    with the cards that the row lists; else the machine or the links that it lists.
    """
    text = row.interconnect
    if text in cluster_names() or text.endswith(".toml"):
        cluster = find_cluster(text)
    elif server := _server(text, device):
        cluster = _with_cards(server, text)
    else:
        cluster = wiring_of(row, device).cluster(device)
    if not cluster.tiers:
        return cluster
    *inner, outer = cluster.tiers
    most = max(outer.size, ceil_div(row.n_devices, cluster.size // outer.size))
    return replace(cluster, tiers=(*inner, replace(outer, size=most)))


def _server(text: str, device: Device) -> Cluster | None:
    """Return the predefined cluster of boards that an interconnect says are behind a switch."""
    if not _BEHIND.search(text):
        return None
    servers = map(find_cluster, _SWITCHED)
    return next((server for server in servers if server.device.name == device.name), None)


def _with_cards(cluster: Cluster, text: str) -> Cluster:
    """Return the cluster with as many cards of its network a node as a text says, if it does."""
    parts = [part for part in re.split(r"[;,]", text) if not _OTHER_CARDS.search(part)]
    rates = [int(count or 1) * int(rate) for part in parts for count, rate in _CARDS.findall(part)]
    *inner, outer = cluster.tiers
    if not rates:
        return cluster
    links = max(1, round(max(rates) * _GBIT / float(outer.network.bandwidth)))
    return replace(cluster, tiers=(*inner, replace(outer, links=links)))


# Nets


def _gpt_sizes(row: Measurement) -> GptSizes:
    """Return the sizes that a row states of a GPT; raises UnmappedError."""
    shape = row.sizes
    missing = [name for name in ("layers", "hidden", "heads") if name not in shape]
    if missing or not row.seq_len:
        raise UnmappedError(f"rows that do not say {', '.join(missing) or 'seq_len'}")
    return GptSizes(
        int(shape["layers"]), int(shape["hidden"]), int(shape["heads"]),
        int(shape.get("ffn", 4 * shape["hidden"])), int(shape.get("vocab", 51200)),
        int(row.seq_len),
    )  # fmt: skip


#: Megatron-LM's words are as many as such shares for each tensor-parallel device
#: (--make-vocab-size-divisible-by).
_WORDS = 128


def _megatron(row: Measurement) -> NetSpec:
    sizes = _gpt_sizes(row)
    degrees = dict(_DEGREES.findall(row.parallelism))
    words = rounded_up(sizes.vocabulary, _WORDS * int(degrees.get("tp", 1)))
    return gpt(sizes._replace(vocabulary=int(words)))


#: Layers, hidden size and heads (mosaicml/llm-foundry, scripts/train/yamls/mpt).
_MPT = {
    "125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12), "1b": (24, 2048, 16),
    "3b": (32, 2560, 20), "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 56),
    "70b": (80, 8192, 64),
}  # fmt: skip


def _mpt(row: Measurement) -> NetSpec:
    """Return llm-foundry's MPT: fused attention, no dropout, learned positions, biases.

    Raises UnmappedError unless it has as many parameters as the row says.
    """
    sizes = _MPT.get(row.network.removeprefix("mpt-"))
    if sizes is None or not row.seq_len:
        raise UnmappedError(f"unknown net {row.network!r}")
    layers, hidden, heads = sizes
    net = gpt(
        GptSizes(layers, hidden, heads, 4 * hidden, 50368, int(row.seq_len), fused=True, kept=1)
    )
    said = re.search(r"params=(\d+)", row.notes)
    if said and int(said[1]) != build(net).num_params:
        raise UnmappedError(f"another net than {row.network!r}, of other parameters")
    return net


def _mlperf(row: Measurement) -> NetSpec:
    """Return GPT-3 175B as NVIDIA's NeMo has it for MLPerf: fused attention, no dropout."""
    seq = int(row.seq_len or 2048)
    return gpt(GptSizes(96, 12288, 96, 49152, 51200, seq, fused=True, kept=1))


def _named(row: Measurement) -> NetSpec:
    """Return the net of a name, with as many blocks and as long sequences as the row says."""
    sequence = int(row.seq_len) if row.seq_len else None
    net = net_of(
        meant(row.network, row.source_id, row.framework, True), row.source_id, None, sequence
    )
    if sequence is not None:
        net = with_length(net, sequence)
    return with_layers(net, int(row.sizes["layers"])) if "layers" in row.sizes else net


# Sources


#: Megatron-DeepSpeed and Megatron-LM of 2021 and 2022: dropout, attention in steps, of which the
#: softmax's kernel scales and masks as well (megatron/model/fused_softmax.py), a loss in steps (its
#: fusion, megatron/core/fusions/fused_cross_entropy.py, came later), no gradients are exchanged
#: before the backward pass is done, and all of the forward pass is computed again.
_MEGATRON: Mapping[str, Any] = {
    "framework": "megatron", "dtype": "fp16", "optimizer": "adamw", "clip_gradients": True,
    "scale_loss": True, "loss": "in_steps", "recompute": "full",
}  # fmt: skip
#: The framework of rows that vTrain composes, and settings of what it traces.
TRACED = "vTrain"
_TRACED: Mapping[str, Any] = {
    "recompute": "none", "loss": "cross_entropy", "clip_gradients": False, "scale_loss": False,
}  # fmt: skip
#: mosaicml/llm-foundry, scripts/train/benchmarking/submit_benchmarks.py: attn_impl triton, which is
#: FlashAttention of early 2023 in Triton; llmfoundry's fused cross entropy; Composer's gradient
#: clipping. Its mixed precision DEFAULT gathers halves and sums gradients in fp32.
_LLM_FOUNDRY: Mapping[str, Any] = {
    "framework": "pytorch", "optimizer": "adamw", "clip_gradients": True, "loss": "fused",
    "attention": "fa1_triton",
}  # fmt: skip
#: mlcommons/training_results_v3.1, NVIDIA/benchmarks/gpt3/implementations/pytorch: conf/custom.yaml
#: (12 chunks a stage, parameters in halves, a distributed optimizer) and config_fp8.sh (products in
#: fp8 with scales from steps before).
_NEMO: Mapping[str, Any] = {
    "framework": "tuned", "dtype": "mixed_fp8_delayed", "optimizer": "adamw", "loss": "fused",
    "clip_gradients": True, "zero": 1, "interleave": 12, "sequence_parallel": True,
}  # fmt: skip
#: MooreThreads/SimuMax, simu_tools/megatron_scripts/scripts: Megatron-core with TransformerEngine,
#: its distributed optimizer, positions divided, a fused cross entropy (cases are called cef), no
#: communication beside computation (docs/b200/b200_real_repro_guide.md, section 3.3).
_MEGATRON_CORE: Mapping[str, Any] = {
    "framework": "megatron", "dtype": "mixed_bf16", "optimizer": "adamw", "clip_gradients": True,
    "loss": "fused", "sequence_parallel": True, "context": "all_to_all", "overlap": False,
}  # fmt: skip
SOURCES: Mapping[str, Source] = {
    "vtrain": Source(_MEGATRON, _megatron),
    "megatron_seqsel": Source(_MEGATRON, _megatron),
    "megatron_a100": Source(_MEGATRON, _megatron),
    "mosaic_llmfoundry": Source(_LLM_FOUNDRY, _mpt),
    "simumax": Source(_MEGATRON_CORE, _named),
    "mlperf_training_v3.1: gpt3_175b": Source(_NEMO, _mlperf, {"tp": 4, "pp": 8}),
}


def _source(row: Measurement) -> Source | None:
    """Return what is known of the software of a row; of MLPerf that of NVIDIA's submissions."""
    named = SOURCES.get(row.source_id)
    if named is None and "NVIDIA" in row.framework:
        named = SOURCES.get(f"{row.source_id}: {row.network}")
    return named
