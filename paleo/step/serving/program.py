"""What a serving program computes for a net: products of all tokens, attention request by request.

A step of a server computes tokens of many requests together: parts of prompts, and one token of
each request that is being answered. All tokens are rows of the same products; attention and scans
go request by request; the scores of words are of those tokens alone that are followed by a new one.
So a net is read at one position a sample, and its layers are told apart:

- `rows`: what is computed of every token, a function of how many there are;
- `mixers`: attention and scans, functions of a group of requests alike;
- `scores`: the last product and what follows, of the tokens that are sampled;
- `messages`: what devices exchange, in bytes of a token.

Kernels are joined as serving programs have them: products that read the same are one, a sum and the
normalization that reads it are one kernel, rotations of queries and keys another, and experts one
operator.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from paleo.core.errors import SettingError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.operations import Kind, Operation, Pass, Stream
from paleo.core.quantity import Quantity
from paleo.core.tensor import Shape, Shapes, num_elements
from paleo.net.graph import Graph, Node, build
from paleo.net.layers import LAYERS
from paleo.net.scaled import messages
from paleo.net.spec import NetSpec
from paleo.step.stages import units

#: Bytes of an element of activations.
HALF = 2
#: The samples of the graph that is read: not one, which would be repeated like a dimension of 1.
_SAMPLES = 2


class Product(NamedTuple):
    """A product of rows with weights: K features, N columns on one device."""

    features: int
    columns: int
    name: str
    #: Whether it is never quantized: routers, and the scores of words.
    is_wide: bool = False
    #: Whether attention reads it or is read by it, which some checkpoints leave as it was.
    is_of_attention: bool = False


class Latent(NamedTuple):
    """Keys and values that are made of a latent (DeepSeek-V2, arXiv:2405.04434, section 2.1).

    `rank` numbers of it and `shared` rotated ones are kept of a position, on every device; `made`
    columns are products with the latent: `plain` features of a head's key, and its values.
    """

    rank: int
    shared: int
    plain: int
    values: int
    made: int


class Mixer(NamedTuple):
    """A layer that takes positions together: its node, and its latent if keys come of one.

    `span` is how many keys there are of another sequence, such as an encoder's; 0: they are its
    own.
    """

    node: Node
    latent: Latent | None = None
    span: int = 0

    @property
    def is_attention(self) -> bool:
        return self.node.layer.is_attention

    @property
    def chosen(self) -> int:
        """Keys that a query sees where the best are chosen, and those that are; 0: none are."""
        layer = self.node.layer
        return int(getattr(layer, "best", None) or getattr(layer, "k", None) or 0)

    @property
    def cached(self) -> int:
        """Numbers that a device keeps of each position."""
        if self.latent:
            return self.latent.rank + self.latent.shared
        return self.node.layer.cached(self.node.inputs)

    @property
    def window(self) -> int:
        """The most positions that are kept of a request; 0: all."""
        layer = self.node.layer
        return int(getattr(layer, "window", None) or getattr(layer, "chunk", None) or 0)

    def shapes(self, requests: Quantity, positions: Quantity) -> Shapes:
        """Return its inputs for so many requests with so many new positions each."""
        is_attention = self.is_attention
        return tuple(
            (requests, *shape[1:-2], positions, shape[-1])
            if is_attention
            else (requests, positions, *shape[2:])
            for shape in self.node.inputs
        )


class Experts(NamedTuple):
    """Experts behind a router: how many there are in all, and the choices of a token.

    `inner` columns are those of all devices that share an expert.
    """

    experts: int
    chosen: int
    hidden: int
    inner: int
    is_gated: bool


class Message(NamedTuple):
    """What the devices that share tensors exchange, in bytes of a token."""

    num_bytes: Quantity
    operation: str
    #: Whether it is of experts' sums, which experts' devices exchange.
    is_of_experts: bool = False


#: What is computed of every token: named as tables name it.
class Row(NamedTuple):
    """Operations of so many tokens."""

    part: str
    of: Product | Experts | Streams | Callable[[Quantity], tuple[Operation, ...]]


@dataclass(frozen=True)
class Program:
    """What one device computes of a net, each with how often; see the module."""

    name: str
    rows: tuple[tuple[Row, int], ...]
    mixers: tuple[tuple[Mixer, int], ...]
    scores: tuple[tuple[Row, int], ...]
    messages: tuple[tuple[Message, int], ...]
    #: Bytes of parameters that are no product's: embeddings, norms, biases.
    other_weights: int
    num_params: int
    hidden: int
    words: int
    #: Kernels of one pass, as eager code hands them over.
    kernels: int
    #: What is computed once for a request: an encoder of images, of sound or of its prompt.
    fixed: tuple[tuple[_Own, int], ...] = ()
    #: Positions that images have before a prompt.
    prefix: int = 0
    #: Tokens of the prompt that an encoder reads in the place of these layers; 0: they read it.
    encoded: int = 0

    @functools.cached_property
    def products(self) -> list[tuple[Product, int]]:
        """All products with weights, of tokens and of scores, each with how often."""
        both = (*self.rows, *self.scores)
        return [(row.of, count) for row, count in both if isinstance(row.of, Product)]

    @functools.cached_property
    def experts(self) -> list[tuple[Experts, int]]:
        """All layers of experts, each with how often."""
        return [(row.of, count) for row, count in self.rows if isinstance(row.of, Experts)]


class _Own(NamedTuple):
    """A layer's own operations, of tokens as its samples: a value, so that equal ones are one."""

    layer: Any
    inputs: Shapes

    def __call__(self, tokens: Quantity) -> tuple[Operation, ...]:
        inputs = tuple((tokens, *shape[1:]) for shape in self.inputs)
        found: tuple[Operation, ...] = self.layer.operations(Pass.FORWARD, inputs, HALF)
        return found


class Streams(NamedTuple):
    """One kernel that passes over memory: bytes of each token."""

    label: str
    kind: Kind
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    @property
    def adds(self) -> bool:
        """Whether it is a normalization that adds what came before, perhaps of other devices."""
        return self.label == "norm" and len(self.reads) > 1

    def __call__(self, tokens: Quantity) -> tuple[Operation, ...]:
        reads = tuple(tokens * size for size in self.reads)
        writes = tuple(tokens * size for size in self.writes)
        return (Stream(self.kind, reads, writes, label=self.label),)


#: The part of a step that a layer belongs to, in tables.
PRODUCTS, POINTWISE, ATTENTION, EXPERTS = "products", "norms and sums", "attention", "experts"
EMBEDDING, SCORES = "embedding", "scores"


def _is(node: Node, what: str) -> bool:
    return node.layer.serves_as == what


class _Reader:
    """Reads the nodes of a graph that follow from its `tokens`, one by one."""

    def __init__(self, graph: Graph, like: Sequence[int] | None, tokens: set[int]) -> None:
        self.graph = graph
        self.tokens = tokens
        self.times = _times(graph, like)
        self.nodes = graph.nodes
        self.children: list[list[Node]] = [[] for _ in self.nodes]
        for node in self.nodes:
            for parent in dict.fromkeys(node.parents):
                self.children[parent].append(node)
        self.done: set[int] = set()
        self.squared: set[int] = set()
        self.rows: dict[Any, int] = {}
        self.mixers: dict[Any, tuple[Mixer, int]] = {}
        self.messages: dict[Message, int] = {}
        self.scores: dict[Any, int] = {}
        self.kernels = 0
        self.head = self._head()
        #: Positions of a sample: images have some before the token.
        self.positions = next(
            (
                int(node.inputs[0][-2])
                for node in self.nodes
                if node.index in tokens and node.layer.is_attention
            ),
            1,
        )
        #: Blocks by name that an attention is in.
        self.attentions = {
            node.name.rpartition("/")[0] for node in self.nodes if node.layer.is_attention
        }

    def _head(self) -> int:
        """Return the index of the product that scores words: the last one with weights."""
        products = (i for i in self.tokens if _is(self.nodes[i], "product"))
        return max(products, default=-1)

    def _one(self, shape: Shape) -> Shape:
        """Return the shape of one position of a tensor."""
        if self.positions == 1:
            return shape
        return (shape[0], *(1 if size == self.positions else size for size in shape[1:]))

    def _own(self, node: Node) -> _Own:
        return _Own(node.layer, tuple(map(self._one, node.inputs)))

    def _size(self, shape: Shape) -> int:
        """Return the bytes of a token of a tensor."""
        return int(HALF * num_elements((1, *self._one(shape)[1:])))

    def read(self) -> None:
        """Read all nodes in order."""
        for node in self.nodes:
            if node.index in self.done or node.index not in self.tokens:
                continue
            self.done.add(node.index)
            self._read(node)

    def _add(self, part: str, of: Any, node: Node, *, after: bool = False) -> None:
        into = self.scores if after else self.rows
        row, times = Row(part, of), self.times[node.index]
        into[row] = into.get(row, 0) + times
        self.kernels += times

    def _read(self, node: Node) -> None:
        layer = node.layer
        is_after = node.index >= self.head
        if layer.is_input or layer.is_training_only:
            return
        if layer.is_exchange:
            self._exchange(node)
        elif _is(node, "product"):
            self._product(node, is_after)
        elif layer.picks:
            self._choices(node)
        elif _is(node, "match") and (attention := self._in_steps(node)):
            self._mix(attention)
        elif (
            _is(node, "select")
            or layer.is_attention
            or layer.state(node.inputs)
            or self._is_causal(node)
        ):
            self._mix(node)
        elif layer.only_moves or layer.is_view or layer.takes_part or layer.joins:
            return  # where kernels read and write in any order, nothing moves
        elif layer.looks_up:
            self._add(EMBEDDING, self._own(node), node)
        elif _is(node, "rotation"):
            self._rotations(node)
        elif _is(node, "norm"):
            self._norm(node, is_after)
        elif self._folds(node):
            return
        else:
            self._add(POINTWISE, self._own(node), node, after=is_after)

    def _is_causal(self, node: Node) -> bool:
        return node.layer.is_convolution and len(node.inputs[0]) == 3

    def _readers(self, node: Node) -> list[Node]:
        """Return who reads a node, behind exchanges that send nothing forward."""
        found = []
        for child in self.children[node.index]:
            is_silent = child.layer.is_exchange and not messages(self.graph, child, Pass.FORWARD)
            found += self._readers(child) if is_silent else [child]
        return found

    def _folds(self, node: Node) -> bool:
        """Tell whether a sum is computed by the normalization that reads it."""
        is_sum = _is(node, "sum") and len(node.parents) == 2
        return is_sum and any(_is(child, "norm") for child in self._readers(node))

    def _norm(self, node: Node, is_after: bool) -> None:
        size, before = self._size(node.output), self._source(node.parents[0])
        is_folded = self._folds(before)
        sizes = (size, size) if is_folded else (size,)
        kind = node.layer.operations(Pass.FORWARD, node.inputs, HALF)[0].kind
        self._add(POINTWISE, Streams("norm", kind, sizes, sizes), node, after=is_after)

    def _exchange(self, node: Node) -> None:
        if getattr(node.layer, "squares", 0):  # those of queries and of keys go together
            start = self._source(self.nodes[node.parents[0]].parents[0]).index
            if start in self.squared:
                return
            self.squared.add(start)
        for each in messages(self.graph, node, Pass.FORWARD):
            is_of_experts = self._comes_of_experts(node)
            num_bytes = each.num_bytes / (_SAMPLES * self.positions)
            message = Message(num_bytes, each.operation, is_of_experts)
            self.messages[message] = self.messages.get(message, 0) + self.times[node.index]

    def _comes_of_experts(self, node: Node) -> bool:
        """Tell whether what is summed is of experts, perhaps with a layer beside them."""
        first = self.nodes[node.parents[0]]
        before = first.parents if _is(first, "sum") else [first.index]
        return any(_is(self.nodes[i], "combine") for i in before)

    def _source(self, index: int) -> Node:
        """Return who made a tensor, behind exchanges that send nothing forward."""
        node = self.nodes[index]
        while node.layer.is_exchange and not messages(self.graph, node, Pass.FORWARD):
            node = self.nodes[node.parents[0]]
        return node

    def _is_router(self, node: Node) -> bool:
        """Tell whether a product scores experts: what picks reads it, through functions."""
        return any(
            child.layer.picks or (self._is_function(child) and self._is_router(child))
            for child in self._readers(node)
        )

    @staticmethod
    def _is_function(node: Node) -> bool:
        return node.layer.is_pointwise or _is(node, "score")

    def _product(self, node: Node, is_after: bool) -> None:
        features = int(node.inputs[0][-1])
        if is_after and node.index == self.head:
            scores = Product(features, int(node.output[-1]), "scores", True)
            self._add(SCORES, scores, node, after=True)
            return
        if self._is_router(node):
            self._add(EXPERTS, Product(features, int(node.output[-1]), "router", True), node)
            return
        # Products that read the same are one.
        start = self._source(node.parents[0])
        joined = [
            other
            for other in self._readers(start)
            if _is(other, "product")
            and other.index not in self.done - {node.index}
            and other.index != self.head
            and not self._is_router(other)
        ]
        columns = sum(int(other.output[-1]) for other in joined)
        self.done.update(other.index for other in joined)
        self._add(PRODUCTS, self._named(node, features, columns), node)

    def _named(self, node: Node, features: int, columns: int) -> Product:
        block, _, name = node.name.rpartition("/")
        return Product(features, columns, name, is_of_attention=block in self.attentions)

    def _rotations(self, node: Node) -> None:
        """Read the rotations of one attention's queries and keys, which are one kernel."""
        both = {node.index: node}
        for reader in self._attentions(node):
            for parent in reader.parents[:2]:
                for each in self._rotaries(parent):
                    both[each.index] = each
        self.done.update(both)
        sizes = tuple(self._size(each.output) for each in both.values())
        self._add(POINTWISE, Streams("rotary", Kind.ELEMENTWISE, sizes, sizes), node)

    def _attentions(self, node: Node) -> list[Node]:
        found = []
        for child in self._readers(node):
            if child.layer.is_attention:
                found.append(child)
            elif self._moves(child):
                found += self._attentions(child)
        return found

    def _rotaries(self, index: int) -> list[Node]:
        node = self._source(index)
        if _is(node, "rotation"):
            return [node]
        if self._moves(node):
            return [each for parent in node.parents for each in self._rotaries(parent)]
        return []

    @staticmethod
    def _moves(node: Node) -> bool:
        layer = node.layer
        return bool(layer.only_moves or layer.is_view or layer.takes_part or layer.joins)

    def _made_by(self, index: int) -> list[Node]:
        """Return the layers that made a tensor, behind those that move."""
        node = self._source(index)
        if self._moves(node):
            return [each for parent in node.parents for each in self._made_by(parent)]
        return [node]

    def _mix(self, node: Node) -> None:
        latent, span = None, 0
        if node.layer.is_attention:
            if self._source(node.parents[1]).index in self.tokens:
                latent = self._latent(node)
            else:  # an encoder's
                span = int(node.inputs[1][-2])
        mixer = Mixer(node, latent, span)
        key = (node.layer, node.inputs, latent, span)
        _, count = self.mixers.get(key, (mixer, 0))
        times = self.times[node.index]
        self.mixers[key] = (mixer, count + times)
        self.kernels += 2 * times

    def _in_steps(self, node: Node) -> Node | None:
        """Return attention that a net has as two products around a softmax; None if it has none.

        Between them scores may be scaled and masked; they are read by nobody else.
        """
        between, reader = [node], node
        is_scored = False
        while not (_is(reader, "match") and is_scored):
            readers = self._readers(reader)
            if len(readers) != 1:
                return None
            (reader,) = readers
            is_scored |= _is(reader, "score")
            between.append(reader)
            is_step = (
                self._is_function(reader) or _is(reader, "sum") or reader.layer.is_training_only
            )
            if not (is_step or _is(reader, "match")):
                return None
        queries, keys = node.inputs
        values = reader.inputs[1]
        if keys[-1] != queries[-1]:  # d x T, as the product reads them
            keys = (*keys[:-2], keys[-1], keys[-2])
        self.done.update(each.index for each in between)
        parents = (*node.parents, reader.parents[1])
        layer = LAYERS["Attention"](causal=True)
        return replace(
            node, layer=layer, parents=parents, inputs=(queries, keys, values), output=reader.output
        )

    def _latent(self, node: Node) -> Latent | None:
        """Return the latent that keys and values are made of, None if there is none."""
        keys, values = self._made_by(node.parents[1]), self._made_by(node.parents[2])
        shared = {each.index for each in values} & {each.index for each in keys}
        queries = {each.index for each in self._made_by(node.parents[0])}
        if len(shared) != 1 or shared & queries or len({each.index for each in keys}) < 2:
            return None
        made = self.nodes[shared.pop()]
        if not _is(made, "product"):
            return None
        rotated = next(each for each in keys if each.index != made.index)
        row = Row(PRODUCTS, self._named(made, int(made.inputs[0][-1]), int(made.output[-1])))
        # Its product is attention's own: in a step of decoding it is absorbed.
        self.rows[row] -= self.times[made.index]
        if not self.rows[row]:
            del self.rows[row]
        shared_size = int(rotated.output[-1])
        return Latent(
            int(made.inputs[0][-1]), shared_size, int(node.inputs[1][-1]) - shared_size,
            int(node.inputs[2][-1]), int(made.output[-1]),
        )  # fmt: skip

    def _choices(self, node: Node) -> None:
        """Read what picks experts, and the experts behind it."""
        self._add(EXPERTS, self._own(node), node)
        for dispatch in self._readers(node):
            if _is(dispatch, "dispatch"):
                self._experts(dispatch)

    def _experts(self, dispatch: Node) -> None:
        found: list[Node] = []
        waiting = [dispatch]
        while waiting:
            node = waiting.pop()
            self.done.add(node.index)
            found.append(node)
            if not _is(node, "combine"):
                waiting += self.children[node.index]
        of_experts = (each for each in found if _is(each, "experts"))
        first, *_, last = sorted(of_experts, key=lambda each: each.index)
        count, hidden = first.layer.num_experts_held, int(first.inputs[0][-1])
        inner = int(last.inputs[0][-1])
        parts = int(first.output[-1]) // inner  # gate and up are one product
        chosen = int(dispatch.output[2])
        self._add(EXPERTS, Experts(count, chosen, hidden, inner, parts > 1), dispatch)


def _times(graph: Graph, like: Sequence[int] | None) -> list[int]:
    """Return how many nodes of a whole net each node stands for, which units of it `like` says."""
    found = [1] * len(graph.nodes)
    if like is not None:
        counts = Counter(like)
        for number, unit in enumerate(units(graph)):
            for node in unit:
                found[node] = counts[number]
    return found


def _following(graph: Graph, starts: set[int]) -> set[int]:
    """Return the nodes that follow from these, with them."""
    found = set(starts)
    for node in graph.nodes:
        if found.intersection(node.parents):
            found.add(node.index)
    return found


def read_program(net: NetSpec, like: Sequence[int] | None = None) -> Program:
    """Return what a serving program computes for a net whose samples have one position.

    It is that of one device, if the net is divided; of a shortened net `like` says which of its
    units each unit of the whole one is as (paleo.step.shortened). What does not follow from the
    last tokens that the net reads, an encoder, has as many positions as the net says. Raises
    NetSpecError for a net that does not fit, SettingError for one that does not end in scores of
    words.
    """
    graph = build(net, _SAMPLES, "bf16")
    inputs = [node.index for node in graph.nodes if node.layer.is_input]
    looked_up = {node.parents[0] for node in graph.nodes if node.layer.looks_up}
    text = max((i for i in inputs if i in looked_up), default=max(inputs, default=-1))
    tokens = _following(graph, {text})
    before = _following(graph, {*inputs} - {text}) - tokens
    reader = _Reader(graph, like, tokens)
    reader.read()
    if reader.head < 0:
        raise SettingError(f"{net.name}: it has no product with weights, so no scores of words")
    other, params = 0, 0
    fixed: dict[_Own, int] = {}
    for node, times in zip(graph.nodes, reader.times, strict=True):
        params += node.num_params * times
        if node.index in before:
            own = _Own(node.layer, node.inputs)
            fixed[own] = fixed.get(own, 0) + times
        if node.index in before or node.layer.serves_as not in ("product", "experts"):
            other += HALF * node.num_params * times
    head = graph.nodes[reader.head]
    spans = [mixer.span for mixer, _ in reader.mixers.values()]
    return Program(
        net.name,
        tuple(reader.rows.items()),
        tuple(reader.mixers.values()),
        tuple(reader.scores.items()),
        tuple(reader.messages.items()),
        other,
        params,
        int(head.inputs[0][-1]),
        int(head.output[-1]),
        reader.kernels,
        tuple(fixed.items()),
        reader.positions - 1,
        max(spans) if before & looked_up else 0,
    )
