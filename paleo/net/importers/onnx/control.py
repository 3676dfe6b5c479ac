"""ONNX operators that hold graphs, and those of sequences: they decide what is computed how often.

None of them is a layer. A branch that is taken, and each turn of a loop, is told to the Builder as
if it stood in the file, under the name of its node and the number of the turn. A sequence is the
tensors in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from paleo.net.importers.base import OperatorError, register
from paleo.net.importers.builder.layout import axis_in
from paleo.net.importers.onnx.node import INT64, Node, Operator, Output, Tensor

#: What is understood, by operator; all are of ONNX's own domain.
CONTROLS: dict[str, Operator] = {}
#: Nodes that the turns of one loop may be made of.
_MOST_NODES = 50_000
#: An optional that holds nothing.
_NOTHING = Tensor((), why="nothing, in an optional")
_BOOL = 9


def control(*names: str) -> Callable[[Operator], Operator]:
    """Register a function as what these operators are."""
    return register(CONTROLS, *names)


def _graph(node: Node, name: str) -> Any:
    found = node.attribute(name)
    if found is None:
        raise OperatorError(f"{node.op} has no {name}")
    return found.g


def _turn(node: Node, body: Any, name: str, inputs: Sequence[Tensor], count: int) -> list[Tensor]:
    """Return the tensors that a graph gives in one turn, so many."""
    given = node.context.inside(body, name, inputs)
    if len(given) != count:
        raise OperatorError(f"a turn of {node.op} gives {len(given)} tensors, not {count}")
    return given


def _number(value: int | bool) -> Tensor:
    kind = np.bool_ if isinstance(value, bool) else np.int64
    return Tensor((), _BOOL if isinstance(value, bool) else INT64, array=np.asarray(value, kind))


def _read(node: Node, index: int) -> Tensor:
    """Return an input that may be nothing."""
    found = node.inputs[index] if index < len(node.inputs) else None
    return _NOTHING if found is None else found


# ---- Branches ----------------------------------------------------------------------------------


@control("If")
def _if(node: Node) -> Sequence[Output]:
    """Follow the branch that is taken, or either of two that cost the same."""
    condition = node.tensor(0)
    numbers = condition.numbers() if condition.is_constant else None
    if numbers is not None and numbers.size:
        branch = "then_branch" if numbers.reshape(-1)[0] else "else_branch"
        return node.context.inside(_graph(node, branch), node.name)
    found, costs = [], []
    for branch in ("then_branch", "else_branch"):
        before = node.builder.mark()
        with node.context.attempt():
            found.append(node.context.inside(_graph(node, branch), node.name))
        costs.append(node.builder.made_since(before))
    shapes = [[part and part.shape for part in parts] for parts in found]
    if len(found) < 2 or shapes[0] != shapes[1] or costs[0] != costs[1]:
        raise OperatorError(
            f"{node.op} takes the one branch or the other, which cost differently, by a condition "
            f"that is {condition.why}"
        )
    return found[0]


# ---- Loops -------------------------------------------------------------------------------------


def _check_turns(node: Node, turns: int, body: Any) -> None:
    if turns * max(len(body.node), 1) > _MOST_NODES:
        raise OperatorError(
            f"{node.op} takes {turns:,} turns of {len(body.node):,} nodes, which is too many to "
            "read"
        )


def _hands_on_condition(body: Any) -> bool:
    """Tell whether the condition to go on is what came in, as it is of counted loops."""
    if len(body.input) < 2 or not body.output:
        return False
    given, condition = body.input[1].name, body.output[0].name
    return condition == given or any(
        one.op_type == "Identity" and [*one.input] == [given] and condition in one.output
        for one in body.node
    )


@control("Loop")
def _loop(node: Node) -> Sequence[Output]:
    """Follow each turn, as many as are known; where what is computed may end it before, all."""
    body, turns = _graph(node, "body"), None
    if node.has(0):
        turns = max(int(node.numbers(0, "its trip count")[0]), 0)
    state = [_read(node, index) for index in range(2, len(node.inputs))]
    more = _read(node, 1) if node.has(1) else _number(True)
    scans: list[list[Tensor]] = [[] for _ in node.proto.output[len(state) :]]
    if turns is not None and _hands_on_condition(body):
        _check_turns(node, turns, body)  # before the first of very many
    turn = 0
    while (turns is None or turn < turns) and _goes_on(node, more, turns):
        _check_turns(node, turn + 1, body)
        name = f"{node.name}/{turn}"
        inputs = [_number(turn), _number(True), *state]
        more, *given = _turn(node, body, name, inputs, 1 + len(state) + len(scans))
        state = given[: len(state)]
        for scan, part in zip(scans, given[len(state) :], strict=True):
            scan.append(part)
        turn += 1
    outputs: list[Output] = [*state]
    declared = list(body.output)[1 + len(state) :]
    if len(declared) < len(scans):
        raise OperatorError(f"a turn of {node.op} gives too few tensors")
    for index, (scan, proto) in enumerate(zip(scans, declared, strict=True)):
        outputs.append(_stacked(node, f"{node.name}/outputs_{index}", scan, 0, proto))
    return outputs


def _goes_on(node: Node, more: Tensor, turns: int | None) -> bool:
    """Tell whether a loop takes another turn."""
    numbers = more.numbers() if more.is_constant else None
    if numbers is not None and numbers.size:
        return bool(numbers.reshape(-1)[0])
    if turns is None or turns >= _MOST_NODES:
        raise OperatorError(
            f"{node.op} takes turns as long as a condition holds that is {more.why}: how many is "
            "not known"
        )
    node.builder.note(f"{node.name} takes all of the {turns} turns that it may take at most")
    return True


@control("Scan")
def _scan(node: Node) -> Sequence[Output]:
    """Follow a turn for each element along an axis of what is scanned."""
    body, count = _graph(node, "body"), node.integer("num_scan_inputs", 0)
    if node.version < 9:
        raise OperatorError("Scan of version 8, which goes through each sample apart, is not read")
    states = len(node.inputs) - count
    state = [_read(node, index) for index in range(states)]
    scanned = [node.tensor(index) for index in range(states, len(node.inputs))]
    if not scanned or states < 0:
        raise OperatorError("Scan scans nothing")
    axes = node.integers("scan_input_axes", [0] * count, count)
    axes = [axis_in(each.shape, axis) for each, axis in zip(scanned, axes, strict=True)]
    lengths = {each.shape[axis] for each, axis in zip(scanned, axes, strict=True)}
    if len(lengths) > 1:
        raise OperatorError(f"Scan goes through axes of {', '.join(map(str, sorted(lengths)))}")
    (length,) = lengths
    _check_turns(node, length, body)
    backwards = node.integers("scan_input_directions", [0] * count, count)
    outputs = max(len(node.proto.output) - states, 0)
    scans: list[list[Tensor]] = [[] for _ in range(outputs)]
    for turn in range(length):
        name = f"{node.name}/{turn}"
        parts = [
            _element(node, f"{name}/input_{index}", each, axis, length - 1 - turn if back else turn)
            for index, (each, axis, back) in enumerate(zip(scanned, axes, backwards, strict=True))
        ]
        given = _turn(node, body, name, [*state, *parts], states + outputs)
        state = list(given[:states])
        for scan, part in zip(scans, given[states:], strict=True):
            scan.append(part)
    at = node.integers("scan_output_axes", [0] * outputs, outputs)
    turned = node.integers("scan_output_directions", [0] * outputs, outputs)
    declared = body.output[states:]
    stacked = [
        _stacked(node, f"{node.name}/outputs_{i}", scan[::-1] if turned[i] else scan, at[i], proto)
        for i, (scan, proto) in enumerate(zip(scans, declared, strict=True))
    ]
    return [*state, *stacked]


def _element(node: Node, name: str, tensor: Tensor, axis: int, index: int) -> Tensor:
    """Return one element of an axis, which is dropped."""
    numbers = tensor.numbers() if tensor.made is None else None
    if numbers is not None and not tensor.trainable:
        array = np.take(numbers, index, axis)
        return Tensor(array.shape, tensor.dtype, array=array)
    made = node.builder.select(name, tensor.value(node.builder), axis, index)
    return Tensor(made.shape, tensor.dtype, made)


def _stacked(
    node: Node, name: str, parts: Sequence[Tensor], axis: int, proto: Any = None
) -> Tensor:
    """Return what the turns give, put together along a new axis."""
    if not parts:
        dims = proto.type.tensor_type.shape.dim
        if not all(dim.HasField("dim_value") for dim in dims):
            raise OperatorError(f"{node.op} takes no turn, and does not say what shape it gives")
        return Tensor((0, *(dim.dim_value for dim in dims)), proto.type.tensor_type.elem_type or 1)
    at = axis_in((*parts[0].shape, 1), axis)
    if len({part.shape for part in parts}) > 1:
        raise OperatorError(f"the turns of {node.op} give tensors of different shapes")
    shape = (*parts[0].shape[:at], len(parts), *parts[0].shape[at:])
    arrays = [None if part.trainable or part.made else part.numbers() for part in parts]
    known = [array for array in arrays if array is not None]
    if len(known) == len(parts):
        return Tensor(shape, parts[0].dtype, array=np.stack(known, at))
    if 0 in shape:
        return Tensor(shape, parts[0].dtype)
    builder = node.builder
    values = [builder.unsqueeze(name, part.value(builder), [at]) for part in parts]
    made = builder.concat(name, values, at)
    return Tensor(made.shape, parts[0].dtype, made)


# ---- Sequences ---------------------------------------------------------------------------------


def _sequence(items: Sequence[Tensor]) -> Tensor:
    return Tensor((), items=tuple(items))


def _items(node: Node, index: int = 0) -> tuple[Tensor, ...]:
    items = node.tensor(index).items
    if items is None:
        raise OperatorError(f"{node.op} reads a tensor where a sequence should be")
    return items


def _position(node: Node, index: int, default: int, most: int) -> int:
    """Return a position in a sequence, counted from 0."""
    at = int(node.numbers(index, "its position")[0]) if node.has(index) else default
    if not -most <= at < most:
        raise OperatorError(f"position {at} in a sequence of {most}")
    return at % most


@control("SequenceConstruct")
def _construct(node: Node) -> Sequence[Output]:
    return [_sequence([node.tensor(index) for index in range(len(node.inputs))])]


@control("SequenceEmpty")
def _empty(node: Node) -> Sequence[Output]:
    return [_sequence([])]


@control("SequenceAt")
def _at(node: Node) -> Sequence[Output]:
    items = _items(node)
    return [items[_position(node, 1, 0, len(items))]]


@control("SequenceInsert")
def _insert(node: Node) -> Sequence[Output]:
    items = list(_items(node))
    items.insert(_position(node, 2, len(items), len(items) + 1), node.tensor(1))
    return [_sequence(items)]


@control("SequenceErase")
def _erase(node: Node) -> Sequence[Output]:
    items = list(_items(node))
    del items[_position(node, 1, len(items) - 1, len(items))]
    return [_sequence(items)]


@control("SequenceLength")
def _length(node: Node) -> Sequence[Output]:
    return [_number(len(_items(node)))]


@control("ConcatFromSequence")
def _concat(node: Node) -> Sequence[Output]:
    items, axis = _items(node), node.integer("axis", 0)
    if not items:
        raise OperatorError("it joins a sequence of nothing")
    if node.integer("new_axis", 0):
        return [_stacked(node, node.name, items, axis)]
    values = [each.value(node.builder) for each in items if each.size]
    made = node.builder.concat(node.name, values, axis)
    return [Tensor(made.shape, items[0].dtype, made)]


@control("SplitToSequence")
def _split(node: Node) -> Sequence[Output]:
    tensor = node.tensor(0)
    axis = axis_in(tensor.shape, node.integer("axis", 0))
    length = tensor.shape[axis]
    if not node.has(1) and not node.integer("keepdims", 1):
        names = [f"{node.name}_{index}" for index in range(length)]
        return [_sequence([_element(node, x, tensor, axis, i) for i, x in enumerate(names)])]
    sizes = [1] * length
    if node.has(1):
        sizes = [int(size) for size in node.numbers(1, "its parts")]
        if not node.shape(1) and sizes[0] > 0:  # one number is the size of all, but the last
            sizes = [min(sizes[0], length - done) for done in range(0, length, sizes[0])]
    if sum(sizes) != length or any(size < 1 for size in sizes):
        raise OperatorError(f"{length} in parts of {', '.join(map(str, sizes))}")
    numbers = tensor.numbers() if tensor.made is None and not tensor.trainable else None
    if numbers is not None:
        arrays = np.split(numbers, list(accumulate(sizes))[:-1], axis)
        return [_sequence([Tensor(each.shape, tensor.dtype, array=each) for each in arrays])]
    names = [f"{node.name}_{index}" for index in range(len(sizes))]
    parts = node.builder.split(names, tensor.value(node.builder), axis, sizes)
    return [_sequence([Tensor(each.shape, tensor.dtype, each) for each in parts])]


@control("SequenceMap")
def _map(node: Node) -> Sequence[Output]:
    body, items = _graph(node, "body"), _items(node)
    others = [node.tensor(index) for index in range(1, len(node.inputs))]
    if any(each.items is not None and len(each.items) != len(items) for each in others):
        raise OperatorError("its sequences differ in length")
    given: list[list[Tensor]] = [[] for _ in node.proto.output]
    for turn, item in enumerate(items):
        beside = [each if each.items is None else each.items[turn] for each in others]
        parts = _turn(node, body, f"{node.name}/{turn}", [item, *beside], len(given))
        for held, part in zip(given, parts, strict=True):
            held.append(part)
    return [_sequence(held) for held in given]


@control("Optional")
def _optional(node: Node) -> Sequence[Output]:
    return [_read(node, 0)]


@control("OptionalHasElement")
def _has_element(node: Node) -> Sequence[Output]:
    return [_number(_read(node, 0) is not _NOTHING)]


@control("OptionalGetElement")
def _get_element(node: Node) -> Sequence[Output]:
    if _read(node, 0) is _NOTHING:
        raise OperatorError("it opens an optional that holds nothing")
    return [node.tensor(0)]
