"""Arguments of Megatron-LM: a shell line or script, or its YAML; NeMo has the same keys."""

from __future__ import annotations

import re

from paleo.core.quantity import ceil_div
from paleo.step.plans.base import PLAN_FORMATS, PlanFormat
from paleo.step.plans.content import Content
from paleo.step.plans.entries import SEQ_LEN, WORLD, Entries
from paleo.step.plans.low_precision import say_fp8

#: What data-parallel devices divide, by the words of Megatron's FSDP, as stages of ZeRO.
_SHARDED = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
#: Optimizers of Megatron-LM and NeMo; their Adam is apex's or Transformer Engine's fused one, and
#: decouples weight decay.
OPTIMIZERS = {
    "adam": "fused_adam",
    "adamw": "fused_adam",
    "fused_adam": "fused_adam",
    "distributed_fused_adam": "fused_adam",
    "mcore_distributed_optim": "fused_adam",
    "sgd": "momentum",
    "muon": "muon",
    "dist_muon": "muon",
    "lion": "lion",
    "adafactor": "adafactor",
}
_CONTEXTS = {"p2p": "ring", "a2a": "all_to_all"}
_SWITCH = re.compile(r"^--?")


class Megatron(PlanFormat):
    """Arguments of Megatron-LM."""

    name = "megatron"
    summary = "arguments of Megatron-LM: a shell line or script, or YAML"

    def recognizes(self, content: Content) -> bool:
        if content.syntax == "shell":
            return True
        is_yaml = content.syntax == "yaml" and not any(
            path.startswith(("trainer.", "recipe.")) for path in content.values
        )
        return is_yaml and any(self.short(path) in self.keys.marks for path in content.values)

    def short(self, path: str) -> str:
        """Return the name of an argument: without dashes, or without the section of YAML."""
        key = _SWITCH.sub("", path).replace("-", "_").rpartition(".")[2]
        return self.keys.aliases.get(key, key)

    def read_others(self, entries: Entries) -> None:
        read_model_parallel(entries)
        find_world(entries, "nproc_per_node", "nnodes")
        read_state(entries)
        read_optimizer(entries, entries.text("optimizer"), "optimizer")
        for dtype in ("fp16", "bf16"):
            if entries.flag(dtype):
                entries.say("dtype", f"mixed_{dtype}", dtype)
        if entries.flag("fp16") and entries.flag("bf16"):
            entries.mistake(
                f"{entries.path('fp16')} and {entries.path('bf16')}: a net is trained in one type"
            )
        if entries.flag("fp16"):
            entries.say("scale_loss", True, "fp16")
        read_fp8(entries)
        clip = entries.number("clip_grad")
        if clip is not None:
            entries.say("clip_gradients", clip > 0, "clip_grad")


def read_state(entries: Entries) -> None:
    """Note where the optimizer's state is: on the host, or in which groups devices divide it."""
    if entries.flag("optimizer_cpu_offload"):
        entries.say("offload", ("optimizer",), "optimizer_cpu_offload")
        if (entries.number("optimizer_offload_fraction") or 1) < 1:
            path = entries.path("optimizer_offload_fraction")
            entries.note(f"not modelled: {path}: all of the state is on the host")
    key = "num_distributed_optimizer_instances"
    groups, world = entries.whole(key), entries.counts(WORLD, 0)
    share = entries.counts("tp") * entries.counts("pp")
    if not groups or groups == 1:
        return
    if not world:
        entries.note(f"{entries.path(key)} has no effect without devices: give --shard_degree")
    elif world % (share * groups):
        entries.mistake(
            f"{entries.path(key)}: {world // share} devices with the same layers do not divide "
            f"into {groups} groups"
        )
    else:
        entries.say("shard_degree", world // share // groups, key)


def find_world(entries: Entries, each: str, nodes: str) -> None:
    """Note the devices of all nodes, of which there is one where nothing is said."""
    size = entries.whole("world_size")
    count, num_nodes = entries.whole(each), entries.whole(nodes)
    if count and (num_nodes or not entries.by_key.get(nodes)):
        entries.say(WORLD, count * (num_nodes or 1), each)
    if size:
        entries.say(WORLD, size, "world_size")


def read_fp8(entries: Entries) -> None:
    """Note products in fp8, which a format switches on (--fp8-format); types were read before."""
    recipe = entries.text("fp8_recipe") or "delayed"
    if entries.text("fp8") not in ("", "false", "none"):
        say_fp8(entries, recipe, "fp8_recipe" if entries.entry("fp8_recipe") else "fp8")


def read_optimizer(entries: Entries, name: str, key: str) -> None:
    """Note the optimizer of a name; one that Paleo does not know is a note."""
    if not name:
        return
    if name in OPTIMIZERS:
        entries.say("optimizer", OPTIMIZERS[name], key)
    else:
        entries.note(f"not modelled: {entries.path(key)} {name}, taken for Adam")


def read_model_parallel(entries: Entries) -> None:
    """Note what Megatron-LM and NeMo say in the same keys, those of Megatron Core."""
    _read_chunks(entries)
    _read_stages(entries)
    _read_recomputation(entries)
    _read_exchanges(entries)
    _read_capacity(entries)
    if length := entries.whole("seq_length"):
        entries.say(SEQ_LEN, length, "seq_length")
    context = entries.text("cp_comm_type")
    if context in _CONTEXTS:
        entries.say("context", _CONTEXTS[context], "cp_comm_type")
    elif context and entries.counts("cp") > 1:
        entries.note(f"not modelled: {entries.path('cp_comm_type')} {context}, taken for p2p")
    if entries.flag("cross_entropy_loss_fusion"):
        entries.say("loss", "fused", "cross_entropy_loss_fusion")
    if entries.text("cuda_graph_impl") not in ("", "none"):
        entries.say("graphs", True, "cuda_graph_impl")
    if entries.flag("use_tp_pp_dp_mapping"):
        entries.say("order", ("tp", "cp", "ep", "pp", "dp"), "use_tp_pp_dp_mapping")


def _read_capacity(entries: Entries) -> None:
    """Note the places of experts, where they are filled up."""
    key = "moe_expert_capacity_factor"
    capacity, pads = entries.number(key), entries.flag("moe_pad_expert_input_to_capacity")
    if capacity and capacity > 0 and pads:
        entries.say("expert_capacity", capacity, key)
    elif capacity and capacity > 0:
        entries.note(f"not modelled: {entries.path(key)}: tokens that are dropped without places")


def _read_chunks(entries: Entries) -> None:
    """Note the chunks of a stage, also of the layers that each has."""
    for key in ("num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size"):
        if chunks := entries.whole(key):
            entries.say("interleave", chunks, key)
    key = "num_layers_per_virtual_pipeline_stage"
    layers, each, stages = entries.whole("num_layers"), entries.whole(key), entries.counts("pp")
    if each and not layers:
        entries.note(f"{entries.path(key)} has no effect without num_layers: give --interleave")
    elif each and layers:
        if layers % (each * stages):
            entries.mistake(
                f"{entries.path(key)}: {layers} layers ({entries.path('num_layers')}) do not "
                f"divide by {each} x pp {stages}"
            )
        else:
            entries.say("interleave", layers // (each * stages), key)


def _read_stages(entries: Entries) -> None:
    """Note how many layers stages have, where the first or the last has others.

    With the embedding or the loss accounted for, each counts as a layer of its stage.
    """
    keys = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")
    first, last = (entries.whole(key) for key in keys)
    extra = [
        bool(entries.flag(f"account_for_{what}_in_pipeline_split"))
        for what in ("embedding", "loss")
    ]
    stages, layers = entries.counts("pp"), entries.whole("num_layers")
    key = keys[0] if first else keys[1] if last else "account_for_embedding_in_pipeline_split"
    if not (first or last or any(extra)) or stages == 1:
        return
    if not layers or entries.counts("interleave") > 1:
        why = "with chunks of stages" if layers else "without num_layers: give --stages"
        entries.note(f"{entries.path(key)} has no effect {why}")
        return
    if any(extra):
        each = (layers + sum(extra)) // stages
        is_whole = each * stages == layers + sum(extra)
        counts = [each] * stages
        counts[0] -= extra[0]
        counts[-1] -= extra[1]
    else:
        left, others = layers - (first or 0) - (last or 0), stages - bool(first) - bool(last)
        each = ceil_div(max(left, 0), others) if others else 0
        is_whole = left == each * others and left >= 0
        counts = [first or each, *[each] * (stages - 2), last or each]
    if not is_whole or min(counts) < 1:
        entries.mistake(
            f"{entries.path(key)}: {layers} layers ({entries.path('num_layers')}) do not divide "
            f"among {stages} stages so"
        )
    else:
        entries.say("stages", tuple(counts), key)


def _read_recomputation(entries: Entries) -> None:
    """Note what is computed again: Megatron's selective is that of the core of attention."""
    mode = entries.text("recompute_granularity", ("full", "selective"))
    method, layers = entries.text("recompute_method"), entries.whole("recompute_num_layers", 0)
    if mode:
        is_none = mode == "full" and method == "block" and layers == 0
        entries.say("recompute", "none" if is_none else mode, "recompute_granularity")
        if mode == "full" and layers and (method == "block" or layers > 1):
            path = entries.path("recompute_num_layers")
            said = f"{layers} of a stage" if method == "block" else f"{layers} at a time"
            entries.note(f"not modelled: {path}: {said}; every layer is computed again by itself")
    elif entries.flag("recompute_activations"):
        entries.say("recompute", "selective", "recompute_activations")
    elif entries.flag("checkpoint_activations"):  # before there was another kind
        entries.say("recompute", "full", "checkpoint_activations")


def _read_exchanges(entries: Entries) -> None:
    """Note what data-parallel devices divide, and when they exchange gradients."""
    sharded = entries.text("data_parallel_sharding_strategy", tuple(_SHARDED))
    is_fsdp = entries.flag("use_megatron_fsdp")
    if entries.flag("use_torch_fsdp2"):
        entries.say("zero", 3, "use_torch_fsdp2")
    elif sharded and is_fsdp:
        entries.say("zero", _SHARDED[sharded], "data_parallel_sharding_strategy")
    elif entries.flag("use_distributed_optimizer"):
        entries.say("zero", 1, "use_distributed_optimizer")
    key = "overlap_grad_reduce"
    overlaps = entries.flag(key)
    if overlaps or entries.counts("zero", 0) == 3:
        entries.say("overlap", True, key)
        bucket = entries.whole("ddp_bucket_size")
        if bucket:  # of elements; gradients are summed in fp32
            entries.say("bucket", 4 * bucket, "ddp_bucket_size")
    elif all(entries.counts(name) == 1 for name in ("tp", "cp", "ep")):
        entries.say("overlap", False, key)
    else:
        entries.note(
            f"{entries.path(key)} is off: what no other message hides is not modelled, the "
            "exchange of gradients is taken to overlap"
        )


PLAN_FORMATS.add(Megatron.name, Megatron())
