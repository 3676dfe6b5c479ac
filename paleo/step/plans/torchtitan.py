"""A job of torchtitan, in TOML; older files have other names of sections and keys."""

from __future__ import annotations

from paleo.step.plans.base import PLAN_FORMATS, PlanFormat
from paleo.step.plans.content import Content
from paleo.step.plans.entries import REPLICAS, SEQ_LEN, TURNS, Entries
from paleo.step.plans.low_precision import say_fp8

_OPTIMIZERS = {"adamw": "adamw", "adam": "adam", "muon": "muon", "sgd": "sgd"}
_KERNELS = {"fused": "fused", "foreach": "foreach", "for-loop": "forloop"}
#: Schedules of torch.distributed.pipelining: Paleo's, and the chunks that torchtitan gives each
#: stage (torchtitan/distributed/pipeline_parallel.py: 1, or 2 of those with several).
_SCHEDULES = {
    "1f1b": ("1f1b", 1),
    "gpipe": ("gpipe", 1),
    "interleaved1f1b": ("1f1b", 2),
    "dualpipev": ("dualpipev", 1),
}
#: Those that Paleo has not, and what comes near.
_NEAR = {
    "loopedbfs": ("gpipe", 1),
    "interleavedzerobubble": ("zero_bubble", 1),
    "zbvzerobubble": ("zero_bubble", 1),
}
_FLOATS = ("bfloat16", "float16", "float32")


class TorchTitan(PlanFormat):
    """A job of torchtitan."""

    name = "torchtitan"
    summary = "a job of torchtitan, in TOML"

    def recognizes(self, content: Content) -> bool:
        return content.syntax == "toml" and any(
            self.short(path) in self.keys.marks for path in content.values
        )

    def short(self, path: str) -> str:
        """Return the path of a key in newer files."""
        return self.keys.aliases.get(path, path)

    def read_others(self, entries: Entries) -> None:
        if length := entries.whole("training.seq_len"):
            entries.say(SEQ_LEN, length, "training.seq_len")
        self._read_world(entries)
        self._read_schedule(entries)
        self._read_batches(entries)
        if entries.counts("tp") > 1:  # its plans divide norms by positions
            entries.say("sequence_parallel", True, "parallelism.tensor_parallel_degree")
        self._read_types(entries)
        clip = entries.number("training.max_norm")
        if clip is not None:
            entries.say("clip_gradients", clip > 0, "training.max_norm")
        mode = entries.text("activation_checkpoint.mode")
        self._read_recomputation(entries, mode)
        self._read_optimizer(entries)

    def _read_world(self, entries: Entries) -> None:
        """Note what replicas are, and what of them divide all: FSDP.

        With stages, parameters that were gathered stay so unless the file says otherwise
        (`fsdp_reshard_after_forward`), as with ZeRO 2.
        """
        replicate_key = "parallelism.data_parallel_replicate_degree"
        key = "parallelism.data_parallel_shard_degree"
        replicas = entries.whole(replicate_key) or 1
        shards = entries.whole(key, -1)
        if shards == 0:
            entries.mistake(f"{entries.path(key)}: expected a whole number from 1, or -1")
        shards = -1 if shards is None else shards
        reshard = entries.text(
            "parallelism.fsdp_reshard_after_forward", ("default", "always", "never")
        )
        stays = reshard == "never" or (reshard != "always" and entries.counts("pp") > 1)
        if shards != 1:
            entries.say("zero", 2 if stays else 3, key)
        elif replicas > 1:
            entries.say("zero", 0, replicate_key)
        if shards > 0:
            entries.say(REPLICAS, replicas * shards, key)
        if replicas > 1 and shards > 1:
            # Positions are divided among devices that have the same parameters, and divide them.
            entries.say("shard_degree", shards * entries.counts("cp"), key)
        elif replicas > 1 and shards < 0:
            entries.note(
                f"not modelled: {entries.path(replicate_key)} without {key}: shards within groups, "
                "taken to be shards among all: give --shard_degree"
            )

    def _read_schedule(self, entries: Entries) -> None:
        key = "parallelism.pipeline_parallel_schedule"
        name = entries.text(key)
        if not name or entries.counts("pp") == 1:
            return
        if name in _NEAR:
            schedule, chunks = _NEAR[name]
            entries.note(f"not modelled: {entries.path(key)} {name}, taken for {schedule}")
        elif name in _SCHEDULES:
            schedule, chunks = _SCHEDULES[name]
        else:
            entries.note(f"not modelled: {entries.path(key)} {name}: give --schedule")
            return
        entries.say("schedule", schedule, key)
        if chunks > 1:
            entries.say("interleave", chunks, key)

    def _read_batches(self, entries: Entries) -> None:
        """Note batches: with stages the local batch is divided into micro-batches."""
        local_key, key = "training.local_batch_size", "training.global_batch_size"
        micro_key = "parallelism.pipeline_parallel_microbatch_size"
        local, whole = entries.whole(local_key), entries.whole(key, -1)
        micro = entries.whole(micro_key)
        if whole and whole > 0:
            entries.say("global_batch", whole, key)
        if not local:
            return
        if entries.counts("pp") == 1:
            entries.say("micro_batch", local, local_key)
            return
        micro = micro or 1
        if local % micro:
            entries.mistake(
                f"{entries.path(local_key)}: {local} does not divide by "
                f"{entries.path(micro_key)} {micro}"
            )
        entries.say("micro_batch", micro, micro_key)
        if not (whole and whole > 0):
            entries.say(TURNS, local // micro, local_key)
        elif REPLICAS in entries.said:
            own = whole // entries.said[REPLICAS].value
            if own > local:
                entries.note(
                    f"not modelled: {entries.path(local_key)}: the pipeline is filled anew for "
                    f"each {local} of {own} samples; here for all of them once"
                )

    def _read_types(self, entries: Entries) -> None:
        learns = entries.text("training.dtype", _FLOATS)
        computes = entries.text("training.mixed_precision_param", _FLOATS) or "bfloat16"
        short = {"bfloat16": "bf16", "float16": "fp16"}
        if learns in short:
            entries.say("dtype", short[learns], "training.dtype")
        elif computes in short:
            entries.say("dtype", f"mixed_{short[computes]}", "training.mixed_precision_param")
        else:
            entries.say("dtype", "fp32", "training.mixed_precision_param")
        self._read_converters(entries)

    def _read_converters(self, entries: Entries) -> None:
        """Note products in fp8: torchao's, of which rows have scales of their own in some."""
        key, recipe_key = "model.converters", "float8.recipe_name"
        found = entries.entry(key)
        given = found.value if found else ()
        names = given if isinstance(given, list) else str(given).split(",") if given else []
        if entries.flag("float8.enable_float8_linear"):  # before there were converters
            names = [*names, "float8"]
        recipe = entries.text(recipe_key) or "tensorwise"
        for name in (str(name).strip().removeprefix("quantize.linear.") for name in names):
            if name == "float8" and recipe.startswith("rowwise"):
                entries.note(
                    f"not modelled: {entries.path(recipe_key)} {recipe}: a scale for each row, "
                    "taken for one for each tensor"
                )
                say_fp8(entries, "tensorwise", recipe_key)
            elif name == "float8":
                say_fp8(entries, recipe, recipe_key if entries.entry(recipe_key) else key)
            elif name == "mx":
                say_fp8(entries, "mxfp8", key)
            else:
                entries.note(f"not modelled: {entries.path(key)} {name}: layers converted")

    def _read_recomputation(self, entries: Entries, mode: str) -> None:
        key, option_key = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
        option = entries.text(option_key)
        if mode in ("none", "full"):
            entries.say("recompute", mode, key)
        elif mode == "selective":
            entries.say("recompute", "selective", key)
            said = f"{option_key} {option}" if option else f"{key} selective"
            entries.note(
                f"not modelled: {said}: torchtitan's keeps products, or every other block; here "
                "the core of attention is computed again"
            )
        elif mode:
            entries.note(f"not modelled: {entries.path(key)} {mode}: give --recompute")

    def _read_optimizer(self, entries: Entries) -> None:
        name = entries.text("optimizer.name")
        if name in _OPTIMIZERS:
            entries.say("optimizer", _OPTIMIZERS[name], "optimizer.name")
        elif name:
            entries.note(f"not modelled: {entries.path('optimizer.name')} {name}: give --optimizer")
        kernels = entries.text("optimizer.implementation", tuple(_KERNELS))
        is_fused = entries.flag("optimizer.fused")
        if kernels and name in ("", "adamw", "adam", "sgd"):
            entries.say("optimizer_kernels", _KERNELS[kernels], "optimizer.implementation")
        elif is_fused:
            entries.say("optimizer_kernels", "fused", "optimizer.fused")


PLAN_FORMATS.add(TorchTitan.name, TorchTitan())
