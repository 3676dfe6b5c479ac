"""Settings of how devices share a net: tensors, stages, positions, experts, and shards of data.

Declared as those of paleo.step.settings, which has the kinds that these are parts of.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Any

from paleo.cluster import Device, device_names, find_device
from paleo.core.checks import MAX_SIZE, check_choice, is_number, is_whole, number, shown
from paleo.core.errors import SettingError
from paleo.core.frozen import TypedDict
from paleo.step.declarations import Setting, choice, declared, found_default, name_in
from paleo.step.distributed_settings import checked_count
from paleo.step.mesh import KINDS, ORDER
from paleo.step.pipelines import PIPELINES


def _degree(name: str, whose: str, label: str) -> Setting:
    return Setting(
        default=1,
        check=checked_count(name),
        help=f"{whose}.",
        label=label,
        metavar="N",
        is_number=True,
    )


def _optional_count(name: str, text: str, shown_default: str, label: str) -> Setting:
    return Setting(
        default=None,
        label=label,
        check=lambda value: None if value is None else checked_count(name)(value),
        help=text,
        metavar="N",
        is_number=True,
        shown_default=shown_default,
    )


TP = _degree("tp", "Devices that share each layer (tensor parallelism)", "Tensor parallel")
CP = _degree(
    "cp",
    "Devices that share the positions of a sequence (context parallelism)",
    "Context parallel",
)
EP = _degree(
    "ep",
    "Devices that share the experts of mixtures, of those that have different data",
    "Expert parallel",
)
PP = _degree("pp", "Stages that the net is cut into (pipeline parallelism)", "Pipeline stages")
#: How devices that share positions attend to all of them.
CONTEXTS = {
    "ring": "keys and values pass all devices in a ring",
    "all_to_all": "devices share heads in attention, as DeepSpeed-Ulysses has it",
}
CONTEXT = Setting(
    default="ring",
    check=choice("context", tuple(CONTEXTS)),
    help="With --cp, how attention sees all positions: "
    + "; ".join(f"{name} ({said})" for name, said in CONTEXTS.items())
    + ".",
    choices=lambda: CONTEXTS,
    label="Attention over positions",
    metavar="NAME",
)
SEQUENCE_PARALLEL = Setting(
    default=False,
    check=bool,
    help="With --tp, divide what lies between products by positions, too.",
    label="Sequence parallel",
)
MICRO_BATCH = _optional_count(
    "micro_batch",
    "Samples that a device computes at a time.",
    "with --pp one text, or a quarter of what each stage could have; else all that it has",
    "Micro-batch",
)
GLOBAL_BATCH = _optional_count(
    "global_batch",
    "Samples of all devices in a step, in the place of --batch_size.",
    "--batch_size for each share of the data",
    "Global batch",
)
INTERLEAVE = _degree(
    "interleave", "Chunks of the net that each stage has (interleaved 1F1B)", "Chunks of a stage"
)
#: The schedule that nobody has to look up.
_USUAL = "1f1b"
SCHEDULE = Setting(
    default=_USUAL,
    check=lambda value: value if value == _USUAL else name_in(PIPELINES)(value),
    help="In which order stages take micro-batches:",
    describes=True,
    label="Schedule",
    choices=lambda: PIPELINES,
    metavar="NAME",
)


def _checked_zero(value: Any) -> int:
    if is_whole(value) and 0 <= value <= 3:
        return int(value)
    raise SettingError(f"zero: expected 0, 1, 2 or 3, got {shown(value)}")


ZERO = Setting(
    default=0,
    check=_checked_zero,
    help="What the devices with the same layers divide instead of each having it: 1 the "
    "optimizer's state, 2 gradients too, 3 parameters too (ZeRO, FSDP).",
    label="ZeRO",
    metavar="0-3",
    is_number=True,
)

SHARD_DEGREE = _optional_count(
    "shard_degree",
    "With --zero, how many devices next to each other divide it; other groups of as many have "
    "copies (hybrid sharding: HSDP, MiCS).",
    "all that have the same layers",
    "Shard degree",
)

#: What devices may keep in the memory of their host.
OFFLOADED = ("optimizer", "gradients", "activations")
#: What is usual of that, as values of the option.
_OFFLOADS = ("none", "optimizer", "optimizer,gradients", "activations", ",".join(OFFLOADED))


def _checked_offload(value: Any) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value or ()
    given = [str(name).strip() for name in given] if isinstance(given, list | tuple) else [value]
    names = [check_choice("offload", name, OFFLOADED) for name in given if name not in ("", "none")]
    return tuple(name for name in OFFLOADED if name in names)


OFFLOAD = Setting(
    default="none",
    check=_checked_offload,
    help="What is in the host's memory instead: the optimizer's state, by which the host updates "
    "parameters then; gradients, which the host adds up (ZeRO-Offload has both); activations.",
    label="Kept on the host",
    choices=lambda: _OFFLOADS,
    metavar="NAME,...",
)


def _checked_host(value: Any) -> Device | None:
    host = None if value is None else find_device(value)
    if host is not None and host.kind != "cpu":
        raise SettingError(f"host: expected a processor (kind cpu), got {host.name}")
    return host


def _processors() -> list[str]:
    return [name for name in device_names() if find_device(name).kind == "cpu"]


HOST = Setting(
    default=None,
    check=_checked_host,
    label="Host",
    help="With --offload, the processor whose memory that is: a name from `paleo devices`, or your "
    "own TOML file.",
    choices=_processors,
    metavar="NAME",
    may_be_file=True,
    shown_default="the cluster's",
)


def _checked_order(value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    names = [str(name).strip() for name in names] if isinstance(names, list | tuple) else [value]
    if sorted(map(str, names)) != sorted(KINDS):
        raise SettingError(
            f"order: expected each of {', '.join(KINDS)} once, such as {','.join(ORDER)}; got "
            f"{shown(value)}"
        )
    return tuple(names)


MESH_ORDER = Setting(
    default=ORDER,
    check=_checked_order,
    help="Which devices stand next to each other, from the inside out.",
    label="Order",
    metavar="NAME,...",
)


def _checked_stages(value: Any) -> str | tuple[int, ...]:
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        value = ",".join(value)
    if isinstance(value, str) and value not in ("even", "balanced"):
        value = [int(part) if part.strip().isdecimal() else part for part in value.split(",")]
    if isinstance(value, str):
        return str(choice("stages", ("even", "balanced"))(value))
    counts = value if isinstance(value, list | tuple) else [value]
    if all(is_whole(count) and 1 <= count <= MAX_SIZE for count in counts):
        return tuple(map(int, counts))
    raise SettingError(
        f"stages: expected even, balanced, or blocks of each stage such as 7,8,8,7; got "
        f"{shown(value)}"
    )


STAGES = Setting(
    default="even",
    check=_checked_stages,
    help="How blocks are dealt out to stages: even (as many each), balanced (as long each, with "
    "what stands before and behind blocks), or how many each has.",
    label="Blocks of stages",
    metavar="N,N,...",
)


#: What PyTorch's allocator holds on GPUs and tensors do not: 1 - 0.94, by which SimuMax divides
#: peaks of tensors (MooreThreads/SimuMax, simumax/core/config.py, StrategyConfig.mem_factor).
SLACK = 0.06


def _checked_slack(value: Any) -> float | None:
    if value is None or (is_number(value) and 0 <= value < 1):  # false for NaN
        return None if value is None else float(value)
    raise SettingError(f"allocator_slack: expected a number from 0 to below 1, got {shown(value)}")


ALLOCATOR_SLACK = Setting(
    default=None,
    label="Allocator's slack",
    check=_checked_slack,
    help="Share of the memory that the framework's allocator holds which no tensor can have, as it "
    "is in pieces.",
    metavar="SHARE",
    is_number=True,
    shown_default=f"{SLACK:g} on GPUs, else 0",
)


def _checked_load(value: Any) -> str | float | None:
    value = number(value) if isinstance(value, str) and value != "even" else value
    if value in (None, "even") or (is_number(value) and 0 < value <= _MOST):
        return value  # type: ignore[no-any-return]
    raise SettingError(
        f"expert_load: expected even, or the exponent of a power law above 0, got {shown(value)}"
    )


#: The largest exponent, and places of each that an even load would fill.
_MOST = 1000
EXPERT_LOAD = Setting(
    default=None,
    check=_checked_load,
    help="How tokens are spread over experts: even, or the exponent by which an expert's share "
    "falls with its rank. With --ep devices wait for the one that has most.",
    label="Load of experts",
    metavar="even|EXPONENT",
    shown_default="as the net's file says",
)


def _checked_capacity(value: Any) -> float | None:
    if value is None or (is_number(value) and 0 < value <= _MOST):
        return None if value is None else float(value)
    raise SettingError(f"expert_capacity: expected a number above 0, got {shown(value)}")


EXPERT_CAPACITY = Setting(
    default=None,
    check=_checked_capacity,
    help="Give each expert so many times the places that it would fill under an even load, such as "
    "1.25: tokens beyond are dropped, and all experts compute as much.",
    label="Capacity of experts",
    metavar="FACTOR",
    is_number=True,
    shown_default="as the net's file says, which drop none",
)


class MeshSettings(TypedDict, total=False):
    """How devices share a net."""

    tp: Annotated[int, TP]
    pp: Annotated[int, PP]
    cp: Annotated[int, CP]
    context: Annotated[str, CONTEXT]
    ep: Annotated[int, EP]
    zero: Annotated[int, ZERO]
    shard_degree: Annotated[int | None, SHARD_DEGREE]
    offload: Annotated[str | Sequence[str], OFFLOAD]
    host: Annotated[str | Device | None, HOST]
    micro_batch: Annotated[int | None, MICRO_BATCH]
    global_batch: Annotated[int | None, GLOBAL_BATCH]
    schedule: Annotated[str, SCHEDULE]
    interleave: Annotated[int, INTERLEAVE]
    stages: Annotated[str | Sequence[int], STAGES]
    sequence_parallel: Annotated[bool, SEQUENCE_PARALLEL]
    order: Annotated[str | Sequence[str], MESH_ORDER]
    expert_load: Annotated[str | float | None, EXPERT_LOAD]
    expert_capacity: Annotated[float | None, EXPERT_CAPACITY]
    allocator_slack: Annotated[float | None, ALLOCATOR_SLACK]


@functools.cache
def of_mesh() -> dict[str, Any]:
    """Return the settings that a mesh alone has, and what they are where nothing is said."""
    return {name: found_default(setting) for name, setting in declared(MeshSettings).items()}
