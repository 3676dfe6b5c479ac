"""A PyTorch module as a graph, without memory for its weights.

Modules are made with weights that have no data, and run once on tensors that have none
either (`torch.export` on fake tensors). Nothing is computed, and no GPU is needed.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

__all__ = ["PREFIX", "OpenEndedError", "construct", "export", "materialized", "quietly"]

#: What the module is called within the one that is exported.
PREFIX = "net"

#: Tensors of up to so many elements have data while a module is made: constructors read them.
_SMALL = 1 << 16
#: The functions that make tensors of a shape.
_MAKERS = ("empty", "zeros", "ones", "full", "rand", "randn", "randint", "normal")
#: Parts of what PyTorch says where a tensor has elements of the wrong type.
_TYPE_WORDS = (
    "scalar type", "dtype", "must be long", "indices", "floating point", "floating-point",
    "boolean", "bool ", "not implemented for", "index tensor", "one_hot", "integral",
    "tensors used as indices", "can't be cast", "to be bool", "predicate",
)  # fmt: skip


class OpenEndedError(Exception):
    """A module that branches on data; the message is what PyTorch says."""


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep warnings and logs away from the terminal for a while."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


# ---- Construction ------------------------------------------------------------------------------


def construct(factory: Callable[[], Any]) -> Any:
    """Return what a factory makes, without memory for weights where that is possible.

    First large tensors have no data. A constructor that reads one gets data in all of them, of
    which parameters lose theirs at once; one that reads its parameters gets everything.
    """
    for mode in (_without_large_tensors, _without_parameters):
        try:
            with mode():
                return factory()
        except RuntimeError:  # what PyTorch raises where data is missing
            continue
    return factory()


def _without_large_tensors() -> Any:
    torch = importlib.import_module("torch")
    overrides = importlib.import_module("torch.overrides")
    makers = {getattr(torch, name) for name in _MAKERS}

    def is_large(arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return math.prod(_flat([arguments, kwargs.get("size", ())])) > _SMALL

    def without_data(thing: Any) -> Any:
        if isinstance(thing, torch.Tensor):
            return thing.to("meta")
        if type(thing) in (list, tuple):
            return type(thing)(map(without_data, thing))
        return thing

    class LargeOnMeta(overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            if function in makers and is_large(args, kwargs):
                kwargs["device"] = "meta"
                kwargs.pop("pin_memory", None)
                kwargs.pop("generator", None)
            try:
                return function(*args, **kwargs)
            except RuntimeError:
                # Of tensors with and without data, none has any from here on.
                devices = {each.is_meta for each in _tensors([args, kwargs])}
                if len(devices) < 2:
                    raise
                kwargs = {key: without_data(value) for key, value in kwargs.items()}
                return function(*without_data(tuple(args)), **kwargs)

    return LargeOnMeta()


def _flat(sizes: Any) -> Iterator[int]:
    if isinstance(sizes, list | tuple):
        for each in sizes:
            yield from _flat(each)
    elif isinstance(sizes, int) and sizes > 0:
        yield sizes


@contextlib.contextmanager
def _without_parameters() -> Iterator[None]:
    torch = importlib.import_module("torch")
    module = torch.nn.Module
    original = module.register_parameter

    def register(self: Any, name: str, param: Any) -> None:
        original(self, name, param)
        if param is None or param.is_meta or type(param) is not torch.nn.Parameter:
            return
        # The same parameter registered twice is the same without data.
        twin = getattr(param, "_paleo_twin", None)
        if twin is None:
            twin = torch.nn.Parameter(param.detach().to("meta"), param.requires_grad)
            param._paleo_twin = twin
        self._parameters[name] = twin

    module.register_parameter = register
    try:
        yield
    finally:
        module.register_parameter = original


# ---- Export ------------------------------------------------------------------------------------


class _Fakes:
    """Fake tensors in the place of a module's own, put back at the end."""

    def __init__(self, mode: Any) -> None:
        self.torch = importlib.import_module("torch")
        self.mode = mode
        self._made: dict[int, tuple[Any, Any]] = {}
        self._undo: list[tuple[Any, Any, Any]] = []

    def of(self, tensor: Any) -> Any:
        """Return the fake of a tensor, always the same; it is on the CPU."""
        known = self._made.get(id(tensor))
        if known is None:
            known = (tensor, self._make(tensor))
            self._made[id(tensor)] = known
        return known[1]

    def _make(self, tensor: Any) -> Any:
        torch = self.torch
        if type(tensor).__name__.startswith("Uninitialized"):
            return tensor
        with self.mode:
            fake = torch.empty_strided(
                tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="cpu"
            )
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
        return fake

    def replace(self, module: Any) -> None:
        """Put fakes in the place of all tensors that a module holds."""
        for each in module.modules():
            held = vars(each)
            for name in ("_parameters", "_buffers"):
                for key, tensor in list(held[name].items()):
                    if tensor is not None:
                        self._set(held[name], key, self.of(tensor))
            for key, value in list(held.items()):
                if key not in ("_parameters", "_buffers", "_modules"):
                    fake = self._inside(value)
                    if fake is not value:
                        self._set(held, key, fake)

    def _inside(self, value: Any) -> Any:
        """Return a plain attribute with fakes for the tensors in it."""
        torch = self.torch
        if isinstance(value, torch.Tensor):
            return self.of(value)
        if type(value) in (list, tuple):
            found = [self._inside(each) for each in value]
            changed = any(a is not b for a, b in zip(found, value, strict=True))
            return type(value)(found) if changed else value
        if type(value) is dict:
            made = {key: self._inside(each) for key, each in value.items()}
            return made if any(made[key] is not each for key, each in value.items()) else value
        return value

    def _set(self, holder: Any, key: Any, value: Any) -> None:
        self._undo.append((holder, key, holder[key]))
        holder[key] = value

    def restore(self) -> None:
        """Put back what was there."""
        for holder, key, value in reversed(self._undo):
            holder[key] = value


@contextlib.contextmanager
def _prepared(module: Any, mode: Any, training: bool) -> Iterator[None]:
    """Have fakes for a module's tensors, and the phase that is asked for, for a while."""
    torch = importlib.import_module("torch")
    fakes = _Fakes(mode)
    phases = [(each, each.training) for each in module.modules()]
    mha = getattr(torch.backends, "mha", None)
    fast = mha.get_fastpath_enabled() if mha else None
    fakes.replace(module)
    try:
        module.train(training)
        if mha:
            mha.set_fastpath_enabled(False)  # its one operator says nothing of what is inside
        with torch.enable_grad(), _no_look_at_masks():
            yield
    finally:
        if mha:
            mha.set_fastpath_enabled(fast)
        for each, phase in phases:
            each.training = phase
        fakes.restore()


@contextlib.contextmanager
def _no_look_at_masks() -> Iterator[None]:
    """Keep PyTorch's Transformer from comparing the elements of a mask: there are none."""
    transformer = importlib.import_module("torch.nn.modules.transformer")
    original = getattr(transformer, "_detect_is_causal_mask", None)
    if original is None:
        yield
        return

    def detect(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
        return bool(is_causal)

    transformer.__dict__["_detect_is_causal_mask"] = detect
    try:
        yield
    finally:
        transformer.__dict__["_detect_is_causal_mask"] = original


def _tensors(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the tensors of whatever a module returns."""
    torch = importlib.import_module("torch")
    if isinstance(value, torch.Tensor):
        yield value
    elif depth > 8:
        return
    elif isinstance(value, list | tuple | set):
        for each in value:
            yield from _tensors(each, depth + 1)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each, depth + 1)
    elif hasattr(value, "__dict__") and not callable(value):
        yield from _tensors(vars(value), depth + 1)


def _wrapped(module: Any, names: Sequence[str | None], no_output: list[bool]) -> Any:
    """Return a module that calls `module` and returns the tensors of its output.

    What the module prints is its own affair; what PyTorch prints about it is kept back.
    """
    torch = importlib.import_module("torch")
    out, err = sys.stdout, sys.stderr

    class Wrapper(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            setattr(self, PREFIX, module)

        def forward(self, *tensors: Any) -> list[Any]:
            by_name = {n: t for n, t in zip(names, tensors, strict=True) if n is not None}
            plain = [t for n, t in zip(names, tensors, strict=True) if n is None]
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                output = module(*plain, **by_name)
            found = list(_tensors(output))
            no_output[:] = [not found]
            return found

    return Wrapper()


def is_about_types(error: BaseException) -> bool:
    """Say whether an error may go away with inputs of other types."""
    text = str(error).lower()
    return any(word in text for word in _TYPE_WORDS)


def _is_open_ended(error: BaseException) -> bool:
    """Say whether an error is PyTorch's for control flow that depends on data."""
    names = {each.__name__ for each in type(error).__mro__}
    known = {"GuardOnDataDependentSymNode", "DataDependentOutputException",
             "DynamicOutputShapeException", "PendingUnbackedSymbolNotFound",
             "UncapturedHigherOrderOpError"}  # fmt: skip
    return bool(names & known) or "data-dependent" in str(error)


def export(
    module: Any,
    names: Sequence[str | None],
    shapes: Sequence[tuple[int, ...]],
    training: bool,
) -> Any:
    """Return the program of a module on inputs of these shapes, and its parameters by name.

    Inputs are numbers of the module's own type, or where that cannot be, whole numbers or
    truths. Raises what the module raises, or OpenEndedError.
    """
    torch = importlib.import_module("torch")
    fake_tensor = importlib.import_module("torch._subclasses.fake_tensor")
    symbolic = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    floats = (p.dtype for p in module.parameters() if p.dtype.is_floating_point)
    number = next(floats, torch.get_default_dtype())
    choices = sorted(
        product((number, torch.int64, torch.bool), repeat=min(len(shapes), 4)),
        key=lambda each: sum((0, 1, 3)[(number, torch.int64, torch.bool).index(d)] for d in each),
    )
    first_error: Exception | None = None
    for types in choices:
        types = (*types, *[number] * (len(shapes) - len(types)))
        mode = fake_tensor.FakeTensorMode(shape_env=symbolic.ShapeEnv(), allow_non_fake_inputs=True)
        nothing: list[bool] = []
        with _prepared(module, mode, training):
            wrapper = _wrapped(module, names, nothing)
            with mode:
                inputs = tuple(
                    torch.empty(shape, dtype=dtype)
                    for shape, dtype in zip(shapes, types, strict=True)
                )
            try:
                program = _run(wrapper, inputs)
            except Exception as error:
                if _is_open_ended(error):
                    raise OpenEndedError(str(error)) from error
                first_error = first_error or error
                if not is_about_types(error):
                    raise
                continue
            return (None if nothing == [True] else program), _identities(module)
    assert first_error is not None
    raise first_error


def _run(wrapper: Any, inputs: tuple[Any, ...]) -> Any:
    torch = importlib.import_module("torch")
    with contextlib.redirect_stdout(_Nowhere()), contextlib.redirect_stderr(_Nowhere()):
        return torch.export.export(wrapper, inputs, strict=False)


def materialized(
    module: Any, names: Sequence[str | None], shapes: Sequence[tuple[int, ...]]
) -> Any:
    """Return a module whose lazy parts have seen their inputs' sizes; itself if it has none."""
    torch = importlib.import_module("torch")
    held = [*module.parameters(), *module.buffers()]
    if not any(type(each).__name__.startswith("Uninitialized") for each in held):
        return module
    with contextlib.suppress(ValueError):  # lazy buffers cannot be copied
        module = copy.deepcopy(module)
    with _without_large_tensors(), torch.no_grad():
        _wrapped(module, names, [])(*[torch.empty(shape) for shape in shapes])
    return module


class _Nowhere:
    """A text file that keeps nothing."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        return None

    def isatty(self) -> bool:
        return False


def _identities(module: Any) -> dict[str, Any]:
    """Return for each parameter's names the first of them; tied ones have several."""
    first: dict[int, str] = {}
    return {
        name: first.setdefault(id(parameter), name)
        for name, parameter in module.named_parameters(remove_duplicate=False)
    }
