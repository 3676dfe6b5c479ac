"""A call of a Keras layer, as the functions in `OPERATORS` see it.

To add a class, write a function that takes a `Call` and returns its output or outputs, and register
it with `@operator("Name")`. Axes and shapes are those of Keras: channels are last unless
`data_format` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paleo.core.checks import MAX_SIZE, shown
from paleo.core.tensor import format_shape
from paleo.net.importers.base import OperatorError, register
from paleo.net.importers.builder.builder import Builder
from paleo.net.importers.builder.layout import Value

#: What is called: arguments with values in place of tensors.
Apply = Callable[[str, Any, Sequence[Value]], list[Value]]


def flat(argument: Any) -> Iterator[Value]:
    """Yield the values in an argument, which may be lists and dictionaries of them."""
    if isinstance(argument, Value):
        yield argument
    elif isinstance(argument, list | tuple):
        for each in argument:
            yield from flat(each)
    elif isinstance(argument, dict):
        for each in argument.values():
            yield from flat(each)


def tensors_in(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Value]:
    """Return the tensors of a call without masks, which say what of the others counts."""
    named = [each for name, each in kwargs.items() if not name.endswith("mask")]
    return list(flat([args, named]))


@dataclass
class Call:
    """A layer that is called once.

    `name` is that of the call, `key` that of the layer, under which its parameters are known.
    `apply` calls another layer (its path, what the file says of it, its inputs).
    """

    builder: Builder
    name: str
    key: str
    kind: str
    config: Mapping[str, Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    apply: Apply

    @property
    def inputs(self) -> list[Value]:
        """All tensors that it is called with, but for masks."""
        return tensors_in(self.args, self.kwargs)

    @property
    def x(self) -> Value:
        """The first of them."""
        return self.values(1)[0]

    def values(self, least: int) -> list[Value]:
        """Return all tensors that it is called with, of which it needs so many."""
        found = self.inputs
        if len(found) < least:
            raise OperatorError(f"it is called with {len(found)} tensors and needs {least}")
        return found

    def parameter(self, what: str, shape: Sequence[int]) -> Value:
        """Return a parameter of the layer, the same at each call."""
        return self.builder.parameter(f"{self.key}/{what}", shape)

    def optional(self, has: str, what: str, shape: Sequence[int]) -> Value | None:
        """Return a parameter that the layer has if a key is true, as it is unless said."""
        return self.parameter(what, shape) if self.flag(has, True) else None

    # What the configuration says

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a key that is true or false."""
        value = self.config.get(key, default)
        if not isinstance(value, bool):
            raise OperatorError(f"expected true or false, got {shown(value)}", key)
        return value

    def integer(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Return a key that is a whole number."""
        value = self.config.get(key, default)
        return _whole(default if value is None else value, key, least)

    def integers(self, key: str, count: int, default: int | None = None) -> list[int]:
        """Return a size for each of so many axes: one number stands for all of them."""
        value = self.config.get(key)
        value = default if value is None else value
        if isinstance(value, list) and len(value) == count:
            return [_whole(each, key, 1) for each in value]
        return [_whole(value, key, 1)] * count

    def number(self, key: str, default: float) -> float:
        """Return a key that is a number."""
        value = self.config.get(key, default)
        value = default if value is None else value
        if isinstance(value, dict) and isinstance(value.get("config"), dict):  # an array of one
            value = value["config"].get("value")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise OperatorError(f"expected a number, got {shown(value)}", key)
        return float(value)

    def axes(self, key: str, rank: int, default: int = -1) -> list[int]:
        """Return axes, counted from 0, that are given as one number or several."""
        value = self.config.get(key, default)
        found = []
        for each in value if isinstance(value, list) else [value]:
            axis = _whole(each, key, -rank)
            if axis >= rank:
                raise OperatorError(f"there is no axis {axis} among {rank}", key)
            found.append(axis % rank)
        if not found:
            raise OperatorError("it names no axis", key)
        return sorted(set(found))

    def axis(self, key: str, rank: int, default: int = -1) -> int:
        """Return the axis that a key names, of which there must be one."""
        found = self.axes(key, rank, default)
        if len(found) != 1:
            raise OperatorError(f"expected one axis, got {len(found)}", key)
        return found[0]

    def choice(self, key: str, default: str, choices: Sequence[str]) -> str:
        """Return a key that is one of some words."""
        value = self.config.get(key)
        value = default if value is None else value
        if value not in choices:
            raise OperatorError(f"{shown(value)} is not understood", key)
        return str(value)

    # Layouts

    @property
    def channels_first(self) -> bool:
        """Whether channels come before the spatial axes."""
        words = ("channels_last", "channels_first")
        return self.choice("data_format", words[0], words) == words[1]

    def image(self, rank: int) -> Value:
        """Return its input as N x C x spatial axes, of which it must have so many."""
        x = self.x
        if len(x.shape) != rank + 2:
            wanted = f"{rank + 2} axes"
            raise OperatorError(f"its input must have {wanted}, got {format_shape(x.shape)}")
        return x if self.channels_first else self.first(x)

    def as_it_came(self, x: Value) -> Value:
        """Return an image with its channels where the layer's input has them."""
        return x if self.channels_first else self.last(x)

    def first(self, x: Value, axis: int = -1) -> Value:
        """Return a value with an axis, that of channels, behind the batch; nothing moves."""
        order = [a for a in range(len(x.shape)) if a != axis % len(x.shape)]
        order.insert(1, axis % len(x.shape))
        return self.builder.transpose(self.name, x, order, free=True)

    def last(self, x: Value, axis: int = -1) -> Value:
        """Return a value with axis 1 where `first` took it from."""
        order = [a for a in range(len(x.shape)) if a != 1]
        order.insert(axis % len(x.shape), 1)
        return self.builder.transpose(self.name, x, order, free=True)

    def within(self, suffix: str, **changes: Any) -> Call:
        """Return the call of a part of this layer, by its name in it."""
        return replace(self, name=f"{self.name}/{suffix}", key=f"{self.key}/{suffix}", **changes)


def _whole(value: object, key: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_SIZE:
        at_least = f" of at least {least}" if least >= 0 else ""
        raise OperatorError(f"expected a whole number{at_least}, got {shown(value)}", key)
    return value


Result = Value | Sequence[Value]
Operator = Callable[[Call], Result]

#: Classes of layers, and as "ops.Name" functions of keras.ops.
OPERATORS: dict[str, Operator] = {}


def operator(*kinds: str) -> Callable[[Operator], Operator]:
    """Register a function for some classes."""
    return register(OPERATORS, *kinds)
