"""What nets take of a device's memory, and what fits it: every combination of what is asked."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Unpack

from paleo.core.checks import listed
from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.frozen import TypedDict
from paleo.core.results import Results
from paleo.core.units import parse
from paleo.net.importers import ImportOptions
from paleo.net.load import ONE_NET, NetLike, load
from paleo.step.declarations import Setting, check_names, declared, listing
from paleo.step.memory import Fit, fit
from paleo.step.plan_keys import TRAINED
from paleo.step.recompute import Recompute
from paleo.step.settings import (
    DEVICE,
    FRAMEWORK,
    LOSS,
    NET_BATCH_SIZE,
    OPTIMIZER,
    OPTIMIZER_KERNELS,
    RECOMPUTE,
    DeviceLike,
    GridSettings,
    found_settings,
)


def _bytes(value: Any) -> float:
    if value is None:
        return 0.0
    try:
        return parse(value, "bytes") if isinstance(value, str) else value
    except ValueError as error:
        raise SettingError(f"workspace: {error}") from None


#: Here, where most do not say what runs the net.
MEMORY_KERNELS = replace(OPTIMIZER_KERNELS, shown_default="step by step, tensor by tensor")

MEMORY_FRAMEWORK = replace(
    FRAMEWORK,
    describes=False,
    help="What runs the net. Of transformers, whose models compose layers in steps, more is kept.",
    shown_default="none",
)


class MemorySettings(TypedDict, total=False):
    """Of what nets take of a device's memory."""

    batch_size: Annotated[int | Sequence[int] | None, listing("batch_size", NET_BATCH_SIZE)]
    optimizer: Annotated[str, OPTIMIZER]
    optimizer_kernels: Annotated[str | None, MEMORY_KERNELS]
    inference: Annotated[
        bool,
        Setting(
            default=False,
            check=bool,
            help="Inference instead of training: a forward pass, which keeps nothing.",
        ),
    ]
    dtype: Annotated[str | Sequence[str], declared(GridSettings)["dtype"]]
    loss: Annotated[str, LOSS]
    framework: Annotated[str | None, MEMORY_FRAMEWORK]
    recompute: Annotated[str | Recompute, RECOMPUTE]
    workspace: Annotated[
        float | str | None,
        Setting(
            default=None,
            check=_bytes,
            help='Memory to add throughout, for example a library\'s scratch memory: "4 GiB".',
            metavar="SIZE",
        ),
    ]
    device: Annotated[
        DeviceLike | Sequence[DeviceLike] | None,
        listing(
            "device",
            DEVICE.with_default(None),
            "Say what fits these devices: names of `paleo devices`, or TOML files of your own.",
        ),
    ]
    importing: ImportOptions | None


#: The settings of which every combination is asked, in the order in which they vary.
_VARIED = ("device", "dtype", "batch_size")


def memory(nets: NetLike | Iterable[NetLike], **settings: Unpack[MemorySettings]) -> Results[Fit]:
    """Return what one net or several take of a device's memory, layer by layer and at the peak.

    `device`, `dtype` and `batch_size` may be several: every combination is asked. With a device
    it is said what fits; `workspace` bytes, or a text such as "4 GiB", are added at every point;
    other settings are those of `paleo.footprint`. Raises a PaleoError with every mistake.

    >>> (fit,) = paleo.memory("vgg16", batch_size=64, device="K40")
    >>> fit.fits, fit.largest_batch
    (True, 160)
    """
    mistakes = Mistakes()
    check_names(declared(MemorySettings), settings, mistakes)
    many = mistakes.check(listed, "nets", nets, ONE_NET) or []
    specs = [mistakes.check(load, net, settings.get("importing")) for net in many]
    found = found_settings(MemorySettings, settings, mistakes, base=MemorySettings)
    mistakes.raise_as(PaleoError)
    of_all: dict[str, Any] = {
        **{name: found[name] for name in ("optimizer", "optimizer_kernels", "framework", *TRAINED)},
        "training": not found["inference"],
        "workspace": found["workspace"],
    }
    fits = [
        mistakes.check(
            functools.partial(fit, spec, **dict(zip(_VARIED, values, strict=True)), **of_all)
        )
        for spec in specs
        if spec
        for values in itertools.product(*(found[name] for name in _VARIED))
    ]
    mistakes.raise_as(PaleoError)
    return Results(found for found in fits if found)
