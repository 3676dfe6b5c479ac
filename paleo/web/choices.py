"""What there is to choose from: the lists of the page's controls."""

from __future__ import annotations

from typing import Any

from paleo.cluster import ARCHITECTURES
from paleo.cluster.collectives import COLLECTIVES
from paleo.cluster.frameworks import SOFTWARE
from paleo.core.tensor import PRECISIONS
from paleo.core.version import __version__
from paleo.costs import COST_MODELS
from paleo.step.memory import OPTIMIZERS
from paleo.studies.datasets import DATASETS
from paleo.views.table import in_unit
from paleo.web import predefined
from paleo.web.answers import EXPORTS
from paleo.web.settings import DEPENDS, PageSettings

Choice = dict[str, Any]


def choices() -> dict[str, Any]:
    """Return the lists by what is chosen, each entry with its name, and the defaults.

    `exports` are those that there are, `depends` is what `depends` returns.
    """
    return {
        "version": __version__,
        "nets": [{"name": name} for name in predefined.net_names()],
        "devices": _devices(),
        "networks": [_network(name) for name in predefined.network_names()],
        "cost_models": _named(COST_MODELS),
        "dtypes": [{"name": name} for name in PRECISIONS],
        "schemes": _named(COLLECTIVES),
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

    A software stands for shares of peak.
    """
    of_worker = ("net", "batch_size", "workers", "scaling")
    return {kind: [*of_worker, "software", *keys] for kind, keys in DEPENDS.items()}


def _named(registry: Any) -> list[Choice]:
    return [{"name": name, "note": each.summary} for name, each in registry.items()]


def _devices() -> list[Choice]:
    """Return the devices, those of an architecture together, in the order of the registry."""
    devices = [predefined.device(name) for name in predefined.device_names()]
    order = [*ARCHITECTURES, *dict.fromkeys(each.architecture for each in devices)]
    found = []
    for each in sorted(devices, key=lambda device: (order.index(device.architecture), device.name)):
        memory = each.memory_capacity
        note = each.title if memory is None else f"{each.title}, {in_unit(memory, 'bytes')}"
        found.append({"name": each.name, "group": each.architecture, "note": note})
    return found


def _network(name: str) -> Choice:
    network = predefined.network(name)
    return {"name": name, "note": f"{network.title}, {in_unit(network.bandwidth, 'bytes/s')}"}
