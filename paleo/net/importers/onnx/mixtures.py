"""Loops over the experts of a mixture, in an ONNX graph, made one product.

An exporter writes out each turn of such a loop: NonZero finds the rows that a router sends to one
expert, that expert computes them, and a scatter puts them back. How many there are depends on data.
Turns that differ in nothing but their weights become the first of them, with the rows of all and
with products that are grouped. A router's choices are taken to be spread evenly over what it
chooses from. `paleo.net.importers.pytorch.mixtures` does the same to what PyTorch exports.

What the first turn is made of then stands in the list of nodes as operators of a domain of ours:
`Picked` (the rows of all turns), `Experts` (a grouped product) and `PutBack`.
"""

from __future__ import annotations

import importlib
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from paleo.core.tensor import format_shape
from paleo.net.importers.base import OperatorError
from paleo.net.importers.onnx.node import INT64, Node, Result, Shape, Tensor, operator, reads
from paleo.net.importers.onnx.untrained import SCATTERS

#: The domain of operators that stand for several of a file.
DOMAIN = "paleo"
#: What chooses: the place of its choices among its outputs, and the axis unless it says one.
_CHOOSING = {"TopK": (1, -1), "ArgMax": (0, 0)}
#: Operators through which a weight is still the tensor that the file holds.
_VIEWS = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
#: Operators that keep what is known of choices.
_SAME = _VIEWS | {"Expand", "Flatten", "Slice"}
_PARTS = frozenset({"Gather", "Slice"})
_PRODUCTS = frozenset({"Gemm", "MatMul"})
#: Operators whose work is more than that of a pass over what they read.
_HEAVY = _PRODUCTS | {
    "Attention", "Conv", "ConvTranspose", "Einsum", "GRU", "If", "LSTM", "Loop", "RNN", "Scan",
}  # fmt: skip
#: Elements of what may be no weight, but numbers that shapes are computed from.
_FEW = 64
#: TensorProto's numbers of float, float16, double and bfloat16.
_FLOATS = frozenset({1, 10, 11, 16})

Live = list[tuple[int, Any]]


def _integer(proto: Any, name: str, default: int) -> int:
    return next((int(each.i) for each in proto.attribute if each.name == name), default)


def _is_product(proto: Any) -> bool:
    """Tell whether a node may be a product of rows and a matrix."""
    return proto.op_type in _PRODUCTS and not _integer(proto, "transA", 0)


@dataclass(frozen=True)
class _Chosen:
    """What a tensor says of choices: their numbers, truths of each expert or those of one.

    `origin` is the name of the truths of one expert, before any were joined.
    """

    kind: str
    by: Any
    origin: str = ""
    joined: bool = False


@dataclass
class _Turn:
    """A turn of a loop: where its rows are found, the nodes that have them, and the writes."""

    chosen: _Chosen
    roots: list[Any] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)
    #: Where each name is given: by which of the nodes, and which output of it.
    places: dict[str, tuple[int, int]] = field(default_factory=dict)


class _Mixtures:
    """The nodes of a graph and what is known of them."""

    def __init__(self, live: Live, tensors: Mapping[str, Tensor]) -> None:
        self.live = live
        #: The dimensions of single numbers that the file holds, and of weights.
        self.tensors = tensors
        #: How many turns there are of the choices of each node, by its identity.
        self.experts = Counter[int]()
        self.singles = {name for name, tensor in tensors.items() if tensor.size == 1}
        self.held = {name: each.shape for name, each in tensors.items() if each.trainable}
        self.givers = {name: proto for _, proto in live for name in proto.output if name}
        #: The Adds that read a name, and what they add to it.
        self.sums: dict[str, list[tuple[Any, str]]] = defaultdict(list)
        for _, proto in live:
            if proto.op_type == "Add" and len(set(proto.input)) == 2:
                for name, other in (proto.input, reversed(proto.input)):
                    self.sums[name].append((proto, other))

    def joined(self, outputs: Collection[str]) -> Live | None:
        """Return the nodes with loops made one product; None where there are none."""
        loops: dict[Any, list[_Turn]] = {}
        for turn in self._turns():
            self.experts[id(turn.chosen.by)] += 1
            loops.setdefault(self._form(turn), []).append(turn)
        found = [loop for loop in loops.values() if len(loop) > 1 and self._products(loop)]
        if not found:
            return None
        instead: dict[int, list[Any]] = {}
        aliases: dict[str, str] = {}
        for loop in found:
            self._join(loop, instead, aliases)
        joined = self._rewritten(instead, aliases)
        return None if self._is_lost(joined, found, outputs) else joined

    def _is_lost(
        self, joined: Live, found: Sequence[Sequence[_Turn]], outputs: Collection[str]
    ) -> bool:
        """Tell whether weights, or work besides that of the turns, would be needed no more."""
        needed = set(outputs)
        for _, proto in reversed(joined):
            if not needed.isdisjoint(proto.output):
                needed.update(reads(proto))
        within = {id(proto) for loop in found for turn in loop for proto in turn.nodes}
        for _, proto in self.live:
            unneeded = needed.isdisjoint(proto.output) and id(proto) not in within
            if unneeded and proto.op_type in _HEAVY:
                return True
        weights = {
            name
            for _, proto in self.live
            for name in proto.input
            if name in self.tensors and self._may_be_weight(self.tensors[name])
        }
        given = {name for _, proto in joined for name in proto.output}
        return not weights <= needed or not set(outputs) <= given | self.tensors.keys()

    @staticmethod
    def _may_be_weight(tensor: Tensor) -> bool:
        """Tell whether a tensor is trained, or of so many integers that it may stand for one."""
        return tensor.trainable or (tensor.dtype not in _FLOATS and tensor.size > _FEW)

    # ---- What is chosen -------------------------------------------------------------------------

    def _chosen(self) -> dict[str, _Chosen]:
        """Return what is known of choices, by the names of tensors."""
        known: dict[str, _Chosen] = {}
        for _, proto in self.live:
            op = proto.op_type
            if op in _CHOOSING and len(proto.output) > _CHOOSING[op][0]:
                known[proto.output[_CHOOSING[op][0]]] = _Chosen("number", proto)
                continue
            read = [known[name] for name in proto.input if name in known]
            if len(read) != 1 or not proto.output:
                continue
            (before,) = read
            first = bool(proto.input) and proto.input[0] in known
            made = None
            if op in _SAME and first:
                made = before
            elif op == "Equal" and before.kind == "number":
                other = next(name for name in proto.input if name not in known)
                made = _Chosen(
                    "one" if self._is_single(other) else "each", before.by, proto.output[0]
                )
            elif op == "OneHot" and first and before.kind == "number":
                made = _Chosen("each", before.by)
            elif (
                op == "Gather"
                and first
                and before.kind == "each"
                and self._is_single(proto.input[1])
            ):
                made = _Chosen("one", before.by, proto.output[0])
            elif op in ("ReduceSum", "ReduceMax") and first and before.kind == "one":
                made = _Chosen("one", before.by, before.origin, joined=True)
            elif op == "Greater" and first and before.joined and self._is_nought(proto.input[1]):
                made = before
            if made is not None:
                known[proto.output[0]] = made
        return known

    def _is_single(self, name: str) -> bool:
        """Tell whether a tensor is one number, as that of an expert, as far as the graph tells."""
        if name in self.singles:
            return True
        giver = self.givers.get(name)
        if giver is None:
            return False
        if giver.op_type == "Constant":
            held = next((each for each in giver.attribute), None)
            of_one = held is not None and held.name == "value" and prod(held.t.dims) == 1
            return of_one or (held is not None and held.name == "value_int")
        # One of the experts that have rows, by its place among them.
        if giver.op_type in ("Gather", "Squeeze", "Cast", "Identity", "Reshape"):
            return giver.op_type != "Gather" or self._is_single(giver.input[1])
        return False

    def _is_nought(self, name: str) -> bool:
        numbers = self._numbers(name)
        return numbers is not None and numbers.size == 1 and not numbers.any()

    # ---- The turns ------------------------------------------------------------------------------

    def _turns(self) -> list[_Turn]:
        known = self._chosen()
        turns: dict[str, _Turn] = {}
        owners: dict[str, _Turn] = {}
        shared: set[str] = set()
        for _, proto in self.live:
            if proto.op_type == "NonZero" and proto.input[0] in known:
                chosen = known[proto.input[0]]
                if chosen.kind == "one":
                    turn = turns.setdefault(chosen.origin, _Turn(chosen))
                    turn.roots.append(proto)
                    self._own(turn, proto, owners)
                    continue
            within = {owners[name].chosen.origin for name in proto.input if name in owners}
            if not within:
                continue
            turn = turns[within.pop()]
            if within:
                shared |= {turn.chosen.origin, *within}
            elif proto.op_type in SCATTERS and proto.input[0] not in owners:
                turn.ends.append(proto)
            else:
                self._own(turn, proto, owners)
        return [turn for origin, turn in turns.items() if turn.ends and origin not in shared]

    @staticmethod
    def _own(turn: _Turn, proto: Any, owners: dict[str, _Turn]) -> None:
        for place, name in enumerate(proto.output):
            owners[name] = turn
            turn.places[name] = (len(turn.nodes), place)
        turn.nodes.append(proto)

    def _form(self, turn: _Turn) -> Any:
        """Return what two turns have in common that differ in weights alone."""
        found = []
        for proto in (*turn.nodes, *turn.ends):
            read: list[Any] = []
            for place, name in enumerate(proto.input):
                weight = self._weight(name) if name not in turn.places else None
                own = weight is not None and place == 1 and _is_product(proto)
                read.append(turn.places.get(name) or (own and self._dims(name)))
            attributes = sorted(each.SerializeToString() for each in proto.attribute)
            found.append((proto.op_type, proto.domain, tuple(read), tuple(attributes)))
        return (id(turn.chosen.by), turn.chosen.joined, tuple(found))

    def _dims(self, name: str) -> Shape:
        """Return the dimensions of a weight; those of one expert, where it holds all."""
        weight = self._weight(name)
        return self.held[weight or name][-2:]

    def _weight(self, name: str) -> str | None:
        """Return the tensor of the file that a name is, or a part of, as another view of it."""
        return self._source(name)[0]

    def _is_whole(self, name: str, rank: int) -> bool:
        """Tell whether a name is a whole weight of so many axes, or an element of a stack."""
        weight, parts = self._source(name)
        return weight is not None and parts < 2 and len(self.held[weight]) == rank + parts

    def _source(self, name: str) -> tuple[str | None, int]:
        """Return the weight that a name is a view of, and how often a part was taken of it."""
        parts = 0
        while name not in self.held:
            giver = self.givers.get(name)
            if giver is None or giver.domain or giver.op_type not in _VIEWS | _PARTS:
                return None, 0
            if giver.op_type in _PARTS:
                parts += 1 if self._is_element(giver) else 2
            name = giver.input[0]
        return name, parts

    def _is_element(self, proto: Any) -> bool:
        """Tell whether a part is one element of the first axis, or may be a slice of one."""
        if proto.op_type == "Gather":
            return not _integer(proto, "axis", 0) and self._is_single(proto.input[1])
        said = [self._numbers(name) for name in proto.input[1:4]]
        if len(said) < 3 or any(each is None or each.size != 1 for each in said):
            return False
        start, end, axis = (int(each.reshape(-1)[0]) for each in said if each is not None)
        return axis == 0 and end - start == 1

    def _numbers(self, name: str) -> Any:
        """Return the numbers of a tensor that the file holds, or of a constant; None if unknown."""
        if name in self.tensors:
            return self.tensors[name].numbers()
        giver = self.givers.get(name)
        if giver is None or giver.op_type != "Constant":
            return None
        held = next((each.t for each in giver.attribute if each.name == "value"), None)
        return None if held is None else Tensor(tuple(held.dims), proto=held).numbers()

    def _products(self, loop: Sequence[_Turn]) -> bool:
        """Tell whether turns have weights of their own, and those in products alone."""
        count = 0
        for alike in zip(*(turn.nodes for turn in loop), strict=True):
            for place, names in enumerate(zip(*(proto.input for proto in alike), strict=True)):
                held = {self._weight(name) for name in names if name not in loop[0].places}
                if len(set(names)) == 1 or held <= {None}:
                    continue
                product = _is_product(alike[0]) and place in (1, 2)
                if not product and self._product_before(loop[0], alike[0], place) is None:
                    return False
                rank = 2 if product and place == 1 else 1
                if not all(self._is_whole(name, rank) for name in names):
                    return False
                count += product
        return count > 0

    # ---- One product ----------------------------------------------------------------------------

    def _join(
        self, loop: Sequence[_Turn], instead: dict[int, list[Any]], aliases: dict[str, str]
    ) -> None:
        """Note what stands in place of each node of a loop, and which names others stand for."""
        helper = importlib.import_module("onnx.helper")
        first, *others = loop
        nodes = list(zip(*(turn.nodes for turn in loop), strict=True))
        biases = self._biases(first, nodes)

        def put(proto: Any, kind: str, read: Sequence[str], **attributes: int) -> None:
            made = helper.make_node(
                kind, read, proto.output, proto.name, domain=DOMAIN, **attributes
            )
            made.metadata_props.extend(proto.metadata_props)
            instead[id(proto)] = [made]

        by = first.chosen.by
        for position, alike in enumerate(nodes):
            proto = alike[0]
            if proto in first.roots:
                place, axis = _CHOOSING[by.op_type]
                read = [proto.input[0], by.input[0], by.output[place]]
                axis = _integer(by, "axis", axis)
                attributes = {"joined": int(first.chosen.joined), "there": self.experts[id(by)]}
                put(proto, "Picked", read, turns=len(loop), axis=axis, **attributes)
            elif _is_product(proto) and self._differ(alike, 1):
                weights = self._all(alike, 1)
                added = self._all(alike, 2) if len(proto.input) > 2 else []
                if position in biases:
                    at, place = biases[position]
                    added = self._all(nodes[at], place)
                    instead[id(nodes[at][0])] = []
                    aliases[nodes[at][0].output[0]] = proto.output[0]
                read = [proto.input[0], *weights, *added]
                put(proto, "Experts", read, weights=len(weights))
        for alike in zip(*(turn.ends for turn in loop), strict=True):
            put(alike[0], "PutBack", [alike[0].input[0], alike[0].input[2]])
            chain = {each.output[0] for each in alike}
            for end in alike[1:]:
                self._leave_out(end, chain, instead, aliases)
            self._without_zeros(alike[0], instead, aliases)
        for turn in others:
            instead.update({id(proto): [] for proto in (*turn.nodes, *turn.ends)})
        self._without_hits(first, instead)

    def _biases(self, turn: _Turn, nodes: Sequence[Sequence[Any]]) -> dict[int, tuple[int, int]]:
        """Return for products whose biases nodes behind them add, these nodes and the place."""
        found = {}
        for position, alike in enumerate(nodes):
            for place in range(len(alike[0].input)):
                given = self._product_before(turn, alike[0], place)
                own = self._differ(alike, place) and self._weight(alike[0].input[place])
                if given is not None and own:
                    found[given] = (position, place)
        return found

    @staticmethod
    def _product_before(turn: _Turn, proto: Any, place: int) -> int | None:
        """Return which product of the same turn an Add adds this input to; None if to none."""
        if proto.op_type != "Add" or proto.input[place] in turn.places:
            return None
        position, _ = turn.places.get(proto.input[1 - place], (None, 0))
        if position is None or not _is_product(turn.nodes[position]):
            return None
        return position

    @staticmethod
    def _differ(alike: Sequence[Any], place: int) -> bool:
        return len(alike[0].input) > place and len({each.input[place] for each in alike}) > 1

    def _all(self, alike: Sequence[Any], place: int) -> list[str]:
        """Return the weights of all turns as the file holds them: one where it holds all in one."""
        names = [str(self._weight(proto.input[place])) for proto in alike]
        return list(dict.fromkeys(names))

    def _leave_out(
        self, end: Any, chain: set[str], instead: dict[int, list[Any]], aliases: dict[str, str]
    ) -> None:
        """Have a write of a later turn stand for what it writes into."""
        given, base = end.output[0], end.input[0]
        aliases[given] = base
        if base in chain:
            return
        for proto, other in self.sums[given]:  # it writes into zeros, which are added to the rest
            instead[id(proto)] = []
            aliases[proto.output[0]] = other

    def _without_zeros(
        self, end: Any, instead: dict[int, list[Any]], aliases: dict[str, str]
    ) -> None:
        """Leave out that the first write is added to zeros as large as what it writes into."""
        given = end.output[0]
        for proto, other in self.sums[given]:
            if proto.output[0] not in aliases and self._is_zeros(other):
                instead[id(proto)] = []
                aliases[proto.output[0]] = given

    def _is_zeros(self, name: str) -> bool:
        """Tell whether a tensor is of zeros alone, more than one."""
        giver = self.givers.get(name)
        if giver is not None and giver.op_type == "ConstantOfShape":
            return True
        if name in self.tensors and self.tensors[name].trainable:
            return False
        numbers = self._numbers(name)
        return numbers is not None and numbers.size > 1 and not numbers.any()

    def _without_hits(self, turn: _Turn, instead: dict[int, list[Any]]) -> None:
        """Let the first turn be of expert 0, whichever is the first that has rows."""
        giver = self.givers.get(turn.chosen.origin)
        if giver is None or giver.op_type != "Gather" or giver.input[1] in self.singles:
            return
        helper = importlib.import_module("onnx.helper")
        number = f"{giver.output[0]}/expert"
        instead[id(giver)] = [
            helper.make_node("Constant", [], [number], value_int=0),
            helper.make_node(
                "Gather", [giver.input[0], number], giver.output, giver.name,
                axis=_integer(giver, "axis", 0),
            ),
        ]  # fmt: skip

    def _rewritten(self, instead: Mapping[int, list[Any]], aliases: Mapping[str, str]) -> Live:
        """Return the nodes with those in place of others, each name what it stands for."""

        def stands_for(name: str) -> str:
            while name in aliases:
                name = aliases[name]
            return name

        result: Live = []
        for index, proto in self.live:
            for made in instead.get(id(proto), [proto]):
                if any(name in aliases for name in made.input):
                    copied = type(made)()
                    copied.CopyFrom(made)
                    copied.input[:] = [stands_for(name) for name in made.input]
                    made = copied
                result.append((index, made))
        return result


def join_turns(live: Live, tensors: Mapping[str, Tensor], outputs: Collection[str]) -> Live | None:
    """Return nodes with loops over experts made one product; None where there are none.

    `tensors` are those that the file holds, by name, and `outputs` the names that are needed.
    """
    operators = {proto.op_type for _, proto in live}
    if "NonZero" not in operators or operators.isdisjoint(_CHOOSING):
        return None
    return _Mixtures(live, tensors).joined(outputs)


# ---- What they are -------------------------------------------------------------------------------


@operator("Picked", domain=DOMAIN)
def _picked(node: Node) -> Result:
    """Return the places of the rows of all turns, as many as even choices give."""
    scores, chosen = node.shape(1), node.tensor(2).size
    experts, turns = scores[node.integer("axis", -1)], node.integer("turns", 1)
    choices = chosen * experts // node.tensor(1).size  # of each token
    asked = node.tensor(0).size * (choices if node.integer("joined", 0) else 1)
    if asked % chosen:
        raise OperatorError(f"it asks {asked} of {chosen} choices which expert they are of")
    # A mask that is repeated for each feature finds single elements.
    count, rest = divmod(asked * turns, experts)
    builder = node.builder
    if rest or not count:
        raise OperatorError(f"{turns} of {experts} experts have no whole number of rows")
    there = node.integer("there", turns)
    if there < experts:
        builder.note(
            f"{node.name}: the file has {there} of the {experts} experts that are chosen from, "
            "those that were chosen as it was exported"
        )
    rank = max(len(node.shape()), 1)
    row = builder.reshape(f"{node.name}_row", node.value(), (node.tensor(0).size,))
    made = builder.unsqueeze(node.name, builder.rearrange(node.name, row, (count,)), [0])
    return Tensor((rank, count), INT64, builder.expand(node.name, made, (rank, count)))


@operator("Experts", domain=DOMAIN)
def _experts(node: Node) -> Result:
    """Return rows times the matrices of their experts."""
    count, features, matrix = node.integer("weights", 1), node.shape()[-1], node.shape(1)[-2:]
    if features not in matrix:
        raise OperatorError(f"rows of {features} times a matrix of {format_shape(matrix)}")
    outputs = prod(matrix) // features
    weights = [node.weight(index) for index in range(1, len(node.inputs))]
    return node.builder.experts(
        node.name, node.value(), weights[:count], weights[count:], k=outputs
    )


@operator("PutBack", domain=DOMAIN)
def _put_back(node: Node) -> Result:
    """Return what rows add up to where they belong."""
    return node.builder.put_back(node.name, node.value(0), node.value(1), 0)
