"""Settings of a search for plans: what may vary, what is best, and what a plan has to keep to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from paleo.core.checks import MAX_COUNT, MAX_SIZE, is_number, is_whole, listed, python_int, shown
from paleo.core.errors import Mistakes, SettingError
from paleo.core.frozen import NamedTuple
from paleo.core.units import parse
from paleo.costs.tiled.quantizations import QUANTIZATIONS
from paleo.net.importers import ImportOptions
from paleo.step.declarations import Setting, choice, declared, found_setting, listing
from paleo.step.distributed_settings import SCHEMES, SynchronousSettings
from paleo.step.mesh_settings import MeshSettings
from paleo.step.recompute import Recompute
from paleo.step.settings import (
    BATCH_SIZE,
    RECOMPUTE,
    WORKERS,
    ConvolutionSettings,
    GradientSettings,
    GridSettings,
    KernelSettings,
    LossSettings,
    OptimizerSettings,
    RateSettings,
)
from paleo.studies.serving.settings import InferSettings
from paleo.studies.training import PowerSettings, TokenSettings, TrainingSettings, checked_price

#: How a step is divided: all kinds of parallelism, or its data alone.
MESH, DATA = PARALLELISMS = ("mesh", "data")
#: What is looked for.
OBJECTIVES = {
    "time": "the least time for the same samples",
    "cost": "the least money for the same samples",
    "energy": "the least energy for the same samples",
    "throughput": "the most samples a second of each device",
    "latency": "the least time of a batch in inference",
}
#: Settings of which every plan has its own value: given as one or several, else enumerated.
AXES = (
    *("workers", "tp", "pp", "cp", "ep", "micro_batch", "global_batch", "batch_size"),
    *("zero", "interleave", "schedule", "sequence_parallel", "recompute", "accumulate"),
)
#: Those of devices that share a net by more than its data; the last are the same of all plans.
OF_MESH = (
    *("tp", "pp", "cp", "ep", "micro_batch", "zero", "interleave", "schedule"),
    *("shard_degree", "allocator_slack"),
)
#: Those of deployments of which each has its own value; and all that are of deployments alone.
OF_SERVING = (
    *("kv_dtype", "attention_dp", "prefill", "concurrency", "prompt", "output", "hit_rate"),
    *("token_budget", "max_requests"),
)
DEPLOYED = ("ttft", "tpot", "server", *OF_SERVING)
#: The other limits that are numbers, what else plans may differ in, and what says what they take.
LIMITS = ("max_memory", "max_batch", "max_devices")
OF_ALL = ("sequence_parallel", "recompute", "accumulate", "context", "order")
PRICED = (
    *("dtype", *RateSettings.__annotations__, "ppp_comm", *KernelSettings.__annotations__),
    *(*ConvolutionSettings.__annotations__, *OptimizerSettings.__annotations__),
    *(*GradientSettings.__annotations__, "loss", "overlap", "bucket", "jitter", "nccl", "schemes"),
)
#: More money means nothing, nor do more seconds.
_MOST = 1e15

_GRID, _MESH, _LONG = declared(GridSettings), declared(MeshSettings), declared(TrainingSettings)
_SYNCHRONOUS, _SERVED = declared(SynchronousSettings), declared(InferSettings)


class Amount(NamedTuple):
    """So much money, in the currency of the prices where none is named."""

    number: float
    currency: str

    def __str__(self) -> str:
        return f"{self.number:,g} {self.currency}".rstrip()


def _axis(setting: Setting, tried: str, **changes: Any) -> Setting:
    """Return a setting of which plans have each their own value, by default those that are tried.

    None stands for that.
    """
    several = setting if setting.metavar.endswith(",...") else listing(setting.name, setting)
    return replace(
        several,
        default=None,
        check=lambda value: None if value is None else several.check(value),
        shown_default=tried,
        **changes,
    )


def _unless_given(setting: Setting) -> Setting:
    """Return a setting whose default is taken where it is asked for: None tells that it is not."""
    return replace(
        setting,
        default=None,
        check=lambda value: None if value is None else setting.check(value),
        shown_default=setting.shown_default or str(setting.default),
    )


def _checked_dtypes(values: Any) -> tuple[str, ...]:
    """Return types of elements; those that only deployments have are taken as they are."""
    found: list[str] = []
    for name in listed("dtype", values, str):
        found += [name] if name in QUANTIZATIONS else found_setting(_GRID["dtype"], name)
    return tuple(found)


def _checked_budget(value: Any) -> Amount | None:
    if value is None:
        return None
    if is_number(value) and 0 < value <= _MOST:
        return Amount(float(value), "")
    if isinstance(value, str):
        amount, _, currency = value.strip().partition(" ")
        try:
            found = checked_price(f"{amount} {currency.strip()}/h")
            if found and found.amount > 0:
                return Amount(found.amount, found.currency)
        except SettingError:
            pass
    raise SettingError(f'budget: expected an amount such as "500 USD" or 500, got {shown(value)}')


#: Units of long times beside those of paleo.core.units.
_LONG_UNITS = {"min": 60, "h": 3600, "d": 86_400, "day": 86_400, "days": 86_400}


def _checked_seconds(name: str) -> Callable[[Any], float | None]:
    """Return the check of a time: seconds, or a text with a unit."""

    def check(value: Any) -> float | None:
        if value is None:
            return None
        if is_number(value) and 0 < value <= _MOST:
            return float(value)
        try:
            if not isinstance(value, str):
                raise ValueError(
                    f'expected seconds above 0, or a text such as "20 ms", {_got(value)}'
                )
            number, _, unit = value.strip().partition(" ")
            if unit.strip() in _LONG_UNITS:
                return _LONG_UNITS[unit.strip()] * parse(f"{number} s", "s")
            return parse(value, "s")
        except ValueError as error:
            raise SettingError(f"{name}: {error}") from None

    return check


def _got(value: Any) -> str:
    return f"got {shown(value)}"


def _checked_memory(value: Any) -> int | None:
    from paleo.core.checks import checked_bytes

    found = None if value is None else checked_bytes(value, "max_memory")
    if found is not None and found < 1:
        raise SettingError(f"max_memory: expected one byte or more, got {shown(value)}")
    return found


def _checked_count(name: str, most: int) -> Callable[[Any], int | None]:
    def check(value: Any) -> int | None:
        if value is None or (is_whole(value) and 1 <= value <= most):
            return value if value is None else int(value)
        raise SettingError(f"{name}: expected a whole number from 1 to {most}, got {shown(value)}")

    return lambda value: check(python_int(value))


#: How many samples devices have at a time, by powers of two.
_POWERS = "powers of two"


class PlanningSettings(
    RateSettings,
    KernelSettings,
    LossSettings,
    ConvolutionSettings,
    OptimizerSettings,
    GradientSettings,
    TrainingSettings,
    TokenSettings,
    PowerSettings,
    total=False,
):
    """Of a search for plans. What may be several is tried in every combination."""

    cluster: Annotated[Any, _GRID["cluster"]]
    device: Annotated[
        Any,
        replace(
            _GRID["device"].with_default(None),
            shown_default="TITAN_X; with --serve, of usual clusters of eight",
        ),
    ]
    network: Annotated[Any, _GRID["network"]]
    dtype: Annotated[
        str | Sequence[str] | None,
        replace(
            _GRID["dtype"],
            default=None,
            check=lambda value: None if value is None else _checked_dtypes(value),
            shown_default="fp32; with --serve bf16 or fp16, and fp8 where there is that",
        ),
    ]
    ppp_comm: Annotated[float, _GRID["ppp_comm"]]
    importing: ImportOptions | None
    workers: Annotated[
        int | Sequence[int] | None,
        replace(_axis(WORKERS, "powers of two of whole nodes"), help="Numbers of devices."),
    ]
    batch_size: Annotated[
        int | Sequence[int] | None,
        _axis(
            replace(BATCH_SIZE, name="batch_size"),
            _POWERS,
            help="Samples that a device has in data-parallel training and in inference.",
        ),
    ]
    global_batch: Annotated[
        int | Sequence[int] | None,
        _axis(
            _MESH["global_batch"],
            "of devices that share a net 128 for each of the most; else --batch_size of each",
            help="Samples of all devices in a step.",
        ),
    ]
    parallel: Annotated[
        str | None,
        Setting(
            default=None,
            check=lambda value: value if value is None else choice("parallel", PARALLELISMS)(value),
            help="mesh: devices share the net by tensors, stages, shards and data; data: each has "
            "a copy of it.",
            choices=lambda: PARALLELISMS,
            shown_default="mesh for nets that read tokens and with options of a mesh, else data",
        ),
    ]
    tp: Annotated[int | Sequence[int] | None, _axis(_MESH["tp"], "those that divide a node")]
    pp: Annotated[int | Sequence[int] | None, _axis(_MESH["pp"], "those that divide devices")]
    cp: Annotated[int | Sequence[int] | None, _axis(_MESH["cp"], "1")]
    ep: Annotated[int | Sequence[int] | None, _axis(_MESH["ep"], "those that divide experts")]
    micro_batch: Annotated[int | Sequence[int] | None, _axis(_MESH["micro_batch"], _POWERS)]
    zero: Annotated[int | Sequence[int] | None, _axis(_MESH["zero"], "0,1,2,3")]
    interleave: Annotated[int | Sequence[int] | None, _axis(_MESH["interleave"], "1,2")]
    schedule: Annotated[str | Sequence[str] | None, _axis(_MESH["schedule"], "1f1b")]
    sequence_parallel: Annotated[
        bool | None,
        replace(
            _MESH["sequence_parallel"],
            default=None,
            check=lambda value: value if value is None else bool(value),
            options=("--sequence_parallel/--no_sequence_parallel",),
            shown_default="both",
        ),
    ]
    shard_degree: Annotated[int | None, _MESH["shard_degree"]]
    allocator_slack: Annotated[float | None, _MESH["allocator_slack"]]
    context: Annotated[str, _MESH["context"]]
    order: Annotated[str | Sequence[str], _MESH["order"]]
    recompute: Annotated[
        str | Recompute | Sequence[str | Recompute] | None,
        _axis(replace(RECOMPUTE, name="recompute"), "none,selective,full on a mesh, else none"),
    ]
    accumulate: Annotated[
        int | Sequence[int] | None,
        _axis(_SYNCHRONOUS["accumulate"], "powers of two up to 64 with --global_batch, else 1"),
    ]
    overlap: Annotated[bool | None, _SYNCHRONOUS["overlap"]]
    bucket: Annotated[int | str | None, _SYNCHRONOUS["bucket"]]
    jitter: Annotated[float | None, _SYNCHRONOUS["jitter"]]
    nccl: Annotated[str | None, _SYNCHRONOUS["nccl"]]
    schemes: Annotated[str | Sequence[str] | None, SCHEMES]
    inference: Annotated[
        bool,
        Setting(
            default=False,
            check=bool,
            help="Plan inference on one device, not training; --latency implies it.",
        ),
    ]
    serve: Annotated[
        bool,
        Setting(
            default=False,
            check=bool,
            help="Plan how a language model is served: deployments, as `paleo infer` has them.",
        ),
    ]
    ttft: Annotated[float | str | None, _SERVED["ttft"]]
    tpot: Annotated[float | str | None, _SERVED["tpot"]]
    server: Annotated[Any, _unless_given(_SERVED["server"])]
    prompt: Annotated[int | None, _unless_given(_SERVED["prompt"])]
    output: Annotated[int | None, _unless_given(_SERVED["output"])]
    concurrency: Annotated[
        int | Sequence[int] | None, _axis(_SERVED["concurrency"], "1 to 2048, four in a doubling")
    ]
    kv_dtype: Annotated[str | Sequence[str] | None, _axis(_SERVED["kv_dtype"], "2 bytes each")]
    attention_dp: Annotated[
        int | Sequence[int] | None, _axis(_SERVED["attention_dp"], "1; of experts --tp, too")
    ]
    prefill: Annotated[
        int | Sequence[int] | None,
        _axis(_SERVED["prefill"], "none, and on clusters up to three copies"),
    ]
    token_budget: Annotated[
        int | Sequence[int] | None, _axis(_SERVED["token_budget"], "the server's")
    ]
    max_requests: Annotated[
        int | Sequence[int] | None, _axis(_SERVED["max_requests"], "the server's")
    ]
    hit_rate: Annotated[float | Sequence[float] | None, _axis(_SERVED["hit_rate"], "0")]
    objective: Annotated[
        str | None,
        Setting(
            default=None,
            check=lambda value: (
                value if value is None else choice("objective", tuple(OBJECTIVES))(value)
            ),
            help="What is best: " + "; ".join(f"{k} ({said})" for k, said in OBJECTIVES.items()),
            choices=lambda: OBJECTIVES,
            shown_default="time",
        ),
    ]
    latency: Annotated[
        float | str | None,
        Setting(
            default=None,
            check=_checked_seconds("latency"),
            help="The most that a batch may take in inference, such as '20 ms'.",
            metavar="TIME",
        ),
    ]
    budget: Annotated[
        float | str | None,
        Setting(
            default=None,
            check=_checked_budget,
            help="The most that training may cost, such as '500 USD'.",
            metavar="AMOUNT",
        ),
    ]
    deadline: Annotated[
        float | str | None,
        Setting(
            default=None,
            check=_checked_seconds("deadline"),
            help="The most that training may take, such as '36 h' or '7 days'.",
            metavar="TIME",
        ),
    ]
    max_memory: Annotated[
        int | str | None,
        Setting(
            default=None,
            check=_checked_memory,
            help="The most memory of a device that may be used, such as 72GiB.",
            metavar="SIZE",
            shown_default="all that it has",
        ),
    ]
    max_batch: Annotated[
        int | None,
        Setting(
            default=None,
            check=_checked_count("max_batch", MAX_COUNT),
            help="The most samples of a step.",
            metavar="N",
            shown_default="with --parallel=data and no batch given 32768, else any",
        ),
    ]
    max_devices: Annotated[
        int | None,
        Setting(
            default=None,
            check=_checked_count("max_devices", MAX_SIZE),
            help="The most devices.",
            metavar="N",
        ),
    ]


def check_together(found: Mapping[str, Any], mistakes: Mistakes) -> None:
    """Note settings that do not go together, of those that were found."""
    if found["serve"]:
        _check_deployments(found, mistakes)
        return
    for name in DEPLOYED:
        if found[name] is not None:
            mistakes.add(f"{name}: is of deployments of a language model: give --serve, too")
    serves = asks_inference(found)
    has_length = any(found[name] is not None for name in ("epochs", "tokens"))
    if serves:
        training = ("budget", "deadline", "epochs", "tokens", "global_batch", "accumulate")
        for name in (*training, *OF_MESH, "workers"):
            if found[name] is not None:
                mistakes.add(f"{name}: is for training; inference is of one device")
        if found["parallel"] is not None:
            mistakes.add("parallel: is for training; inference is of one device")
    elif found["objective"] == "latency":
        mistakes.add("objective: latency is of inference: give --inference, too")
    for name in ("budget", "deadline"):
        if not serves and found[name] is not None and not has_length:
            mistakes.add(
                f"{name}: say how long training is: --epochs, of --dataset or --dataset_size, "
                "or --tokens"
            )
    if found["parallel"] == DATA:
        for name in OF_MESH:
            if found[name] is not None:
                mistakes.add(f"{name}: is for --parallel=mesh, not data")


def _check_deployments(found: Mapping[str, Any], mistakes: Mistakes) -> None:
    shared = ("tp", "pp", "ep")
    training = ("budget", "deadline", "epochs", "tokens", "global_batch", "accumulate", "parallel")
    for name in (*training, *OF_MESH, "batch_size", "recompute", "sequence_parallel"):
        if name not in shared and found[name] is not None:
            mistakes.add(f"{name}: is not for --serve, whose requests are --concurrency at a time")
    if found["prefill"] is not None and found["workers"] is None:
        mistakes.add("prefill: say of how many devices in all: --num_workers")


def asks_inference(found: Mapping[str, Any]) -> bool:
    """Tell whether settings ask for plans of inference."""
    return bool(found["serve"] or found["inference"] or found["latency"] is not None)
