"""Loops over the experts of a mixture, in a graph that PyTorch exports, made one product.

Each turn of such a loop picks the rows that go to one expert, by a mask or as a part of sorted
rows, has that expert compute them, and puts them back. How many there are depends on data: they
have sizes that are symbols. Turns that differ in nothing but their weights become the first of
them, with the rows of all and with products that are grouped. A router's choices are taken to be
spread evenly over what it chooses from, which says how many rows that is.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from paleo.net.importers.pytorch.names import nodes_of, operator_of, outputs_of, tensors_in

torch: Any = importlib.import_module("torch")
_pytree: Any = importlib.import_module("torch.utils._pytree")

_LIBRARY: Any = torch.library.Library("paleo", "FRAGMENT")
_LIBRARY.define("experts(Tensor rows, Tensor[] weights, Tensor[] biases) -> Tensor")

#: What a node's elements are on average follows from these as it is.
_SAME = frozenset(
    ("permute", "transpose", "t", "view", "reshape", "flatten", "unsqueeze", "squeeze", "expand",
     "to", "_to_copy", "float", "int", "long", "bool", "clone", "contiguous", "detach", "alias",
     "select", "slice", "unbind", "item", "_local_scalar_dense", "getitem", "type_as")
)  # fmt: skip
#: Products with a weight and maybe a bias, and the places of rows, weight and bias.
_PRODUCTS: Mapping[str, tuple[int, int, int | None]] = {
    "linear": (0, 1, 2), "mm": (0, 1, None), "matmul": (0, 1, None), "addmm": (1, 2, 0),
}  # fmt: skip
#: Operators that put rows back, into their first argument.
_WRITES = frozenset(("index_add", "index_put", "_index_put_impl", "index_copy", "scatter_add"))


@dataclass
class _Turn:
    """A turn of a loop: what says how many rows it has, and the nodes with as many."""

    root: Any
    #: How many rows, if choices are even, and what was chosen.
    rows: Fraction
    source: Any
    nodes: list[Any] = field(default_factory=list)
    #: The nodes that put its rows back.
    ends: list[Any] = field(default_factory=list)
    symbols: set[Any] = field(default_factory=set)


def _name(node: Any) -> str:
    return operator_of(node)[0].rstrip("_") if node.op == "call_function" else ""


def _symbols(node: Any) -> set[Any]:
    """Return the symbols in the shapes of what a node gives, or in the number that it is."""
    sizes = []
    for output in outputs_of(node):
        sizes += list(getattr(output, "shape", [output]))
    expressions = [size.node.expr for size in sizes if hasattr(size, "node")]
    return {symbol for each in expressions for symbol in getattr(each, "free_symbols", ())}


def _is_tensor(node: Any) -> bool:
    return any(hasattr(output, "shape") for output in outputs_of(node))


def _size(node: Any, axis: int) -> int:
    return int(node.meta["val"].shape[axis])


# ---- How even choices are ------------------------------------------------------------------------


def _choices(node: Any) -> tuple[int, Any] | None:
    """Return of how many a node's elements are choices, and the node that chose; else None."""
    name = _name(node)
    if name == "getitem":
        inner, place = node.args
        name = _name(inner)
        if name in ("topk", "max", "min", "sort") and place == 1:
            at = 2 if name == "topk" else 1
            axis = inner.args[at] if len(inner.args) > at else -1
            return _size(inner.args[0], axis), inner
        return _choices(inner.args[0]) if name in ("sort", *_SAME) else None
    if name == "argmax":
        return (_size(node.args[0], node.args[1]), node) if len(node.args) > 1 else None
    return _choices(node.args[0]) if name in _SAME and node.args else None


def _mean(node: Any) -> tuple[Fraction, Any] | None:
    """Return what a node's elements are on average and the node that chose; None if unknown."""
    name = _name(node)
    if name == "eq" and not hasattr(node.args[1], "op"):
        found = _choices(node.args[0])
        return found and (Fraction(1, found[0]), found[1])
    if name in ("one_hot", "bincount", "histc"):
        found = _choices(node.args[0])
        number = node.args[1] if name != "bincount" else (*node.args[1:], *[0, 0])[1]
        if found is None or type(number) is not int or number < found[0]:
            return None
        rows = 1 if name == "one_hot" else node.args[0].meta["val"].numel()
        return Fraction(rows, found[0]), found[1]
    if name == "scatter" and len(node.args) == 4 and node.args[3] == 1:
        base, axis, index, _ = node.args
        found = _choices(index)
        if found is None or found[0] != _size(base, axis):
            return None
        if not _name(base).startswith(("new_zeros", "zeros")):
            return None
        return Fraction(_size(index, axis), found[0]), found[1]
    inner = _mean(node.args[0]) if node.args and hasattr(node.args[0], "op") else None
    if inner is None:
        return None
    if name in _SAME:
        return inner
    if name in ("sum", "any", "amax"):
        axes = node.args[1] if len(node.args) > 1 else None
        shape = node.args[0].meta["val"].shape
        over = shape if axes is None else [shape[a] for a in _pytree.tree_leaves(axes)]
        total = inner[0] * math.prod(over)
        return (total if name == "sum" else min(total, Fraction(1))), inner[1]
    if name in ("gt", "ne") and node.args[1] == 0:
        return min(inner[0], Fraction(1)), inner[1]
    return None


# ---- The turns -----------------------------------------------------------------------------------


def _root(node: Any, roots: Mapping[Any, Any]) -> Any:
    """Return the mask or the count that says how large a node is, whose size is new."""
    name = _name(node)
    if name in ("item", "_local_scalar_dense"):
        return node
    if name in ("where", "nonzero", "nonzero_numpy", "argwhere") and len(node.args) == 1:
        return node.args[0]
    if name == "masked_select":
        return node.args[1]
    if name == "index":
        return next((i for i in node.args[1] if i is not None and _is_truths(i)), None)
    if name == "slice":
        start, end = (_expression(each) for each in node.args[2:4])
        found = {roots.get(symbol) for symbol in getattr(end - start, "free_symbols", ())}
        return found.pop() if len(found) == 1 else None
    return None


def _is_truths(node: Any) -> bool:
    return str(getattr(node.meta.get("val"), "dtype", "")) == "torch.bool"


def _expression(number: Any) -> Any:
    held = number.meta["val"] if hasattr(number, "meta") else number
    return held.node.expr if hasattr(held, "node") else held


def _turns(graph: Any, known: dict[Any, int]) -> list[_Turn] | None:
    """Return the turns of all loops; None where a size follows from something else.

    Sizes that are known, as the number of bins of a histogram, are added to `known`.
    """
    roots: dict[Any, Any] = {}
    turns: dict[Any, _Turn] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        own = _symbols(node) - known.keys()
        new = own - roots.keys()
        if not _is_tensor(node) and _name(node) not in ("item", "_local_scalar_dense"):
            continue
        if new and _name(node) == "bincount":
            known.update(dict.fromkeys(new, (*node.args[1:], 0, 0)[1]))
            continue
        if new:
            root = _root(node, roots)
            mean = root is not None and _mean(root)
            if not mean:
                return None
            if root not in turns:
                count = root.meta["val"].numel() if hasattr(root.meta["val"], "shape") else 1
                turns[root] = _Turn(root, mean[0] * count, mean[1])
            turns[root].symbols |= new
            roots.update(dict.fromkeys(new, root))
        found = {roots[symbol] for symbol in own}
        if len(found) == 1 and _is_tensor(node):
            turns[found.pop()].nodes.append(node)
    for turn in turns.values():
        inside = set(turn.nodes)
        for node in graph.nodes:
            if _is_tensor(node) and node not in inside and inside & set(nodes_of(node)):
                if _symbols(node) - known.keys():
                    continue  # the rows of all turns are joined
                if _name(node) not in _WRITES:
                    return None
                turn.ends.append(node)
    return list(turns.values())


def _form(turn: _Turn) -> tuple[Any, ...]:
    """Return what two turns have in common that differ in weights alone."""
    places = {node: i for i, node in enumerate(turn.nodes)}

    def said(argument: Any) -> Any:
        if not hasattr(argument, "op"):
            return argument
        if argument in places:
            return ("row", places[argument])
        return tuple(map(str, getattr(argument.meta.get("val"), "shape", ())))

    found = []
    for node in (*turn.nodes, *turn.ends):
        arguments = node.args[:2] if _name(node) == "slice" else node.args
        leaves, tree = _pytree.tree_flatten((arguments, node.kwargs))
        found.append((node.target, tuple(map(said, leaves)), str(tree)))
    return (turn.rows, turn.source, *found)


# ---- One product -------------------------------------------------------------------------------


def join_turns(program: Any, batch: int) -> bool:
    """Make one turn of those of each loop over experts; tell whether all sizes are then known.

    Nothing is changed where they are not: a size that follows from something else, experts that
    differ, or turns that have more weights than those of products.
    """
    graph, known = program.graph, dict[Any, int]()
    _cut(graph)
    turns = _turns(graph, known)
    if not turns and not known:
        return False
    loops: dict[Any, list[_Turn]] = {}
    for turn in turns or ():
        loops.setdefault(_form(turn), []).append(turn)
    inputs = set(program.graph_signature.user_inputs)
    fixed = _fixed(graph, inputs)
    for loop in loops.values():
        rows = sum((turn.rows for turn in loop), Fraction())
        if turns is None or rows.denominator != 1 or rows % batch or not _is_loop(loop, fixed):
            return False
    for loop in loops.values():
        _join(graph, loop, known)
    _settle([node for node in graph.nodes if _is_tensor(node)], known)
    return True


def _cut(graph: Any) -> None:
    """Make a slice of each part of rows that are split by how many each expert has."""
    for node in list(graph.nodes):
        source = node.args[0] if _name(node) == "getitem" else None
        if source is None or _name(source) != "split_with_sizes" or not _symbols(node):
            continue
        x, sizes, axis = (*source.args, 0)[:3]
        with graph.inserting_before(node):
            part = graph.call_function(
                torch.ops.aten.slice.Tensor, (x, axis, 0, sizes[node.args[1]])
            )
        part.meta = {**source.meta, "val": node.meta["val"]}
        node.replace_all_uses_with(part)
        graph.erase_node(node)
        if not source.users:
            graph.erase_node(source)


def _fixed(graph: Any, inputs: set[str]) -> set[Any]:
    """Return the nodes that no input of the net reaches."""
    found: set[Any] = set()
    for node in graph.nodes:
        read = nodes_of(node) if node.op == "call_function" else []
        is_held = node.op == "placeholder" and node.name not in inputs
        if is_held or (read and found.issuperset(read)):
            found.add(node)
    return found


def _is_loop(loop: Sequence[_Turn], fixed: set[Any]) -> bool:
    """Tell whether turns have weights of their own, and those in products alone."""
    products = 0
    for alike in zip(*(turn.nodes for turn in loop), strict=True):
        places = _PRODUCTS.get(_name(alike[0]), ())[1:]
        for i, arguments in enumerate(zip(*(node.args for node in alike), strict=True)):
            nodes = [tensors_in(argument) for argument in arguments]
            own = any(each != nodes[0] for each in nodes)
            if own and any(node in fixed for each in nodes for node in each):
                if i not in places:
                    return False
                products += 1
    return products > 0


def _join(graph: Any, loop: Sequence[_Turn], known: dict[Any, int]) -> None:
    first, *others = loop
    total = int(sum(turn.rows for turn in loop))
    for i, turn in enumerate(loop):
        rows = total * (i + 1) // len(loop) - total * i // len(loop)
        known.update(dict.fromkeys(turn.symbols, rows))
    for i, alike in enumerate(list(zip(*(turn.nodes for turn in loop), strict=True))):
        places = _PRODUCTS.get(_name(alike[0]))
        if places is not None and len({node.args[places[1]] for node in alike}) > 1:
            first.nodes[i] = _group(graph, alike, places)
    _settle(first.nodes, dict.fromkeys(first.symbols, total))
    dropped = {node for turn in others for node in turn.nodes}
    for turn in others:
        for end in turn.ends:
            end.replace_all_uses_with(end.args[0])
            graph.erase_node(end)
    for node in graph.nodes:  # what joins the rows of all turns has them all from the first
        if node not in dropped and dropped & set(tensors_in(node.args)):
            keep = [
                [each for each in argument if each not in dropped]
                if isinstance(argument, list | tuple)
                else argument
                for argument in node.args
            ]
            node.args = tuple(keep)
    for node in reversed(list(graph.nodes)):
        is_idle = node in dropped or _name(node) == "_assert_scalar" or not _is_tensor(node)
        if node.op == "call_function" and is_idle and not node.users:
            graph.erase_node(node)


def _group(graph: Any, alike: Sequence[Any], places: tuple[int, int, int | None]) -> Any:
    """Return a product of all turns' rows and weights, put in the place of the first turn's."""
    first, (rows, weight, bias) = alike[0], places
    biases = [node.args[bias] for node in alike if bias is not None and len(node.args) > bias]
    earlier = set(itertools.takewhile(lambda node: node is not first, graph.nodes))
    for node in (*(node.args[weight] for node in alike), *filter(None, biases)):
        _bring_before(first, node, earlier)
    with graph.inserting_before(first):
        made = graph.call_function(
            torch.ops.paleo.experts.default,
            (first.args[rows], [node.args[weight] for node in alike], list(filter(None, biases))),
        )
    made.meta = dict(first.meta)
    first.replace_all_uses_with(made)
    graph.erase_node(first)
    return made


def _bring_before(first: Any, node: Any, earlier: set[Any]) -> None:
    """Move a node that reads no rows, and what it reads, before another that comes earlier."""
    if node in earlier:
        return
    for each in nodes_of(node):
        _bring_before(first, each, earlier)
    first.prepend(node)
    earlier.add(node)


def _settle(nodes: Sequence[Any], known: Mapping[Any, int]) -> None:
    """Give what nodes give the sizes that its symbols have."""
    for node in nodes:
        if not _symbols(node) & known.keys():
            continue
        made = [
            torch.empty([_number(size, known) for size in x.shape], dtype=x.dtype, device="meta")
            if hasattr(x, "shape")
            else x
            for x in outputs_of(node)
        ]
        several = isinstance(node.meta["val"], list | tuple)
        node.meta["val"] = made if several else made[0]


def _number(size: Any, known: Mapping[Any, int]) -> int:
    return int(size.node.expr.subs(known)) if hasattr(size, "node") else int(size)


# ---- What loops ask ----------------------------------------------------------------------------


@contextlib.contextmanager
def evenly() -> Iterator[None]:
    """Let a module that asks whether an expert has any rows have the answer of even choices.

    That is for what is known to follow from a router's choices alone: whatever else a module asks
    of data stays without an answer.
    """
    fakes = importlib.import_module("torch._subclasses.fake_impls")
    proxies: Any = importlib.import_module("torch.fx.experimental.proxy_tensor")
    table: dict[Any, Any] = fakes.op_implementations_dict
    aten = torch.ops.aten

    kind = proxies.ProxyTorchDispatchMode
    dispatch, tracers = kind.__torch_dispatch__, list[Any]()

    def dispatched(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracers.append(self.tracer)
        try:
            return dispatch(self, *args, **kwargs)
        finally:
            tracers.pop()

    def node_of(x: Any) -> Any:
        held = tracers and proxies.get_proxy_slot(x, tracers[-1], None)
        return held.proxy.node if held else None

    def answered(function: Any) -> Any:
        def run(mode: Any, operator: Any, x: Any, *rest: Any) -> Any:
            result = function(mode, operator, x, *rest)
            node = node_of(x)
            mean = node is not None and _mean(node)
            number = result.shape[0] if hasattr(result, "shape") else result
            if mean and hasattr(number, "node"):
                rows = mean[0] * (x.numel() if hasattr(result, "shape") else 1)
                for symbol in number.node.expr.free_symbols:
                    mode.shape_env.set_real_tensor_prop_unbacked_vals(symbol, max(1, round(rows)))
            return result

        return run

    operators = (aten.nonzero.default, aten.item.default, aten._local_scalar_dense.default)
    before = {operator: table[operator] for operator in operators if operator in table}
    try:
        kind.__torch_dispatch__ = dispatched
        table.update({operator: answered(function) for operator, function in before.items()})
        yield
    finally:
        table.update(before)
        kind.__torch_dispatch__ = dispatch
