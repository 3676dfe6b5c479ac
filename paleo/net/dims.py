"""Named dimensions of a net file, and the expressions that may stand where a whole number may.

    expression  term, then "+" or "-" and another term, ...
    term        factor, then "*", "/", "//" or "%" and another factor, ...
    factor      a whole number, a name, "-" factor, "(" expression ")", or
                min(...), max(...), ceil_div(a, b) of expressions

Whole numbers stay exact. "/" must leave no remainder, "//" rounds down, ceil_div rounds up.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from paleo.core.checks import shown, whole_number
from paleo.core.errors import Mistakes, near_or_known
from paleo.core.quantity import ceil_div, maximum, minimum, some

#: The longest expression, the longest number in one, and how deep it may be nested.
MAX_LENGTH, _MAX_DIGITS, _MAX_DEPTH = 200, 30, 20
#: What is in every expression that may stand for a number: a name or an operator.
EXPRESSION = r"[A-Za-z_]|[0-9)]\s*[-+*/%]"
#: What the name of a dimension is.
NAME = r"[A-Za-z_][A-Za-z0-9_]*"

_TOKEN = re.compile(rf"\s*([0-9]+|{NAME}|//|[-+*/%(),])")
#: How an expression computes: from the sizes of names to its own.
_Formula = Callable[[Callable[[str], int]], int]


def _exact(a: int, b: int) -> int:
    if some(a % b):
        raise ValueError(f"{a} / {b} leaves a remainder")
    return a // b


_SUMS = {"+": operator.add, "-": operator.sub}
_PRODUCTS = {"*": operator.mul, "/": _exact, "//": operator.floordiv, "%": operator.mod}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": lambda *sizes: functools.reduce(minimum, sizes),
    "max": lambda *sizes: functools.reduce(maximum, sizes),
    "ceil_div": ceil_div,
}


class _Parser:
    """Reads one expression by recursive descent; raises ValueError saying what is expected."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        place = 0
        while text[place:].strip():
            match = _TOKEN.match(text, place)
            if match is None:
                raise ValueError(f"{shown(text[place:].strip()[0])} has no meaning there")
            self.tokens.append(match[1])
            place = match.end()
        self.tokens.reverse()
        self.depth = 0

    def whole(self) -> _Formula:
        formula = self.expression()
        if self.tokens:
            raise ValueError(f"{shown(self.tokens[-1])} stands where it should end")
        return formula

    def _next(self) -> str:
        return self.tokens.pop() if self.tokens else ""

    def _peek(self) -> str:
        return self.tokens[-1] if self.tokens else ""

    def _chain(
        self, operators: Mapping[str, Callable[[Any, Any], int]], inner: Callable[[], _Formula]
    ) -> _Formula:
        formula = inner()
        while self._peek() in operators:
            formula = _applied(operators[self._next()], [formula, inner()])
        return formula

    def expression(self) -> _Formula:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ValueError(f"it is nested more than {_MAX_DEPTH} deep")
        formula = self._chain(_SUMS, lambda: self._chain(_PRODUCTS, self.factor))
        self.depth -= 1
        return formula

    def factor(self) -> _Formula:
        word = self._next()
        if word == "-":
            self.depth += 1
            if self.depth > _MAX_DEPTH:
                raise ValueError(f"it is nested more than {_MAX_DEPTH} deep")
            negated = _applied(operator.neg, [self.factor()])
            self.depth -= 1
            return negated
        if word == "(":
            inner = self.expression()
            self._close()
            return inner
        if word.isdecimal():
            if len(word) > _MAX_DIGITS:
                raise ValueError("a number in it has too many digits")
            number = int(word)
            return lambda size_of: number
        if not re.fullmatch(NAME, word):
            found = f"got {shown(word)}" if word else "it ends"
            raise ValueError(f'a number, a dim or "(" is missing: {found}')
        if self._peek() == "(":
            return self._function(word)
        return lambda size_of: size_of(word)

    def _function(self, name: str) -> _Formula:
        if name not in _FUNCTIONS:
            raise ValueError(f"there is no function {shown(name)}: {', '.join(_FUNCTIONS)} are all")
        self._next()
        arguments = [self.expression()]
        while self._peek() == ",":
            self._next()
            arguments.append(self.expression())
        self._close()
        if len(arguments) < 2 or (name == "ceil_div" and len(arguments) > 2):
            takes = "two" if name == "ceil_div" else "two or more"
            raise ValueError(f"{name} takes {takes} numbers, got {len(arguments)}")
        return _applied(_FUNCTIONS[name], arguments)

    def _close(self) -> None:
        if self._next() != ")":
            raise ValueError('a ")" is missing')


def _applied(function: Callable[..., int], arguments: list[_Formula]) -> _Formula:
    return lambda size_of: function(*(argument(size_of) for argument in arguments))


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> _Formula:
    if len(text) > MAX_LENGTH:
        raise ValueError(f"{shown(text)} is no expression: longer than {MAX_LENGTH} characters")
    try:
        return _Parser(text).whole()
    except ValueError as error:
        raise ValueError(f"{shown(text)} is no expression: {error}") from None


class Dims:
    """The dimensions of one net: names to whole numbers, or to expressions of others.

    `chosen` are sizes that take the place of the file's. What is wrong is noted once, each under
    the key of its dimension.
    """

    def __init__(
        self, written: Mapping[str, Any], chosen: Mapping[str, Any], mistakes: Mistakes
    ) -> None:
        self.written = {**written, **{name: chosen[name] for name in chosen if name in written}}
        self.mistakes = mistakes
        #: Sizes by name; None where they cannot be found, which is noted.
        self.sizes: dict[str, int | None] = {}
        #: Names that a layer asked for, or a dimension that one asked for.
        self.used: set[str] = set()
        self._asking: list[str] = []
        for name in self.written:
            if not re.fullmatch(NAME, name) or name in _FUNCTIONS:
                self._add("not a name of a dim: letters, digits and _, no digit first", name)
        for name in chosen:
            if name not in written:
                has = near_or_known(name, written) if written else "; the net has no dims"
                self._add(f"there is no such dim{has}", name)
        for name in self.written:
            self._size(name)
        self.used.clear()

    def _add(self, message: str, name: str) -> None:
        self.mistakes.add(message, key=f"dims.{name}")

    def evaluate(self, text: str) -> int:
        """Return what an expression comes to; raises ValueError if it is none, or _Faulty."""
        if not re.search(EXPRESSION, text):
            raise ValueError(f"expected a whole number, got {shown(text)}")
        try:
            return _parsed(text)(self._asked)
        except ZeroDivisionError:
            raise ValueError(f"{shown(text)} divides by zero") from None
        except ValueError as error:
            inside = "" if shown(text) in str(error) else f"{shown(text)}: "
            raise type(error)(f"{inside}{error}") from None

    def _asked(self, name: str) -> int:
        if name not in self.written:
            has = near_or_known(name, self.written) if self.written else "; the net has no dims"
            raise ValueError(f"there is no dim {shown(name)}{has}")
        self.used.add(name)
        size = self._size(name)
        if size is None:
            raise FaultyDimError(f"dim {shown(name)} is faulty")
        return size

    def _size(self, name: str) -> int | None:
        if name in self._asking:
            cycle = self._asking[self._asking.index(name) :]
            self._add(f"a cycle: {' -> '.join([*cycle, name])}", cycle[0])
            self.sizes.update(dict.fromkeys(cycle))
        if name in self.sizes:
            return self.sizes[name]
        self._asking.append(name)
        written, size = self.written[name], None
        try:
            size = whole_number(self.evaluate(written) if isinstance(written, str) else written)
        except FaultyDimError:
            pass
        except ValueError as error:
            self._add(str(error), name)
        self._asking.pop()
        return self.sizes.setdefault(name, size)

    def unused(self) -> Iterable[str]:
        """Return the dimensions that no layer uses, by itself or through another."""
        used, new = set[str](), list(self.used)
        while new:
            name = new.pop()
            if name not in used:
                used.add(name)
                written = self.written[name]
                names = re.findall(NAME, written) if isinstance(written, str) else []
                new += [inner for inner in names if inner in self.written]
        return [name for name in self.written if name not in used]


class FaultyDimError(ValueError):
    """An expression of a dimension that is faulty, which is noted already."""
