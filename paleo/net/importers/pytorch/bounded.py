"""Sizes that data decide on, while a module is exported: as large as they can be, or as said.

How many boxes overlap no better one, or how many elements a mask picks, only data say. Here a mask
picks all that it may, and non-maximum suppression keeps all boxes; what a net then takes of them
(the best 1000) is its own bound. Where nothing cuts them before they are multiplied, they are as
many as `proposals`. That holds for one sample: in a batch, masks pick across samples.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from paleo.net.importers.base import PROPOSALS, first_of
from paleo.net.importers.pytorch.export import OpenEndedError
from paleo.net.importers.pytorch.names import nodes_of, operator_of, outputs_of, qualified, shape_of
from paleo.net.importers.pytorch.regions import STAND_INS

torch: Any = importlib.import_module("torch")

#: So many sizes that data decide on are no straight line of code any more, but a loop over data.
_MOST = 1000
#: What is said where an operator of another library leaves the size of its output open.
_OF_LIBRARIES = (
    "operators of other libraries are taken to give {} of a sample, where only they know how many; "
    "--proposals says otherwise"
)
#: The name of non-maximum suppression among torchvision's operators.
SUPPRESSION = "nms"
#: Operators whose output is as long as data say.
_PICKS = frozenset(
    ("nonzero", "nonzero_numpy", "masked_select", "_unique", "_unique2", "unique_dim",
     "unique_consecutive", "argwhere")
)  # fmt: skip
#: Operators that write some rows into a tensor of all.
_WRITES = frozenset(
    ("index_put", "_index_put_impl", "_unsafe_index_put", "index_add", "index_copy", "index_fill",
     "scatter", "scatter_add", "scatter_reduce", "masked_scatter")
)  # fmt: skip
#: Operators that multiply what they read with parameters or with each other.
_PRODUCTS = frozenset(
    ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
     "conv_transpose3d", "convolution", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum",
     "scaled_dot_product_attention", "lstm", "gru", "bilinear", "deform_conv2d")
)  # fmt: skip


class Bounds:
    """How many are taken where data decide, and where that was asked.

    `proposals` is what the user says, None if nothing. `limits` has how many are taken of so many
    by an operator, where it is not all of them.
    """

    def __init__(self, proposals: int | None) -> None:
        self.proposals = proposals
        self.limits: dict[tuple[str, int], int] = {}
        #: How often a size was asked for, and what else is taken for granted.
        self.asked = 0
        self.said: dict[str, None] = {}

    def of(self, operator: str, most: int) -> int:
        """Return how many an operator takes of at most so many."""
        self.asked += 1
        if self.asked > _MOST:
            raise OpenEndedError(f"more than {_MOST} sizes depend on data: a loop over data")
        limit = self.limits.get((operator, most), most)
        if operator == SUPPRESSION and self.proposals is not None:
            limit = min(limit, self.proposals)
        return min(limit, most)

    # ---- While a module is exported --------------------------------------------------------------

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Have PyTorch's fake tensors take these sizes for a while, in place of unknown ones."""
        self.asked = 0
        fakes = importlib.import_module("torch._subclasses.fake_impls")
        table: dict[Any, Any] = fakes.op_implementations_dict
        pickers = self._pickers()
        before = {operator: table[operator] for operator in pickers if operator in table}
        with contextlib.ExitStack() as undo:
            undo.callback(table.update, before)
            table.update(pickers)
            self._of_libraries(undo)
            self._of_torchvision(undo)
            yield

    def _pickers(self) -> Mapping[Any, Callable[..., Any]]:
        """Return what stands for each operator of PyTorch's own that data decide on."""
        aten = torch.ops.aten

        def places(operator: str, mask: Any) -> int:
            return self.of(operator, mask.numel())

        def nonzero(mode: Any, function: Any, mask: Any) -> Any:
            return mask.new_empty((places("nonzero", mask), mask.dim()), dtype=torch.int64)

        def nonzero_numpy(mode: Any, function: Any, mask: Any) -> Any:
            count = places("nonzero", mask)
            axes = range(max(1, mask.dim()))
            return [mask.new_empty((count,), dtype=torch.int64) for _ in axes]

        def masked_select(mode: Any, function: Any, x: Any, mask: Any) -> Any:
            shape = torch.broadcast_shapes(x.shape, mask.shape)
            return x.new_empty((self.of("nonzero", shape.numel()),))

        def unique(mode: Any, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
            found = x.new_empty((self.of("unique", x.numel()),))
            return (
                found,
                x.new_empty(x.shape, dtype=torch.int64),
                found.new_empty(found.shape, dtype=torch.int64),
            )

        return {
            aten.nonzero.default: nonzero,
            aten.nonzero_numpy.default: nonzero_numpy,
            aten.masked_select.default: masked_select,
            aten._unique2.default: unique,
        }

    def _of_libraries(self, undo: contextlib.ExitStack) -> None:
        """Bound what operators of other libraries give, where only they know how many."""
        context: Any = importlib.import_module("torch._library.fake_impl").FakeImplCtx

        def size(*_: Any, min: int = 0, max: int | None = None) -> int:  # noqa: A002  # PyTorch's
            most = PROPOSALS if self.proposals is None else self.proposals
            count = self.of("", most if max is None else builtins.min(most, max))
            self.said[_OF_LIBRARIES.format(count)] = None
            return builtins.max(count, min)

        for name in ("new_dynamic_size", "create_unbacked_symint"):
            if hasattr(context, name):
                _put(undo, context, name, size)

    def _of_torchvision(self, undo: contextlib.ExitStack) -> None:
        """Bound what torchvision's operators give, if the module that is exported uses it."""
        if "torchvision" not in sys.modules:
            return
        registry = importlib.import_module("torch._library.simple_registry")
        fake = registry.singleton.find("torchvision::nms").fake_impl.kernel

        def suppression(boxes: Any, scores: Any, threshold: float) -> Any:
            return boxes.new_empty((self.of(SUPPRESSION, len(boxes)),), dtype=torch.int64)

        _put(undo, fake, "func", suppression)
        boxes: Any = importlib.import_module("torchvision.ops.boxes")
        if hasattr(boxes, "_batched_nms_vanilla"):
            # Of few boxes on a GPU torchvision moves those of each class apart instead, and looks
            # at all of them at once.
            _put(undo, boxes, "_batched_nms_vanilla", boxes._batched_nms_coordinate_trick)
        for module, name, function, note in STAND_INS:
            owner = sys.modules.get(module)
            if hasattr(owner, name):
                _put(undo, owner, name, self._noted(function, note))

    def _noted(self, function: Callable[..., Any], note: str) -> Callable[..., Any]:
        """Return a function that has the net say something when it is called."""

        def noted(*args: Any, **kwargs: Any) -> Any:
            self.asked += 1
            if note:
                self.said[note] = None
            return function(*args, **kwargs)

        return noted

    # ---- What came of it ---------------------------------------------------------------------

    def narrow(self, graph: Any) -> bool:
        """Note how many are to be taken where nothing in the graph says so; tell whether any are.

        Raises OpenEndedError where rows that data pick are multiplied and put back among all:
        which go where is the data's to say, as in a mixture of experts.
        """
        before = dict(self.limits)
        for node in graph.nodes:
            picked = picks_of(node)
            if picked is None:
                continue
            operator, most = picked
            limit = PROPOSALS if self.proposals is None else self.proposals
            if _are_multiplied(node, most) and most > limit:
                self.limits[operator, most] = limit
        return self.limits != before

    def notes(self, graph: Any, name_of: Callable[[Any], str]) -> Iterator[str]:
        """Yield what a net says of the sizes that data decide on."""
        masks: list[str] = []
        for node in graph.nodes:
            picked = picks_of(node)
            if picked is None:
                continue
            operator, count = picked
            by = "; --proposals says otherwise" if self._is_limit(operator, count) else ""
            name = name_of(node)
            if operator == SUPPRESSION:
                kept = min(count, _cut_to(node, count))
                by = by or ("" if kept < count else "; --proposals says otherwise")
                said = ", as the net says" if kept < count else ""
                yield f"{name} is taken to keep {kept} boxes of an image{said}{by}"
            elif by:
                yield f"{name} is taken to pick {count} of a sample{by}"
            else:
                masks.append(name)
        if masks:
            yield f"masks are taken to pick all that they may (in {first_of(masks, 3)})"
        yield from self.said

    def _is_limit(self, operator: str, count: int) -> bool:
        return count in {
            *(limit for (kind, _), limit in self.limits.items() if kind == operator),
            *([self.proposals] if operator == SUPPRESSION else []),
        }


def _cut_to(node: Any, count: int) -> int:
    """Return how many of what a node gives are read, where a slice says so."""
    sizes = [
        (shape_of(user.meta.get("val")) or (count,))[0]
        if user.op == "call_function" and operator_of(user)[0] in ("slice", "narrow")
        else count
        for user in node.users
    ]
    return max(sizes, default=count)


def _put(undo: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """Have another value under the name of an object's own until it is undone."""
    undo.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def picks_of(node: Any) -> tuple[str, int] | None:
    """Return the operator whose size data decide on and how many it gave, None for any other."""
    if node.op != "call_function":
        return None
    operator = operator_of(node)[0].rstrip("_")
    if operator in ("index", "_unsafe_index"):
        if not any(_is_mask(index) for index in node.args[1]):
            return None
    elif operator == "where":
        if len(node.args) > 1 or node.kwargs:
            return None
    elif operator not in (*_PICKS, SUPPRESSION):
        return None
    shapes = [shape_of(output) for output in outputs_of(node)]
    count = next((shape[0] for shape in shapes if shape), 0)
    name = SUPPRESSION if operator == SUPPRESSION else "nonzero"
    return name, count


def _place(node: Any) -> str:
    """Return the line of code that a node was seen at: " (models.py, line 7)"."""
    lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    return f" ({PurePath(lines[-1][0]).name}, line {lines[-1][1]})" if lines else ""


def _is_mask(index: Any) -> bool:
    return str(getattr(getattr(index, "meta", {}).get("val"), "dtype", "")) == "torch.bool"


def _are_multiplied(source: Any, count: int) -> bool:
    """Say whether as many rows as data pick reach a product, nothing having cut them before."""
    waiting, seen = deque([(source, False)]), {(source, False)}
    reached = False
    while waiting:
        node, multiplied = waiting.popleft()
        for user in node.users:
            operator = operator_of(user)[0].rstrip("_") if user.op == "call_function" else ""
            if operator in _WRITES:
                if multiplied:
                    raise OpenEndedError(
                        f"{qualified(user)}{_place(user)}: rows that data pick are multiplied and "
                        "put back among all, so many as data say"
                    )
                continue
            shapes = [shape_of(output) for output in outputs_of(user)]
            holds = any(count in shape for shape in shapes if shape)
            if operator == SUPPRESSION or not (holds or operator in _PRODUCTS):
                continue
            is_product = operator in _PRODUCTS and any(
                count in (shape_of(each.meta.get("val")) or ()) for each in nodes_of(user)
            )
            reached |= is_product
            then = (user, multiplied or is_product)
            if then not in seen:
                seen.add(then)
                waiting.append(then)
    return reached
