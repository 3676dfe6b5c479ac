"""A configuration of DeepSpeed, in JSON.

Of train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x data-parallel
devices each follows from the others. "auto", which a trainer fills in, says nothing.
"""

from __future__ import annotations

from paleo.step.plans.base import PLAN_FORMATS, PlanFormat
from paleo.step.plans.content import Content
from paleo.step.plans.entries import TURNS, Entries

#: Its Adam is apex's, and decouples weight decay unless adam_w_mode is off; CPUs' have no other
#: formula. With torch_adam it is PyTorch's.
_OPTIMIZERS = {
    "adam": "fused_adam",
    "adamw": "fused_adam",
    "fusedadam": "fused_adam",
    "deepspeedcpuadam": "fused_adam",
    "lamb": "lamb",
    "lion": "lion",
    "muon": "muon",
    "sgd": "sgd",
    "adagrad": "adagrad",
    "rmsprop": "rmsprop",
    "adafactor": "adafactor",
}
#: Elements of a gradient have as many bytes where parameters are learnt in fp32.
_GRADIENT_BYTES = 4
#: The elements that are sent together where a file does not say (config-json.md).
_BUCKET = 500_000_000


class DeepSpeed(PlanFormat):
    """A configuration of DeepSpeed."""

    name = "deepspeed"
    summary = "a configuration of DeepSpeed, in JSON"

    def recognizes(self, content: Content) -> bool:
        return content.syntax == "json" and any(
            path.partition(".")[0] in self.keys.marks for path in content.values
        )

    def short(self, path: str) -> str:
        """Return the path of a key in newer files."""
        return self.keys.aliases.get(path, path)

    def read_others(self, entries: Entries) -> None:
        turns = entries.whole("gradient_accumulation_steps")
        if turns:
            entries.say(TURNS, turns, "gradient_accumulation_steps")
        stage = entries.whole("zero_optimization.stage", 0)
        if stage is not None and stage > 3:
            entries.mistake(f"zero_optimization.stage: expected 0 to 3, got {stage}")
        elif stage is not None:
            entries.say("zero", stage, "zero_optimization.stage")
        key = "zero_optimization.mics_shard_size"
        if (entries.number(key) or -1) > 0:  # -1: none
            entries.say("shard_degree", entries.whole(key), key)
        self._read_offloading(entries)
        self._read_types(entries)
        self._read_optimizer(entries)
        self._read_exchanges(entries)
        self._read_recomputation(entries)
        if entries.counts("cp") > 1:  # DeepSpeed-Ulysses
            entries.say("context", "all_to_all", "sequence_parallel_size")

    def _read_offloading(self, entries: Entries) -> None:
        """Note what is on the host: with the optimizer's state, gradients are, too."""
        key, old = (f"zero_optimization.{name}" for name in ("offload_optimizer", "cpu_offload"))
        where = entries.text(f"{key}.device", ("none", "cpu", "nvme"))
        if where == "nvme":
            entries.note(f"not modelled: {entries.path(f'{key}.device')} nvme, taken for cpu")
        if (where in ("cpu", "nvme") or entries.flag(old)) and entries.counts("zero", 0):
            entries.say("offload", ("optimizer", "gradients"), f"{key}.device" if where else old)

    def _read_recomputation(self, entries: Entries) -> None:
        """Note what is computed again: a model's code decides, but with DeepSpeed's pipeline."""
        key = "pipeline.activation_checkpoint_interval"
        interval = entries.whole(key, 0)
        if interval is not None:
            entries.say("recompute", "full" if interval else "none", key)
            if interval > 1:
                entries.note(
                    f"not modelled: {key}: {interval} layers together; every layer is computed "
                    "again by itself"
                )
        elif not entries.is_given("recompute") and any(
            key.startswith("activation_checkpointing.") for key in entries.by_key
        ):
            entries.note("activation_checkpointing says how, not whether: give --recompute")

    def _read_types(self, entries: Entries) -> None:
        keys = {"bf16": "bf16.enabled", "fp16": "fp16.enabled"}
        on = [name for name, key in keys.items() if entries.flag(key)]
        if len(on) > 1:
            both = " and ".join(entries.path(keys[name]) for name in on)
            entries.mistake(f"{both}: a net is trained in one type")
        for name in on:
            entries.say("dtype", f"mixed_{name}", keys[name])
        if "fp16" in on:
            entries.say("scale_loss", True, keys["fp16"])
        if entries.flag("torch_autocast.enabled"):
            dtype = entries.text("torch_autocast.dtype", ("bfloat16", "float16", "bf16", "fp16"))
            is_half = dtype in ("float16", "fp16")
            entries.say(
                "dtype", "mixed_fp16" if is_half else "mixed_bf16", "torch_autocast.enabled"
            )
        clip = entries.number("gradient_clipping")
        if clip is not None:
            entries.say("clip_gradients", clip > 0, "gradient_clipping")

    def _read_optimizer(self, entries: Entries) -> None:
        name = entries.text("optimizer.type")
        is_torch = entries.flag("optimizer.params.torch_adam")
        decouples = entries.flag("optimizer.params.adam_w_mode")
        if name in ("adam", "adamw") and is_torch:
            is_plain = decouples is False or (name == "adam" and decouples is None)
            entries.say("optimizer", "adam" if is_plain else "adamw", "optimizer.type")
        elif name == "sgd" and entries.number("optimizer.params.momentum"):
            entries.say("optimizer", "momentum", "optimizer.type")
        elif name in _OPTIMIZERS:
            entries.say("optimizer", _OPTIMIZERS[name], "optimizer.type")
        elif name:
            entries.note(f"not modelled: {entries.path('optimizer.type')} {name}: give --optimizer")

    def _read_exchanges(self, entries: Entries) -> None:
        """Note when gradients are exchanged, and how many together; ZeRO 3 does so by itself.

        With ZeRO 1 and 2 they are exchanged at the end unless the file says otherwise.
        """
        zero, key = entries.counts("zero", 0), "zero_optimization.overlap_comm"
        overlaps = bool(entries.flag(key))
        bucket = entries.whole("zero_optimization.reduce_bucket_size")
        if zero in (1, 2):
            entries.say("overlap", overlaps, key)
            if overlaps:
                size = _GRADIENT_BYTES * (bucket or _BUCKET)
                entries.say("bucket", size, "zero_optimization.reduce_bucket_size")


PLAN_FORMATS.add(DeepSpeed.name, DeepSpeed())
