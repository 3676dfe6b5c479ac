"""A PyTorch module as a graph, without memory for its weights.

Modules are made with weights that have no data, and run once on tensors that have none
either (`torch.export` on fake tensors). Nothing is computed, and no GPU is needed.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import math
import os
import re
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

torch: Any = importlib.import_module("torch")
pytree: Any = importlib.import_module("torch.utils._pytree")

#: What the module is called within the one that is exported.
PREFIX = "net"

#: Tensors of up to so many elements have data while a module is made: constructors read them.
_SMALL = 1 << 16
#: The functions that make tensors of a shape.
_MAKERS = ("empty", "zeros", "ones", "full", "rand", "randn", "randint", "normal")
#: Where a module has the tensors that it is asked for.
_REGISTERED = ("_parameters", "_buffers")
#: Parts of what PyTorch says where a tensor has elements of the wrong type.
_TYPE_WORDS = (
    "scalar type", "dtype", "must be long", "indices", "floating point", "floating-point",
    "boolean", "bool ", "not implemented for", "index tensor", "one_hot", "integral",
    "tensors used as indices", "can't be cast", "to be bool", "predicate",
)  # fmt: skip


class OpenEndedError(Exception):
    """A module that branches on data; the message is what PyTorch says."""


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
        except (RuntimeError, AssertionError):  # what PyTorch raises where data is missing
            continue
    return factory()


@contextlib.contextmanager
def _patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Have another value under the name of a class's or module's own for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _without_large_tensors() -> Any:
    overrides = importlib.import_module("torch.overrides")
    makers = {getattr(torch, name) for name in _MAKERS}

    def is_large(arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        leaves = pytree.tree_leaves([arguments, kwargs.get("size", ())])
        return math.prod(n for n in leaves if isinstance(n, int) and n > 0) > _SMALL

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
                if len({each.is_meta for each in _tensors([args, kwargs])}) < 2:
                    raise
                args, kwargs = pytree.tree_map_only(
                    torch.Tensor, lambda tensor: tensor.to("meta"), (tuple(args), kwargs)
                )
                return function(*args, **kwargs)

    return LargeOnMeta()


def _without_parameters() -> Any:
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

    return _patched(module, "register_parameter", register)


# ---- Export ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _with_fakes(module: Any, mode: Any) -> Iterator[None]:
    """Have fake tensors on the CPU in the place of all that a module holds, for a while."""
    known: dict[int, tuple[Any, Any]] = {}
    fake_tensor = importlib.import_module("torch._subclasses.fake_tensor").FakeTensor
    cpu, containers = torch.device("cpu"), (torch.Tensor, dict, list, tuple)

    def make(tensor: Any) -> Any:
        if type(tensor).__name__.startswith("Uninitialized"):
            return tensor
        plain = torch.empty_strided(
            tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="meta"
        )
        # Through the mode and the constructor of parameters this takes 20 times as long.
        fake = fake_tensor(mode, plain, cpu)
        if isinstance(tensor, torch.nn.Parameter):
            fake.requires_grad_(tensor.requires_grad)
            fake._is_param = True
        return fake

    def fake_of(tensor: Any) -> Any:
        """Return the fake of a tensor, always the same."""
        if id(tensor) not in known:
            known[id(tensor)] = (tensor, make(tensor))
        return known[id(tensor)][1]

    with contextlib.ExitStack() as undo:
        for part in module.modules():
            held = vars(part)
            undo.callback(held.update, dict(held))
            for key, value in list(held.items()):
                if not isinstance(value, containers) or key == "_modules":
                    continue
                tensors = [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]
                # What a list holds is a constant that the forward pass may read, and replace.
                if tensors and (key in _REGISTERED or any(x.is_meta for x in tensors)):
                    held[key] = pytree.tree_map_only(torch.Tensor, fake_of, value)
        yield


@contextlib.contextmanager
def _prepared(module: Any, mode: Any, training: bool) -> Iterator[None]:
    """Have fakes for a module's tensors, and the phase that is asked for, for a while."""
    mha = torch.backends.mha
    fakes, undone = _with_fakes(module, mode), contextlib.ExitStack()
    with fakes, _no_look_at_masks(), torch.enable_grad(), undone:
        module.train(training)  # which phase it was in is put back with what it holds
        undone.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
        mha.set_fastpath_enabled(False)  # its one operator says nothing of what is inside
        yield


def _no_look_at_masks() -> Any:
    """Keep PyTorch's Transformer from comparing the elements of a mask: there are none."""
    transformer = importlib.import_module("torch.nn.modules.transformer")
    if not hasattr(transformer, "_detect_is_causal_mask"):
        return contextlib.nullcontext()

    def detect(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
        return bool(is_causal)

    return _patched(transformer, "_detect_is_causal_mask", detect)


def _tensors(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the tensors of whatever a module returns."""
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


#: What an annotation says that takes several tensors, such as the images of a detector.
_SEVERAL = re.compile(
    r"^(typing\.)?(list|sequence|iterable|collection|tuple)\[.*tensor", re.IGNORECASE
)


def take_lists(module: Any, names: Sequence[str | None]) -> list[bool]:
    """Say of each input of a module, by its name or its place, whether it is a list of tensors."""
    forward = module.forward
    try:
        annotations = dict(inspect.get_annotations(forward))
        with contextlib.suppress(Exception):  # a name that is not there any more
            annotations = typing.get_type_hints(forward)
        order = iter(inspect.signature(forward).parameters)
    except (TypeError, ValueError):
        return [False] * len(names)
    texts = {name: str(annotation) for name, annotation in annotations.items()}
    given = [name or next(order, "") for name in names]
    return [_SEVERAL.match(texts.get(name, "")) is not None for name in given]


def _wrapped(module: Any, names: Sequence[str | None]) -> Any:
    """Return a module that calls `module` and returns the tensors of its output.

    Where it takes a list of samples, it gets those of a batch. What the module prints is its own
    affair; what PyTorch prints about it is kept back.
    """
    out, err = sys.stdout, sys.stderr
    lists = take_lists(module, names)

    class Wrapper(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            setattr(self, PREFIX, module)

        def forward(self, *tensors: Any) -> list[Any]:
            pairs = [
                (name, list(tensor.unbind(0)) if is_list and tensor.dim() > 1 else tensor)
                for name, tensor, is_list in zip(names, tensors, lists, strict=True)
            ]
            by_name = {name: value for name, value in pairs if name is not None}
            plain = [value for name, value in pairs if name is None]
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                output = module(*plain, **by_name)
            return list(_tensors(output))

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
    taken: Callable[[], Any] = contextlib.nullcontext,
) -> Any:
    """Return the program of a module on inputs of these shapes, and its parameters by name.

    `taken` makes a context in which sizes that depend on data are known. Inputs are numbers of the
    module's own type, or where that cannot be, whole numbers or truths. Raises what the module
    raises, or OpenEndedError.
    """
    fake_tensor = importlib.import_module("torch._subclasses.fake_tensor")
    symbolic = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    floats = (p.dtype for p in module.parameters() if p.dtype.is_floating_point)
    number = next(floats, torch.get_default_dtype())
    #: How far from a guess each type is.
    rarity = {number: 0, torch.int64: 1, torch.bool: 3}
    choices = sorted(
        product(rarity, repeat=min(len(shapes), 4)),
        key=lambda types: sum(rarity[dtype] for dtype in types),
    )
    first_error: Exception | None = None
    for types in choices:
        types = (*types, *[number] * (len(shapes) - len(types)))
        mode = fake_tensor.FakeTensorMode(shape_env=symbolic.ShapeEnv(), allow_non_fake_inputs=True)
        with _prepared(module, mode, training):
            wrapper = _wrapped(module, names)
            with mode:
                inputs = tuple(
                    torch.empty(shape, dtype=dtype)
                    for shape, dtype in zip(shapes, types, strict=True)
                )
            try:
                with taken():
                    program = _run(wrapper, inputs)
            except Exception as error:
                if _is_open_ended(error):
                    raise OpenEndedError(str(error)) from error
                first_error = first_error or error
                if not is_about_types(error):
                    raise
                continue
            return program, _identities(module)
    assert first_error is not None
    raise first_error


def _run(wrapper: Any, inputs: tuple[Any, ...]) -> Any:
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        return torch.export.export(wrapper, inputs, strict=False)


def work_of(program: Any) -> tuple[int, int]:
    """Return the FLOPs of a program's products, as PyTorch counts them, and all elements made."""
    flop_counter = importlib.import_module("torch.utils.flop_counter")
    attention = importlib.import_module("torch.nn.attention")
    guards = importlib.import_module("torch._guards")
    held = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    counter = flop_counter.FlopCounterMode(display=False)
    # Fused kernels of a CPU have no formula: what they fuse has.
    fused = (
        torch.backends.mkldnn.flags(enabled=False),
        attention.sdpa_kernel(attention.SDPBackend.MATH),
    )
    with fused[0], fused[1], guards.detect_fake_mode(held), counter, torch.no_grad():
        torch.fx.Interpreter(program.graph_module).run(*held)
    made = [
        tensor
        for node in program.graph.nodes
        if node.op == "call_function"
        for tensor in _tensors(node.meta.get("val"))
    ]
    return counter.get_total_flops(), sum(int(tensor.numel()) for tensor in made)


def materialized(
    module: Any, names: Sequence[str | None], shapes: Sequence[tuple[int, ...]]
) -> Any:
    """Return a module whose lazy parts have seen their inputs' sizes; itself if it has none."""
    held = [*module.parameters(), *module.buffers()]
    if not any(type(each).__name__.startswith("Uninitialized") for each in held):
        return module
    with contextlib.suppress(ValueError):  # lazy buffers cannot be copied
        module = copy.deepcopy(module)
    with _without_large_tensors(), torch.no_grad():
        _wrapped(module, names)(*[torch.empty(shape) for shape in shapes])
    return module


def _identities(module: Any) -> dict[str, Any]:
    """Return for each parameter's names the first of them; tied ones have several."""
    first: dict[int, str] = {}
    return {
        name: first.setdefault(id(parameter), name)
        for name, parameter in module.named_parameters(remove_duplicate=False)
    }
