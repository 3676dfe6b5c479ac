"""A recipe of NeMo, in YAML: of NeMo 2 (trainer, strategy, data, optim) or 1 (trainer, model).

Keys of parallelism are those of Megatron Core, in whichever section they stand.
"""

from __future__ import annotations

from paleo.step.plans.base import PLAN_FORMATS, PlanFormat
from paleo.step.plans.content import Content
from paleo.step.plans.entries import Entries
from paleo.step.plans.megatron import (
    find_world,
    read_fp8,
    read_model_parallel,
    read_optimizer,
    read_state,
)

#: Precisions of Lightning, as types of Paleo.
_PRECISIONS = {
    "bf16": "mixed_bf16",
    "bf16-mixed": "mixed_bf16",
    "16": "mixed_fp16",
    "16-mixed": "mixed_fp16",
    "32": "fp32",
    "32-true": "fp32",
    "bf16-true": "bf16",
    "16-true": "fp16",
}
#: Sections whose keys are of something else, though they may have the same names.
_ASIDE = ("exp_manager", "log", "resume", "run", "tokenizer", "peft", "inference", "restore_config")


class NeMo(PlanFormat):
    """A recipe of NeMo."""

    name = "nemo"
    summary = "a recipe of NeMo, in YAML"

    def recognizes(self, content: Content) -> bool:
        return content.syntax == "yaml" and any(
            path.removeprefix("recipe.").startswith("trainer.") for path in content.values
        )

    def short(self, path: str) -> str:
        """Return the name that a key has in any section, or its path where sections matter."""
        path = path.removeprefix("recipe.").removeprefix("training.")
        sections = path.split(".")
        if sections[0] in _ASIDE or (len(sections) > 2 and sections[1] in _ASIDE):
            return path
        if sections[-1] == "name" and sections[-2:-1] == ["optim"]:
            return "optimizer"
        return self.keys.aliases.get(sections[-1], sections[-1])

    def read_others(self, entries: Entries) -> None:
        read_model_parallel(entries)
        find_world(entries, "devices", "nnodes")
        name = entries.text("optimizer")
        read_optimizer(entries, name, "optimizer")
        if name in ("distributed_fused_adam", "mcore_distributed_optim"):
            entries.say("zero", 1, "optimizer")
        read_state(entries)
        precision = entries.text("precision")
        if precision in _PRECISIONS:
            entries.say("dtype", _PRECISIONS[precision], "precision")
            if precision.startswith("16"):
                entries.say("scale_loss", True, "precision")
        elif precision:
            entries.note(f"not modelled: {entries.path('precision')} {precision}: give --dtype")
        for dtype in ("bf16", "fp16"):
            if entries.flag(dtype):
                entries.say("dtype", f"mixed_{dtype}", dtype)
        read_fp8(entries)
        for key in ("gradient_clip_val", "clip_grad"):
            clip = entries.number(key)
            if clip is not None:
                entries.say("clip_gradients", clip > 0, key)
        turns = entries.whole("accumulate_grad_batches")
        if turns and turns > 1:
            entries.note(
                f"{entries.path('accumulate_grad_batches')} has no effect: it follows from the "
                "batches"
            )


PLAN_FORMATS.add(NeMo.name, NeMo())
