"""The command lines that print what the page shows."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

from paleo.costs import DEFAULT_COST_MODEL
from paleo.simulate import DEFAULT_WORKERS
from paleo.web.settings import PRICED, Settings

__all__ = ["DEFAULTS", "command_lines"]

#: The defaults of the commands' options, which need not be said.
DEFAULTS: dict[str, Any] = {
    "device": "TITAN_X",
    "network": "ethernet",
    "cost_model": DEFAULT_COST_MODEL,
    "dtype": "fp32",
    "num_workers": ",".join(map(str, DEFAULT_WORKERS)),
    "ppp_comp": 1.0,
    "ppp_comm": 1.0,
    "use_pipeline": False,
    "fuse": False,
    "optimizer": "sgd",
}
_REPORT = "report.html"


def command_lines(settings: Settings, kind: str, own_batch: int) -> list[dict[str, str]]:
    """Return the command lines, each with a label, of an answer of this kind.

    `own_batch` is the batch of one worker, whose layers and memory are shown.
    """
    makers = {"scaling": _scaling, "layers": _layers, "memory": _memory}
    return [{"label": label, "text": text} for label, text in makers[kind](settings, own_batch)]


def _scaling(settings: Settings, own_batch: int) -> Iterable[tuple[str, str]]:
    counts = ",".join(map(str, settings.counts))
    cluster: dict[str, Any] = {
        "device": settings.device,
        "network": settings.network,
        "batch_size": settings.batch_size,
        "num_workers": counts,
        "ppp_comm": settings.ppp_comm,
        **_priced(settings),
    }
    looked_at: dict[str, Any] = {"scaling": settings.scaling, "scheme": settings.scheme or None}
    training: dict[str, Any] = {
        "dataset": settings.dataset or None,
        "dataset_size": settings.dataset_size,
        "epochs": settings.epochs,
        "price": settings.price or None,
        "optimizer": settings.optimizer,
    }
    yield "the table", _line(settings, "simulate", **cluster, **looked_at)
    yield (
        "time and cost of the training",
        # One worker, where it is not said.
        _line(settings, "metrics", said=("num_workers",), **cluster, **looked_at, **training),
    )
    report = _line(settings, "report", **cluster, **training)
    yield "a page like this in one file", f"{report} -o {_REPORT}"


def _layers(settings: Settings, own_batch: int) -> Iterable[tuple[str, str]]:
    options = {"device": settings.device, "batch_size": own_batch, **_priced(settings)}
    # Without a device, there is none in a summary.
    yield "the layers", _line(settings, "summary", said=("device",), **options)


def _memory(settings: Settings, own_batch: int) -> Iterable[tuple[str, str]]:
    options = {
        "device": settings.device,
        "batch_size": own_batch,
        "dtype": settings.dtype,
        "optimizer": settings.optimizer,
    }
    yield "the memory", _line(settings, "memory", said=("device",), **options)


def _priced(settings: Settings) -> dict[str, Any]:
    """Return what times on a device depend on, without the device."""
    return {key: getattr(settings, key) for key in PRICED if key != "device"}


def _line(settings: Settings, command: str, said: tuple[str, ...] = (), **options: Any) -> str:
    """Return a command line for a POSIX shell, without what its defaults say."""
    words = ["paleo", command, _net(settings), *shlex.split(settings.options)]
    for key, value in options.items():
        if value is None or (key not in said and DEFAULTS.get(key) == value):
            continue
        words.append(f"--{key}" if value is True else f"--{key}={_text(value)}")
    return shlex.join(words)


def _net(settings: Settings) -> str:
    """Return the net as a command takes it: a file's name that means something else as a path."""
    if settings.is_uploaded and settings.net.startswith(("-", "python:")):
        return f"./{settings.net}"
    return settings.net


def _text(value: Any) -> str:
    """Return a value as an option takes it, every digit of it."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
