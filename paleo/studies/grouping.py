"""The layers of a summary put together: by block, to a depth, or by type."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity, total
from paleo.net.spec import in_file
from paleo.studies.summary import LayerSummary, NetSummary

#: What divides the names of blocks: "/" in net files, "." in modules of frameworks.
_PATH = re.compile(r"[/.]")


@dataclass(frozen=True)
class Group:
    """Layers of one block or of one type; sums over them. Seconds are None without a device.

    All `instances` of a repeated block are one, with "*" in the place of their index.
    """

    name: str
    layers: tuple[LayerSummary, ...]
    instances: int = 1

    def _total(self, name: str) -> Quantity:
        return total(getattr(layer, name) or 0 for layer in self.layers)

    @property
    def num_params(self) -> int:
        """Trainable parameters."""
        return sum(layer.num_params for layer in self.layers)

    @property
    def forward_flops(self) -> Quantity:
        """FLOPs of a forward pass over the batch."""
        return self._total("forward_flops")

    @property
    def time(self) -> Quantity | None:
        """Seconds of both passes."""
        if all(layer.forward is None for layer in self.layers):
            return None
        return self._total("forward") + self._total("backward")

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        timed = {} if self.time is None else {"time_s": self.time}
        return {
            "name": self.name,
            "instances": self.instances,
            "layers": len(self.layers),
            "params": self.num_params,
            "forward_flops": self.forward_flops,
            "weights_bytes": self._total("weights_bytes"),
            "activations_bytes": self._total("activations_bytes"),
            **timed,
        }


def by_block(summary: NetSummary, depth: int) -> tuple[Group, ...]:
    """Return the blocks down to a depth, in the order of the net; other layers stand alone."""
    repeats = summary.repeats

    def name_of(layer: LayerSummary) -> str:
        return block_of(in_file(layer.name, repeats), depth)

    groups = _grouped(summary.layers, name_of)
    if not repeats:
        return groups
    return tuple(replace(group, instances=_instances(group.name, repeats)) for group in groups)


def _instances(name: str, repeats: Mapping[str, int]) -> int:
    """Return how many blocks are meant by a name with "*" in it."""
    return math.prod(n for prefix, n in repeats.items() if f"{name}/".startswith(prefix))


def by_type(summary: NetSummary) -> tuple[Group, ...]:
    """Return the layers of each type together."""
    return _grouped(summary.layers, lambda layer: layer.type_name)


def _grouped(
    layers: Iterable[LayerSummary], name_of: Callable[[LayerSummary], str]
) -> tuple[Group, ...]:
    found: dict[str, list[LayerSummary]] = {}
    for layer in layers:
        found.setdefault(name_of(layer), []).append(layer)
    return tuple(Group(name, tuple(those)) for name, those in found.items())


def block_of(name: str, depth: int) -> str:
    """Return the block of a layer to a depth; its own name if it is in no block so deep."""
    ends = [match.start() for match in _PATH.finditer(name)]
    return name[: ends[depth - 1]] if len(ends) >= depth else name
