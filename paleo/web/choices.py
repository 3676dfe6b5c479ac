"""What there is to choose from: the lists of the page's controls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from paleo.cluster import ARCHITECTURES, BOARDS, Device
from paleo.cluster.collectives import COLLECTIVES, Operation
from paleo.cluster.frameworks import FRAMEWORKS, SOFTWARE
from paleo.core.errors import PaleoError
from paleo.core.tensor import PRECISIONS
from paleo.core.version import __version__
from paleo.costs import COST_MODELS
from paleo.costs.attention import ATTENTION_FAMILIES
from paleo.costs.convolutions.settings import MEMORY_FORMATS
from paleo.step.declarations import Setting, declared
from paleo.step.distributed_settings import SynchronousSettings
from paleo.step.loader import LoaderSettings
from paleo.step.memory import OPTIMIZERS
from paleo.step.plan_keys import TRAINED, UPDATED
from paleo.studies.datasets import DATASETS
from paleo.views.table import in_unit
from paleo.views.tables.metrics import money
from paleo.web import predefined
from paleo.web.answers import EXPORTS
from paleo.web.serving_settings import SERVED
from paleo.web.settings import DECLARED, DEPENDS, KEYS, MESH, PageSettings

Choice = dict[str, Any]

#: Letters that an empty field has room for.
_ROOM = 24

#: The settings of exchanges whose controls the page makes of what is declared, in their order.
_EXCHANGE = tuple(key for key in declared(SynchronousSettings) if key not in ("overlap", "bucket"))
#: So those of training.
_TRAINING = tuple(
    key for key in (*TRAINED, *UPDATED, *declared(LoaderSettings)) if key != "optimizer"
)
#: What inference depends on besides its own settings.
_INFERRED = (
    *("net", "seq_len", "cluster", "device", "network", "workers", "price", "cost_model"),
    *("dtype", "batch_size", "framework"),
)


def choices() -> dict[str, Any]:
    """Return the lists by what is chosen, each entry with its name, and the defaults.

    `exports` are those that there are, `depends` is what `depends` returns.
    """
    return {
        "version": __version__,
        "nets": [{"name": name} for name in predefined.net_names()],
        "devices": _devices(),
        "networks": [_network(name) for name in predefined.network_names()],
        "clusters": [_cluster(name) for name in predefined.cluster_names()],
        "cost_models": _named(COST_MODELS),
        "dtypes": [{"name": name} for name in PRECISIONS],
        "frameworks": _named(FRAMEWORKS),
        "memory_formats": [{"name": name} for name in MEMORY_FORMATS],
        "attentions": _named(ATTENTION_FAMILIES),
        "schemes": _named(
            {
                name: each
                for name, each in COLLECTIVES.items()
                if Operation.ALL_REDUCE in each.operations
            }
        ),
        "overlaps": [
            {"name": "true", "title": "beside the backward pass"},
            {"name": "false", "title": "after the backward pass"},
        ],
        "exchange": [_field(key, DECLARED[key]) for key in _EXCHANGE],
        "training": [_field(key, DECLARED[key]) for key in _TRAINING],
        "mesh": [_field(key, DECLARED[key]) for key in MESH],
        "infer": [_field(key, setting) for key, setting in SERVED.items()],
        "optimizers": _named(OPTIMIZERS),
        "datasets": [
            {"name": each.name, "note": f"{each.num_samples:,} samples"}
            for each in DATASETS.values()
        ],
        "software": [
            {"name": each.name, "ppp_comp": each.ppp_comp, "ppp_comm": each.ppp_comm}
            for each in SOFTWARE.values()
        ],
        "defaults": PageSettings().to_dict(),
        "exports": list(EXPORTS),
        "depends": depends(),
    }


def depends() -> dict[str, list[str]]:
    """Return the settings that an answer depends on, by kind; a kind that is not there has all.

    A software stands for shares of peak; a type that is not chosen depends on the cost model.
    """
    others = ("net", "batch_size", "workers", "scaling", "software", "cost_model")
    found = {kind: list(dict.fromkeys((*others, *keys))) for kind, keys in DEPENDS.items()}
    compared = [key for key in KEYS if key not in SERVED]
    own = [key for key in compared if not key.startswith("other_")]
    return {
        **dict.fromkeys(("scaling", "plan", "search"), own),
        "compare": compared,
        "infer": [*_INFERRED, *SERVED],
        **found,
    }


def _named(registry: Any) -> list[Choice]:
    return [{"name": name, "note": each.summary} for name, each in registry.items()]


def _field(key: str, setting: Setting) -> Choice:
    """Return a control: what it is called, offers, and shows where nothing is given.

    What it is for is the first sentence of the option's help, in the words of the page. A field has
    no room for a long text of what is taken where nothing is given: that is said there, too.
    """
    said, _, _ = setting.help.partition(". ")
    known = SERVED if key in SERVED else DECLARED
    said, empty = _worded(said.rstrip(".:"), known), None
    note = "" if said == setting.label else f"{said}."
    if setting.default is None:
        empty = _worded(setting.shown_default, known)
        if _offered(setting) is None and len(empty) > _ROOM:
            note, empty = f"{note} By itself: {empty}.".strip(), "by itself"
    return {
        "key": key,
        "label": setting.label,
        "note": note,
        "empty": empty,
        "flag": setting.type is bool,
        "choices": _offered(setting),
    }


def _offered(setting: Setting) -> list[Choice] | None:
    """Return what there is to choose; None of what may be several, or anything."""
    if not setting.choices or setting.metavar.endswith(",..."):
        return None
    names = list(setting.choices())
    if setting.may_be_file:  # there are others than those that it is for
        names = [name for name in names if _passes(setting, name)]
    return [{"name": name} for name in names]


def _passes(setting: Setting, name: str) -> bool:
    try:
        setting.check(name)
    except PaleoError:
        return False
    return True


def _worded(text: str, known: Mapping[str, Setting]) -> str:
    """Return a text of the command line with labels of these settings in the place of options."""

    def label(found: re.Match[str]) -> str:
        setting = known.get(found[1]) or known.get(f"infer_{found[1]}")
        return f'"{setting.label}"' if setting and setting.label else found[0]

    return re.sub(r"--(\w+)", label, text)


def _devices() -> list[Choice]:
    """Return the devices, those of an architecture together, in the order of the registry.

    Of a processor that is on several boards the most usual comes first.
    """
    devices = [predefined.device(name) for name in predefined.device_names()]
    order = [*ARCHITECTURES, *dict.fromkeys(each.architecture for each in devices)]

    def rank(device: Device) -> tuple[Any, ...]:
        chip, _, _ = device.name.partition("_")
        board = BOARDS.index(device.board) if device.board else len(BOARDS)
        return order.index(device.architecture), chip, board, device.name

    return [_device(each) for each in sorted(devices, key=rank)]


def _device(device: Device) -> Choice:
    memory, price = device.memory_capacity, device.newest_price
    note = device.title if memory is None else f"{device.title}, {in_unit(memory, 'bytes')}"
    found = {"name": device.name, "group": device.architecture, "note": note}
    if price:
        found["price"] = f"{money(price.amount)} {price.currency}/h"
        found["priced"] = ", ".join(filter(None, [price.provider, price.what, price.date]))
    return found


def _network(name: str) -> Choice:
    network = predefined.network(name)
    return {"name": name, "note": f"{network.title}, {in_unit(network.bandwidth, 'bytes/s')}"}


def _cluster(name: str) -> Choice:
    cluster = predefined.cluster(name)
    sizes = " x ".join(f"{tier.size:,}" for tier in cluster.tiers)
    note = f"{cluster.title}: {sizes} {cluster.device.name}"
    return {"name": name, "device": cluster.device.name, "note": note}
