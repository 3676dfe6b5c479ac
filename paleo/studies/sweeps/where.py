"""Conditions on points of a sweep, such as "batch_size * workers <= 65536 and tp <= 8"."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from paleo.core.checks import shown
from paleo.core.errors import SettingError, near
from paleo.core.quantity import Array, np

_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_LONGEST = 10_000


class Condition:
    """A condition in names of axes, numbers and texts; nothing else is in it, and no code runs."""

    def __init__(self, text: str, names: Collection[str]) -> None:
        self.text = text
        try:
            if not isinstance(text, str) or len(text) > _LONGEST:
                raise ValueError
            self._tree = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise SettingError(
                f"where: expected a condition such as batch_size * workers <= 4096, got "
                f"{shown(text)}"
            ) from None
        _check(self._tree, names, text)

    def __str__(self) -> str:
        return self.text

    def holds(self, columns: Mapping[str, Array]) -> Array:
        """Return of which rows it holds, by the columns of axes; raises SettingError."""
        count = len(next(iter(columns.values())))
        try:
            with np.errstate(all="ignore"):
                found = np.broadcast_to(_value(self._tree, columns), (count,))
        except (TypeError, ValueError, OverflowError, np.exceptions.DTypePromotionError):
            raise SettingError(
                f"where: {self.text}: texts and numbers do not go together"
            ) from None
        return found.astype(bool)


def _check(node: ast.AST, names: Collection[str], text: str) -> None:
    """Raise SettingError for what is neither arithmetic, nor compares, nor is an axis."""
    if isinstance(node, ast.Name) and node.id not in names:
        hint = near(node.id, names) or f"; there are: {', '.join(names)}"
        raise SettingError(f"where: {node.id}: no axis of that name{hint}")
    is_known = (
        (isinstance(node, ast.Name))
        or (isinstance(node, ast.Constant) and isinstance(node.value, int | float | str))
        or (isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC)
        or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not))
        or isinstance(node, ast.BoolOp)
        or (isinstance(node, ast.Compare) and all(type(op) in _COMPARISONS for op in node.ops))
    )
    if not is_known:
        raise SettingError(
            f"where: {text}: expected arithmetic and comparisons of axes, with and, or and not"
        )
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            _check(child, names, text)


def _value(node: Any, columns: Mapping[str, Array]) -> Any:
    if isinstance(node, ast.Name):
        return columns[node.id]
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, columns), _value(node.right, columns)
        return _ARITHMETIC[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp):
        value = _value(node.operand, columns)
        return -value if isinstance(node.op, ast.USub) else np.logical_not(value)
    if isinstance(node, ast.BoolOp):
        join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        first, *others = (_value(each, columns) for each in node.values)
        for each in others:
            first = join(first, each)
        return first
    sides = [_value(each, columns) for each in (node.left, *node.comparators)]
    found: Any = True
    for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
        found = np.logical_and(found, _COMPARISONS[type(op)](left, right))
    return found
