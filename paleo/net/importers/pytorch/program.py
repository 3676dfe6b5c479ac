"""Exported programs: objects of `torch.export`, and the `.pt2` files that it saves.

`torch.export.load` unpickles what stands in such a file, evaluates its expressions as Python and
loads compiled libraries. Here only the graph is read, which is JSON, after a look at whatever
PyTorch would make functions or expressions of; weights, constants and examples are not opened.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import re
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

from paleo.core.errors import NetSpecError
from paleo.core.tensor import format_shape
from paleo.net.importers.base import PRIMES, ImportOptions, prime_batch
from paleo.net.importers.pytorch.export import PREFIX
from paleo.net.importers.pytorch.reader import Reader, Shape, Traced
from paleo.net.importers.pytorch.running import guarded, quietly
from paleo.net.spec import NetSpec

torch: Any = importlib.import_module("torch")

#: What nodes of a graph may call: PyTorch's own operators, and arithmetic of sizes. Some operators
#: open files, and fake tensors do not keep them from it.
_CALLED = re.compile(r"torch\.ops\.(aten\.(?!from_file|save)|prims\.|higher_order\.)\w+(\.\w+)?"
                     r"|_operator\.\w+|math\.\w+|torch\.sym_\w+")  # fmt: skip
#: A size that depends on others: numbers, symbols, and functions of SymPy and PyTorch.
_FUNCTIONS = """
    Add Mul Pow Integer Rational Max Min Mod PythonMod FloorDiv CleanDiv CeilDiv IntTrueDiv
    ModularIndexing Where Identity Equality Unequality Eq Ne Lt Le Gt Ge And Or Not True False
    LessThan GreaterThan StrictLessThan StrictGreaterThan
"""
_SIZE = re.compile(
    r"(Symbol\('[a-z]+\d*'(, [a-z]+=(True|False))*\)|\b[a-z]{1,4}\d+\b|\b\d+\b|"
    rf"\b({'|'.join(_FUNCTIONS.split())})\b|[-+*/%(), <>=&|~])*"
)
#: What is kept of what else is said of a node: the modules that it is in, and its function.
_SAID = ("nn_module_stack", "torch_fn")


def load(target: str) -> Any:
    """Return the program that a `.pt2` file holds, without weights; raises NetSpecError."""
    try:
        with zipfile.ZipFile(target) as archive:
            (path,) = [path for path in archive.namelist() if path.endswith("models/model.json")]
            content = json.loads(archive.read(path))
    except OSError as error:
        raise NetSpecError(f"{target}: cannot be read: {error.strerror}") from None
    except (zipfile.BadZipFile, ValueError, RecursionError):
        raise NetSpecError(
            f"{target}: not a program that torch.export.save of PyTorch 2.8 or newer has written"
        ) from None
    guarded(target, "its graph", lambda: _check(target, content))
    return guarded(target, "its graph", lambda: _program(content))


def _program(content: Any) -> Any:
    """Return the program of a graph that has been looked at."""
    serde = importlib.import_module("torch._export.serde.serialize")
    graph = content["graph_module"]["graph"]
    held: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for spec in content["graph_module"]["signature"]["input_specs"]:
        ((kind, said),) = spec.items()
        if kind in ("parameter", "buffer", "tensor_constant"):
            place = held if kind == "parameter" or said.get("persistent") else constants
            tensor = _tensor(serde, graph["tensor_values"][said["arg"]["name"]])
            is_parameter = kind == "parameter"
            place[said[f"{kind}_name"]] = torch.nn.Parameter(tensor) if is_parameter else tensor
    content["guards_code"] = []
    return serde.deserialize(
        serde.SerializedArtifact(json.dumps(content).encode(), held, constants, b"")
    )


def _tensor(serde: Any, meta: Any) -> Any:
    """Return a tensor without data, as the graph says of it."""
    types = {int(number): dtype for number, dtype in serde._SERIALIZE_TO_TORCH_DTYPE.items()}
    sizes = [size["as_int"] for size in meta["sizes"]]
    return torch.empty(sizes, dtype=types[meta["dtype"]], device="meta")


def _check(target: str, content: Any) -> None:
    """Raise NetSpecError for what PyTorch would run; drop what says nothing of the graph."""
    if isinstance(content, list):
        for each in content:
            _check(target, each)
    elif isinstance(content, dict):
        if isinstance(called := content.get("target"), str) and "metadata" in content:
            if not _CALLED.fullmatch(called):
                raise NetSpecError(f"{target}: the operator {called} is not understood")
            said = content["metadata"].items()
            content["metadata"] = {key: text for key, text in said if key in _SAID}
        if isinstance(size := content.get("expr_str"), str) and not _SIZE.fullmatch(size):
            raise NetSpecError(f"{target}: the size {size} is not understood")
        for each in content.values():
            _check(target, each)


def read(target: str, options: ImportOptions) -> NetSpec:
    """Return the net of the program that a `.pt2` file holds; raises NetSpecError."""
    with quietly():
        return read_program(target, PurePath(target).stem, load(target), options)


def read_program(target: str, name: str, program: Any, options: ImportOptions) -> NetSpec:
    """Return the net of an exported program, called `name`; messages call it `target`.

    Raises NetSpecError.
    """
    with quietly(), contextlib.redirect_stdout(sys.stderr):
        return ProgramReader(target, name, program, options).read()


class ProgramReader(Reader):
    """Reads an exported program. A batch that it leaves open is told from other sizes."""

    def __init__(self, target: str, name: str, program: Any, options: ImportOptions) -> None:
        self.program = program
        self.holders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        self.given = [
            self.holders[spec.arg.name]
            for spec in program.graph_signature.input_specs
            if spec.kind.name == "USER_INPUT" and spec.arg.name in self.holders
        ]
        super().__init__(target, name, program, options)

    def _assign_inputs(self) -> None:
        """Find the shape of each input: what the program says, and --input where it is open."""
        by_name: dict[str, Shape] = {name: s for name, s in self.options.input if name is not None}
        in_order = iter([given for name, given in self.options.input if name is None])
        self.shapes = []
        for node in self.given:
            if not isinstance(node.meta.get("val"), torch.Tensor):
                raise self._fail(f"its input {node.name} is no tensor, which is not understood")
            said = node.meta["val"].shape
            shape = by_name.pop(node.name, None) or next(in_order, ()) or tuple(map(_hint, said))
            if len(shape) != len(said) or any(
                isinstance(size, int) and size != given
                for size, given in zip(said, shape, strict=False)
            ):
                sizes = format_shape(tuple(map(_hint, said)))
                raise self._fail(
                    f"its input {node.name} is {format_shape(shape)} here, and {sizes} where it "
                    "was exported, with these sizes fixed"
                )
            self.shapes.append(shape)
            is_plain = node.name in ("input", "x") and len(self.given) == 1
            self.labels.append("data" if is_plain else node.name)
        if by_name or list(in_order):
            names = ", ".join(node.name for node in self.given)
            raise self._fail(f"--input is given for what is no input; it takes {names}")

    def _sizes(self) -> set[int]:
        shapes = [
            node.meta["val"].shape for node in self.holders.values() if node not in self.given
        ]
        return {int(size) for shape in [*shapes, *self.shapes] for size in shape}

    def _export(self) -> Traced:
        """Return the program with its values, on a batch of a prime number if that is open."""
        prime = prime_batch(self._sizes()) or PRIMES[0]
        batch = prime if self._is_open else self._batch(0)
        return Traced(*self._run(batch, 0), batch, 0)

    @property
    def _is_open(self) -> bool:
        """Tell whether the program takes any batch."""
        first = [size for node in self.given for size in node.meta["val"].shape[:1]]
        return any(not isinstance(size, int) for size in first)

    def _run(
        self, batch: int, axis: int, taken: Callable[[], Any] = contextlib.nullcontext
    ) -> tuple[Any, Mapping[str, str]]:
        shapes = self._traced(batch, axis)
        if not self._is_open and batch != self._batch(axis):
            raise self._fail(f"its batch is {self._batch(axis)} where it was exported, and fixed")
        with taken():
            doing = f"its graph on {_said(shapes)}"
            return guarded(self.target, doing, lambda: self._on(shapes)), {}

    def _on(self, shapes: Sequence[Shape]) -> Any:
        """Return the program with its values on inputs of these shapes, which have no data."""
        fake_tensor = importlib.import_module("torch._subclasses.fake_tensor")
        module = copy.deepcopy(self.program.graph_module)
        given = {node.name: shape for node, shape in zip(self.given, shapes, strict=True)}
        mode = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)
        with mode, torch.enable_grad():
            values = [_fake(node, given.get(node.name)) for node in self.holders.values()]
            _evaluate(module, values)
        return SimpleNamespace(graph=module.graph, graph_signature=self.program.graph_signature)


def _said(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(format_shape, shapes))


def _hint(size: Any) -> int:
    """Return a size as it was when the program was exported."""
    return int(getattr(getattr(size, "node", None), "hint", None) or size)


def _fake(node: Any, shape: Shape | None) -> Any:
    """Return a tensor like the one that a placeholder stands for, of this shape if one is said."""
    like = node.meta.get("val")
    if not isinstance(like, torch.Tensor):
        return like
    fake = torch.empty(shape or tuple(map(int, like.shape)), dtype=like.dtype, device="cpu")
    is_trained = like.requires_grad and shape is None
    return torch.nn.Parameter(fake) if is_trained else fake


def _evaluate(module: Any, values: Sequence[Any]) -> Any:
    """Return what a graph gives, and note what each of its nodes does; numbers are put in place."""

    class Values(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, node: Any) -> Any:
            value = node.meta["val"] = super().run_node(node)
            stack = (node.meta.get("nn_module_stack") or {}).items()
            node.meta["nn_module_stack"] = {
                call: (f"{PREFIX}.{path}" if path else PREFIX, kind) for call, (path, kind) in stack
            }
            return value

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            # What only wraps a graph, to say in which mode it runs, is run as the graph.
            place = next(
                (i for i, a in enumerate(args) if isinstance(a, torch.fx.GraphModule)), None
            )
            if place is None or not str(target).startswith("wrap"):
                return super().call_function(target, args, kwargs)
            return _evaluate(args[place], args[place + 1 :])

    result = Values(module).run(*values, enable_io_processing=False)
    for node in list(module.graph.nodes):
        value = node.meta.get("val")
        if node.op == "call_function" and isinstance(value, int | float):
            for user in list(node.users):
                user.args, user.kwargs = torch.fx.node.map_arg(
                    (user.args, user.kwargs),
                    lambda each, node=node, value=value: value if each is node else each,
                )
            module.graph.erase_node(node)
        elif "_assert" in str(node.target) and not node.users:
            module.graph.erase_node(node)
    return result
