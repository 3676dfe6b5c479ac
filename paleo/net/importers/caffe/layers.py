"""The layers of a Caffe file, and which of them are there in a phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paleo.core.errors import printable


def canonical(kind: str) -> str:
    """Return a type as it is looked up: INNER_PRODUCT and InnerProduct are one."""
    return kind.replace("_", "").lower()


@dataclass
class Layer:
    """A layer of either format; `kind` is its type as it is looked up."""

    message: Any
    name: str
    type: str
    kind: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]


def layers_of_phase(net: Any, phase: str) -> tuple[list[Layer], list[Layer]]:
    """Return the layers that are there in a phase, and those that are left out."""
    # DIGITS calls its phases stages; what the file says itself stands alone, as in Caffe.
    stages = set(net.state.stage) or {phase, *(["val"] if phase == "test" else [])}
    state = _State(phase == "test", net.state.level, stages)
    found: list[Layer] = []
    left_out: list[Layer] = []
    for message in net.layer or net.layers:
        kind = message.type
        if not isinstance(kind, str):
            values = message.DESCRIPTOR.fields_by_name["type"].enum_type.values_by_number
            kind = values[kind].name if message.HasField("type") else ""
        tops = tuple(message.top)
        name = message.name.strip("/ ") or next(iter(tops), "") or kind.lower()
        own = message.python_param.layer if kind == "Python" else ""
        looked_up = canonical(f"{kind}.{own}" if own else kind)
        layer = Layer(message, printable(name), kind, looked_up, tuple(message.bottom), tops)
        (found if state.takes(message) else left_out).append(layer)
    return found, left_out


@dataclass
class _State:
    """What the rules of layers ask about. Phase and stages have the same names in many files."""

    testing: bool
    level: int
    stages: set[str]

    def takes(self, layer: Any) -> bool:
        """Tell whether a layer is in the net."""
        if layer.include:
            return any(self._meets(rule) for rule in layer.include)
        return not any(self._meets(rule) for rule in layer.exclude)

    def _meets(self, rule: Any) -> bool:
        return not (
            (rule.HasField("phase") and rule.phase != self.testing)
            or (rule.HasField("min_level") and self.level < rule.min_level)
            or (rule.HasField("max_level") and self.level > rule.max_level)
            or not self.stages.issuperset(rule.stage)
            or not self.stages.isdisjoint(rule.not_stage)
        )
