"""The command lines that print what the page shows."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from typing import Any

from paleo.cluster.frameworks import FRAMEWORKS, running
from paleo.net.importers import CODE
from paleo.net.spec import NetSpec
from paleo.step.declarations import declared
from paleo.step.distributed_settings import SynchronousSettings
from paleo.step.loader import LoaderSettings
from paleo.step.mesh import ORDER
from paleo.step.optimizers import OPTIMIZERS
from paleo.step.plan import COMPUTED
from paleo.step.plan_keys import TRAINED
from paleo.step.settings import DEFAULT_WORKERS
from paleo.web import predefined
from paleo.web.inference import inference_options
from paleo.web.nets import search_options
from paleo.web.plans import plan_options
from paleo.web.settings import DECLARED, MESH, PRICED, PageSettings

#: The defaults of the commands' options, which need not be said; a training has to be.
DEFAULTS: dict[str, Any] = {
    **{key: setting.default for key, setting in DECLARED.items() if key != "batch_size"},
    "num_workers": ",".join(map(str, DEFAULT_WORKERS)),
    "order": ",".join(ORDER),
}
#: How workers that step together bring together what they have.
_SYNCHRONOUS = tuple(declared(SynchronousSettings))
#: How quickly samples come.
_LOADING = tuple(declared(LoaderSettings))
#: What times on a device depend on, without the device.
_PRICED = tuple(key for key in PRICED if key != "device")
_REPORT = "report.html"


def command_lines(settings: PageSettings, kind: str, own_batch: int) -> list[dict[str, str]]:
    """Return the command lines, each with a label, of an answer of this kind.

    `own_batch` is the batch of one worker, whose layers and memory are shown.
    """
    makers = {"scaling": _scaling, "layers": _layers, "memory": _memory}
    return [{"label": label, "text": text} for label, text in makers[kind](settings, own_batch)]


def _scaling(settings: PageSettings, own_batch: int) -> Iterable[tuple[str, str]]:
    counts = ",".join(map(str, settings.counts))
    cluster = {
        **settings.placed,
        **settings.given("batch_size"),
        "num_workers": counts,
        **settings.given("ppp_comm", *_PRICED, *COMPUTED, *_SYNCHRONOUS, *MESH, *_LOADING),
    }
    chosen = (settings.scheme,) if settings.scheme else settings.schemes
    looked_at = {**settings.given("scaling"), "scheme": ",".join(chosen) or None}
    training = settings.given("dataset", "dataset_size", "epochs", "tokens", "price")
    if settings.is_mesh:  # which has no scaling, and no metrics
        of_tokens = settings.given("tokens", "price") if settings.tokens else {}
        yield "the table", _line(settings, "simulate", **cluster, **of_tokens)
    else:
        yield "the table", _line(settings, "simulate", **cluster, **looked_at)
    if len(chosen) < 2 and not settings.is_mesh:  # metrics are of one scheme
        yield (
            "time and cost of the training",
            # One worker, where it is not said.
            _line(settings, "metrics", said=("num_workers",), **cluster, **looked_at, **training),
        )
    schemes = ",".join(dict.fromkeys((*settings.schemes, *chosen))) or None
    report = _line(settings, "report", **cluster, scheme=schemes, **training)
    yield "a page like this in one file", f"{report} -o {_REPORT}"


def _layers(settings: PageSettings, own_batch: int) -> Iterable[tuple[str, str]]:
    options = {"device": settings.runs_on, "batch_size": own_batch, **settings.given(*_PRICED)}
    # Without a device, there is none in a summary.
    yield "the layers", _line(settings, "summary", said=("device",), **options)


def _memory(settings: PageSettings, own_batch: int) -> Iterable[tuple[str, str]]:
    if settings.is_mesh:
        where = settings.given("cluster") if settings.cluster else settings.given("device")
        how = settings.given("dtype", "optimizer", "optimizer_kernels", *TRAINED, *MESH)
        mesh = {**where, "num_workers": settings.workers, "batch_size": settings.batch_size, **how}
        yield "the memory", _line(settings, "memory", said=("device", "num_workers"), **mesh)
        return
    options = {
        "device": settings.runs_on,
        "batch_size": own_batch,
        **settings.given("dtype", "optimizer", "optimizer_kernels", *TRAINED),
    }
    if not options["optimizer_kernels"] and settings.framework:  # which memory does not ask for
        software = running(FRAMEWORKS[settings.framework], settings.compile)
        on_gpu = predefined.device(settings.runs_on).kind == "gpu"
        kernels = OPTIMIZERS[settings.optimizer].kernels_of(software, on_gpu)
        options["optimizer_kernels"] = kernels
    yield "the memory", _line(settings, "memory", said=("device",), **options)


def plan_line(settings: PageSettings, net: NetSpec) -> str:
    """Return the command line that prints the best plans of what the page shows."""
    return _line(settings, "plan", said=("dataset", "epochs"), **plan_options(settings, net))


def inference_line(settings: PageSettings, net: NetSpec) -> str:
    """Return the command line that prints inference of what the page shows."""
    options = inference_options(settings, net)
    said = [key for key in options if key != "cost_model"]
    return _line(settings, "infer", said=said, **options)


def search_line(settings: PageSettings, net: NetSpec) -> str:
    """Return the command line that prints the best nets around the one that the page shows."""
    return _line(settings, "search", said=("device",), **search_options(settings, net))


def _line(settings: PageSettings, command: str, said: Collection[str] = (), **options: Any) -> str:
    """Return a command line for a POSIX shell, without what its defaults say."""
    words = ["paleo", command, _net(settings), *shlex.split(settings.options)]
    words += [] if settings.seq_len is None else [f"--seq_len={settings.seq_len}"]
    for key, value in options.items():
        if value is None or (key not in said and DEFAULTS.get(key) == value):
            continue
        if isinstance(value, bool):
            words.append(f"--{key}" if value else f"--no_{key}")
        else:
            words.append(f"--{key}={_text(value)}")
    return shlex.join(words)


def _net(settings: PageSettings) -> str:
    """Return the net as a command takes it: a file's name that means something else as a path."""
    if settings.is_uploaded and settings.net.startswith(("-", *CODE)):
        return f"./{settings.net}"
    return settings.net


def _text(value: Any) -> str:
    """Return a value as an option takes it, every digit of it."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
