"""Reads PyTorch modules: `python:package.module:attribute`, exported by `torch.export`.

The attribute is a module, or a function or class that makes one when it is called without
arguments. Only what such a target names is ever imported, with the current directory on the
import path.

The first axis of the inputs is taken for the batch (the second, where a recurrent layer or
attention that has steps first says so). The module is traced with a prime number in the
batch's place, so that the batch can be told from other sizes.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from paleo.errors import Mistakes, NetSpecError, near, printable
from paleo.importers.base import PYTHON, ImportOptions, OperatorError
from paleo.importers.builder import Builder
from paleo.netspec import NetSpec
from paleo.tensor import format_shape

__all__ = ["read"]

#: Batches that are traced, of which the first that divides no other size is taken.
_PRIMES = (13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)

Shape = tuple[int, ...]


def read(target: str, options: ImportOptions) -> NetSpec:
    """Return the net of a PyTorch module; raises NetSpecError."""
    if not target.startswith(PYTHON):
        raise NetSpecError(f"{target}: not a Python target; write python:package.module:attribute")
    path, separator, attribute = target[len(PYTHON) :].rpartition(":")
    if not (separator and path and attribute):
        raise NetSpecError(f"{target}: expected python:package.module:attribute")
    try:
        available = importlib.util.find_spec("torch") is not None
    except ValueError:  # a module of that name without a spec: it has been put there by hand
        available = "torch" in sys.modules
    if not available:
        raise NetSpecError(
            f'{target}: reading it needs PyTorch; install it with: pip install "paleo[torch]"'
        )
    if not options.input:
        raise NetSpecError(
            f"{target}: say what it takes, one --input for each argument: --input 1x3x224x224"
        )
    # What a module prints is not the command's result.
    with _import_path(), _quietly(), contextlib.redirect_stdout(sys.stderr):
        found = _find(target, path, attribute)
        module = _module(target, found)
        name = attribute.rpartition(".")[2]
        if found is module and not name.isidentifier():
            name = type(module).__name__
        return _Reader(target, name, module, options).read()


# ---- The target --------------------------------------------------------------------------------


@contextlib.contextmanager
def _import_path() -> Iterator[None]:
    """Have the current directory on the import path for a while."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(here)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    from paleo.importers.pytorch.export import quietly

    with quietly():
        yield


def _line(error: BaseException) -> str:
    """Return an error's type and first line."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    name = type(error).__name__
    return printable(f"{name}: {first}" if first else name)


def _place(error: BaseException) -> str:
    """Return where in code that is not PyTorch's an error comes from: " (models.py, line 7)"."""
    own = {Path(__file__).parent, Path(importlib.import_module("torch").__file__ or "").parent}
    cause = error.__cause__ or error
    place = ""
    for frame in traceback.extract_tb(cause.__traceback__):
        path = Path(frame.filename)
        if path.is_file() and not own & set(path.parents):
            place = f" ({path.name}, line {frame.lineno})"
    return place


def _guarded(target: str, doing: str, function: Callable[[], Any]) -> Any:
    """Return what code of the user's returns; raises NetSpecError for whatever it raises."""
    try:
        return function()
    except NetSpecError:
        raise
    except SystemExit as error:
        raise NetSpecError(f"{target}: {doing} exits: SystemExit: {error.code}") from None
    except Exception as error:
        raise NetSpecError(f"{target}: {doing} fails: {_line(error)}") from error


def _find(target: str, path: str, attribute: str) -> Any:
    """Return what a target names."""

    def load() -> Any:
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name and (path == error.name or path.startswith(f"{error.name}.")):
                raise NetSpecError(f"{target}: there is no Python module {error.name!r}") from None
            raise

    if not all(part.isidentifier() for part in path.split(".")):
        raise NetSpecError(f"{target}: {path!r} is no name of a Python module")
    thing = _guarded(target, f"importing {path}", load)
    at = path
    for part in attribute.split("."):
        found = _guarded(target, f"reading {at}.{part}", partial(_attribute, thing, part))
        if found is _MISSING:
            hint = near(part, [name for name in dir(thing) if not name.startswith("_")])
            raise NetSpecError(f"{target}: {at} has no attribute {part!r}{hint}")
        thing, at = found, f"{at}.{part}"
    return thing


_MISSING = object()


def _attribute(thing: Any, name: str) -> Any:
    return getattr(thing, name, _MISSING)


def _module(target: str, found: Any) -> Any:
    """Return the module that a target is, or that it makes."""
    from paleo.importers.pytorch.export import construct

    torch = importlib.import_module("torch")
    if isinstance(found, torch.nn.Module):
        return found
    if not callable(found):
        raise NetSpecError(
            f"{target}: expected a torch.nn.Module or what makes one, got {type(found).__name__}"
        )
    needed = _needed(found)
    if needed:
        raise NetSpecError(
            f"{target}: it needs arguments ({', '.join(needed)}); name a function without any"
        )
    made = _guarded(target, "making it", lambda: construct(found))
    if not isinstance(made, torch.nn.Module):
        raise NetSpecError(
            f"{target}: it returns {type(made).__name__}, which is no torch.nn.Module"
        )
    return made


def _needed(function: Any) -> list[str]:
    """Return the arguments that a function cannot be called without."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in variable]


# ---- The module --------------------------------------------------------------------------------


class _Reader:
    def __init__(self, target: str, name: str, module: Any, options: ImportOptions) -> None:
        self.target = target
        self.name = name
        self.module = module
        self.options = options
        self.names, self.shapes = self._inputs()

    def _fail(self, message: str) -> NetSpecError:
        return NetSpecError(f"{self.target}: {message}")

    def _inputs(self) -> tuple[list[str | None], list[Shape]]:
        """Return each input's name, None where only its place says which it is, and its shape."""
        given = self.options.input
        forward = _guarded(
            self.target, "its forward", lambda: inspect.signature(self.module.forward)
        )
        takes = list(forward.parameters.values())
        positional = [p for p in takes if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        known = [p.name for p in takes if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        open_ended = any(p.kind is p.VAR_POSITIONAL for p in takes)
        any_name = any(p.kind is p.VAR_KEYWORD for p in takes)
        names: list[str | None] = []
        for name, _ in given:
            if name is not None and name not in known and not any_name:
                raise self._fail(
                    f"its forward has no argument {name!r}{near(name, known)}; it takes "
                    f"{', '.join(known) or 'none'}"
                )
            if name is not None and name in names:
                raise self._fail(f"two inputs for its argument {name!r}")
            names.append(name)
        free = [p for p in positional if p.name not in names]
        unnamed = sum(name is None for name in names)
        needed = [p.name for p in takes if p.default is p.empty and p in positional]
        needed += [p.name for p in takes if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        if unnamed > len(free) and not open_ended:
            taken = ", ".join(p.name for p in positional) or "nothing"
            raise self._fail(f"its forward takes {taken}; --input is given {len(given)} times")
        first = [p.name for p in free[:unnamed]]
        missing = [each for each in needed if each not in names and each not in first]
        if missing:
            raise self._fail(
                f"its forward needs {', '.join(needed)}; no --input for {', '.join(missing)}"
            )
        order = iter(p for p in free)
        by_name = any(name is not None for name in names)
        resolved: list[str | None] = []
        for name in names:
            if name is not None:
                resolved.append(name)
            else:
                own = next(order, None)
                keyword = own is not None and own.kind is not own.POSITIONAL_ONLY
                resolved.append(own.name if own is not None and by_name and keyword else None)
        for (_, shape), name in zip(given, names, strict=True):
            if any(size < 1 for size in shape):
                raise self._fail(f"the input {name or ''} has a size below 1".replace("  ", " "))
        return resolved, [tuple(shape) for _, shape in given]

    def _labels(self) -> list[str]:
        """Return a name for each input: that of the argument."""
        takes = inspect.signature(self.module.forward).parameters.values()
        free = [p.name for p in takes if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        free = [name for name in free if name not in self.names]
        order = iter(free)
        labels = []
        for i, name in enumerate(self.names, 1):
            label = name or next(order, None) or f"data_{i}"
            plain = label in ("input", "data_1") and len(self.names) == 1
            labels.append("data" if plain else label)
        return labels

    # ---- Tracing -------------------------------------------------------------------------------

    def read(self) -> NetSpec:
        """Return the net."""
        program, identities, batch, axis = self._export()
        return self._build(program, identities, batch, axis)

    def _sizes(self) -> set[int]:
        """Return the sizes that a batch should not be mistaken for."""
        sizes = {size for shape in self.shapes for size in shape}
        for parameter in self.module.parameters():
            if not type(parameter).__name__.startswith("Uninitialized"):
                sizes.update(parameter.shape)
        return sizes

    def _traced(self, batch: int, axis: int) -> list[Shape]:
        """Return the shapes of the inputs with another batch."""
        own = self._batch(axis)
        return [
            (*shape[:axis], batch, *shape[axis + 1 :])
            if len(shape) > axis and shape[axis] == own
            else shape
            for shape in self.shapes
        ]

    def _batch(self, axis: int) -> int:
        """Return the batch that the user gave."""
        return next((shape[axis] for shape in self.shapes if len(shape) > axis), 1)

    def _export(self) -> tuple[Any, dict[str, str], int, int]:
        """Return the program, what its parameters are, the batch it is traced with, its axis."""
        from paleo.importers.pytorch.export import export, materialized

        self.module = _guarded(
            self.target,
            "its forward",
            lambda: materialized(self.module, self.names, self.shapes),
        )
        sizes = self._sizes()
        prime = next((p for p in _PRIMES if not any(s % p == 0 for s in sizes)), _PRIMES[0])
        training = self.options.phase == "train"
        axis = 0
        tries = [(prime, 0), (self._batch(0), 0)]
        while tries:
            batch, axis = tries.pop(0)
            try:
                program, identities = export(
                    self.module, self.names, self._traced(batch, axis), training
                )
            except KeyboardInterrupt:
                raise
            except (Exception, SystemExit) as error:
                if tries:
                    continue
                raise self._failure(error) from error
            if program is None:
                raise self._fail("it returns no tensor")
            matrices = all(len(shape) > 1 for shape in self.shapes)
            if matrices and axis == 0 and batch == prime and _steps_first(program.graph, batch):
                tries = [(prime, 1), (self._batch(1), 1)]
                continue
            break
        return program, identities, batch, axis

    def _failure(self, error: BaseException) -> NetSpecError:
        """Return what to say of an error in the module's forward."""
        from paleo.importers.pytorch.export import OpenEndedError

        if isinstance(error, SystemExit):
            return self._fail(f"its forward exits: SystemExit: {error.code}")
        where = _place(error)
        if isinstance(error, OpenEndedError):
            first = _line(error).partition(": ")[2]
            return self._fail(f"branches on data, which an export cannot follow{where}: {first}")
        shapes = ", ".join(format_shape(shape) for shape in self.shapes)
        return self._fail(f"its forward fails on {shapes}{where}: {_line(error)}")

    # ---- Building ------------------------------------------------------------------------------

    def _build(self, program: Any, identities: dict[str, str], batch: int, axis: int) -> NetSpec:
        from paleo.importers.pytorch.export import PREFIX
        from paleo.importers.pytorch.graph import Walk

        mistakes = Mistakes(self.target)
        builder = Builder(self.name, self.target, self._batch(axis))
        known = batch if batch in _PRIMES else None
        walk = Walk(builder, PREFIX, known, mistakes, self.options.unknown == "zero")
        values = []
        shapes = iter(self._traced(batch, axis))
        labels = iter(self._labels())
        nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        for spec in program.graph_signature.input_specs:
            held = nodes[spec.arg.name].meta.get("val")
            if spec.kind.name == "USER_INPUT":
                values.append(self._input(builder, next(labels), next(shapes), batch, axis))
            elif spec.kind.name == "PARAMETER":
                key = spec.target.removeprefix(f"{PREFIX}.")
                key = identities.get(key, key)
                # A frozen one counts as any other: a net-spec does not know frozen layers.
                name = key.replace(".", "/")
                values.append(builder.parameter(name, tuple(held.shape)))
            else:
                shape = getattr(held, "shape", None)
                values.append(walk.constant(None if shape is None else tuple(shape)))
        outputs = walk.run(program.graph, values)
        for each in walk.unknown.values():
            more = f" and {len(each.names) - 3} more" if len(each.names) > 3 else ""
            where = ", ".join(each.names[:3])
            mistakes.add(
                f"the operator {each.operator} is not understood (in {where}{more}); "
                "--unknown=zero lets it cost nothing"
            )
        mistakes.raise_as(NetSpecError)
        kept = [value for value in outputs if hasattr(value, "is_constant")]
        kept = [value for value in kept if not value.is_constant]
        if not kept:
            raise self._fail("nothing that it returns depends on its input")
        return builder.finish([*kept, *walk.computed])

    def _input(self, builder: Any, label: str, shape: Shape, batch: int, axis: int) -> Any:
        """Return an input; one without the batch is data that costs nothing to have."""
        has_batch = len(shape) > axis and shape[axis] == batch
        try:
            return builder.input(label, shape, axis if has_batch else None)
        except OperatorError as fault:
            raise self._fail(f"input {label}: {fault}") from None


def _steps_first(graph: Any, batch: int) -> bool:
    """Say whether what was taken for the batch turns out to be the steps of sequences."""
    for node in _all_nodes(graph):
        name = getattr(getattr(node.target, "_schema", None), "name", "").partition("::")[2]
        if name in ("lstm", "gru", "rnn_tanh", "rnn_relu") and not node.args[-1]:
            shape = tuple(node.args[0].meta["val"].shape)
            if shape[0] == batch and shape[1] % batch:
                return True
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        if name == "linear" and stack and str(stack[-1][1]).endswith("MultiheadAttention"):
            shape = tuple(node.args[0].meta["val"].shape)  # here it has the steps first
            if len(shape) == 3 and shape[0] == batch and shape[1] % batch:
                return True
    return False


def _all_nodes(graph: Any) -> Iterator[Any]:
    for node in graph.nodes:
        if node.op == "call_function":
            yield node
        elif node.op == "get_attr":
            inner: Any = getattr(graph.owning_module, node.target, None)
            if hasattr(inner, "graph"):
                yield from _all_nodes(inner.graph)
