"""The configuration of a Keras model: a .keras file, a zip with config.json, or JSON alone.

The configuration has the layers of a model, and for each call of a layer the tensors it is called
with, as Keras 3 writes them or as lists of Keras 2. It is read as data: nothing in it is made an
object of Keras, and weights are not opened.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from paleo.core.checks import MAX_SIZE
from paleo.core.errors import Mistakes, NetSpecError, printable
from paleo.core.tensor import format_shape
from paleo.net.importers.base import (
    ImportOptions,
    OperatorError,
    file_content,
    first_of,
    prime_batch,
)
from paleo.net.importers.builder.builder import Builder
from paleo.net.importers.builder.layout import Value
from paleo.net.importers.keras import layers
from paleo.net.importers.keras.call import OPERATORS, Call, tensors_in
from paleo.net.spec import NetSpec

#: The file registers its operators.
del layers

#: Larger configurations are none.
MAX_BYTES = 64 << 20
#: Models in models are no deeper.
_DEEPEST = 32
#: The most calls of layers, of models that are called many times too.
_MOST_CALLS = 20_000
_MODELS = ("Functional", "Model", "Sequential")
_NO_ARGUMENTS = "what its layers are called with is not understood"
#: A tensor of a model: the layer that gives it, which call of it, and which of its outputs.
_Key = tuple[str, int, int]


def read(target: str, options: ImportOptions) -> NetSpec:
    """Return the net of a file that Keras saved; raises NetSpecError with what is wrong with it."""
    with_weights = file_content(target, 2)[:2] == b"PK"
    if with_weights:
        return _read(_configuration(target, target), target, options)
    return _read(file_content(target, MAX_BYTES + 1), target, options)


def read_bytes(content: bytes, target: str, options: ImportOptions) -> NetSpec:
    """Return the net that the bytes of a file describe; `target` names it in messages."""
    if content[:2] == b"PK":
        content = _configuration(io.BytesIO(content), target)
    return _read(content, target, options)


def _configuration(file: Any, target: str) -> bytes:
    """Return config.json of a .keras file; raises NetSpecError."""
    try:
        with zipfile.ZipFile(file) as archive, archive.open("config.json") as opened:
            return opened.read(MAX_BYTES + 1)
    except KeyError:
        raise NetSpecError(
            f"{target}: it has no config.json: no Keras model is saved in it"
        ) from None
    except (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error):
        # (RuntimeError is that of one with a password, or compressed in a way not known here.)
        raise NetSpecError(f"{target}: it is damaged: config.json in it cannot be read") from None


def _read(content: bytes, target: str, options: ImportOptions) -> NetSpec:
    if len(content) > MAX_BYTES:
        raise NetSpecError(f"{target}: more than {MAX_BYTES >> 20} MiB are no configuration")
    try:
        model = json.loads(content)
    except (ValueError, RecursionError):
        raise NetSpecError(f"{target}: its configuration is no JSON") from None
    kind = model.get("class_name") if isinstance(model, dict) else None
    if not isinstance(kind, str) or not isinstance(model.get("config"), dict):
        raise NetSpecError(f"{target}: it is no configuration of a Keras model") from None
    if not _is_model(model):
        raise NetSpecError(
            f"{target}: {printable(kind)} is a class of its own: only Functional and Sequential "
            "models say what their layers are; export the model as ONNX, by its "
            "export(file, format='onnx')"
        )
    mistakes = Mistakes(target)
    net = None
    try:
        net = _Reader(target, model, options, mistakes).read()
    except _LayerError as fault:
        mistakes.add(str(fault), fault.layer, fault.key)
    except RecursionError:
        mistakes.add("its models are too deep in each other")
    mistakes.raise_as(NetSpecError)
    assert net is not None
    return net


class _LayerError(Exception):
    """What is wrong, the path of the layer, and the key."""

    def __init__(self, message: str, layer: str | None = None, key: str | None = None) -> None:
        super().__init__(message)
        self.layer, self.key = layer, key


def _is_model(layer: object) -> bool:
    """Tell whether it is a model that says what its layers are."""
    config = layer.get("config") if isinstance(layer, dict) else None
    return (
        isinstance(layer, dict)
        and isinstance(config, dict)
        and (layer.get("class_name") in _MODELS or "input_layers" in config)
        and isinstance(config.get("layers"), list)
    )


def _is_keras(layer: Mapping[str, Any]) -> bool:
    """Tell whether a class is one of Keras: someone's own may have any name."""
    module = layer.get("module")
    return module is None or str(module).partition(".")[0] == "keras"


def _kind(layer: Mapping[str, Any]) -> str:
    """Return a class as it is looked up: functions of keras.ops have layers' names too."""
    kind, module = str(layer.get("class_name") or None), str(layer.get("module"))
    return f"ops.{kind}" if module.startswith(("keras.src.ops", "keras.ops")) else kind


def _identity(layer: Mapping[str, Any], path: str) -> int | str:
    """Return what a layer that stands at several places has in common there, else its path."""
    number = layer.get("shared_object_id")
    return number if isinstance(number, int) else path


class _Reader:
    """Calls the layers of a model, and of the models in it, in an order in which all is there."""

    def __init__(
        self, target: str, model: dict[str, Any], options: ImportOptions, mistakes: Mistakes
    ) -> None:
        self.target, self.model, self.options, self.mistakes = target, model, options, mistakes
        #: The paths of layers that stand at several places, by what says that they are one.
        self.shared: dict[int | str, str] = {}
        self.calls = 0
        self.depth = 0
        self.builder = Builder("", target, 1)

    def read(self) -> NetSpec | None:
        """Return the net, or None with mistakes noted."""
        self._check_kinds()
        inputs = self._inputs()
        if self.mistakes:
            return None
        sizes = [size for _, shape in inputs for size in shape[1:]]
        batches = {shape[0] for _, shape in inputs}
        if len(batches) > 1:
            self.mistakes.add(
                f"its inputs have batches of {first_of(sorted(map(str, batches)), 4)}"
            )
            return None
        batch = batches.pop()
        # Sizes of layers too: a batch that divides one could be taken for it.
        traced = prime_batch([*sizes, *_numbers(self.model["config"])]) or batch
        name = printable(str(self.model["config"].get("name") or PurePath(self.target).stem))
        self.builder = Builder(name, self.target, batch)
        values = []
        for input_name, shape in inputs:
            try:
                values.append(self._feed(input_name, (traced, *shape[1:])))
            except OperatorError as error:
                raise _LayerError(str(error), input_name) from None
        if not self._model("", self.model, values):
            self.mistakes.add("it has no outputs")
        net = self.builder.finish()
        if all(layer.layer.is_input for layer in net.layers):
            self.mistakes.add("no layer reads its inputs")
        return net

    def _feed(self, name: str, shape: tuple[int, ...]) -> Value:
        """Return an input; of images the Builder has channels behind the batch."""
        if len(shape) not in (4, 5):
            return self.builder.input(name, shape)
        x = self.builder.input(name, (shape[0], shape[-1], *shape[1:-1]))
        order = [0, *range(2, len(shape)), 1]
        return self.builder.transpose(name, x, order, free=True)

    # What there is

    def _check_kinds(self) -> None:
        """Note the classes that are not understood, all in one line."""
        unknown: dict[str, list[str]] = {}
        for path, layer in _layers("", self.model):
            kind = _kind(layer)
            if kind != "InputLayer" and (kind not in OPERATORS or not _is_keras(layer)):
                unknown.setdefault(printable(kind), []).append(printable(path))
        if unknown and self.options.unknown != "zero":
            listed = [f"{kind} ({first_of(paths, 3)})" for kind, paths in unknown.items()]
            self.mistakes.add(
                f"classes of layers that are not understood: {first_of(listed, 12)}; "
                "--unknown=zero takes them as costing nothing"
            )

    def _inputs(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return the names and shapes of the inputs; what is lacking is noted."""
        declared = self._declared()
        given: dict[str, tuple[int, ...]] = {}
        for said, sizes in self.options.input:
            name = said
            if name is None and len(declared) == 1:
                name = next(iter(declared))
            if name not in declared:
                names = ", ".join(declared) or "none"
                problem = "must say which input it is of" if name is None else f'has no "{name}"'
                self.mistakes.add(f"--input {problem}; there are: {names}")
                continue
            given[name] = sizes
        found = []
        for name, dims in declared.items():
            if dims is None and name in given:
                dims = [None] * len(given[name])
            text = "x".join("?" if dim is None else str(dim) for dim in dims or ())
            sizes = given.get(name, ())
            if name in given and (
                len(sizes) != len(dims or ())
                or any(dim not in (None, size) for dim, size in zip(dims or (), sizes, strict=True))
            ):
                self.mistakes.add(f'--input: "{name}" is {text}, not {"x".join(map(str, sizes))}')
            elif name not in given and (dims is None or None in dims[1:]):
                what = f"leaves sizes open ({text})" if dims else "says no shape"
                self.mistakes.add(f'its input "{name}" {what}: give --input {name}=1x...')
            else:
                sizes = sizes or tuple(dim or 1 for dim in dims or ())
                if not sizes or not all(0 < size <= MAX_SIZE for size in sizes):
                    self.mistakes.add(f'its input "{name}" of {text or "no axes"} is none')
                found.append((name, tuple(sizes)))
        if not declared:
            self.mistakes.add("it has no inputs")
        return found

    def _declared(self) -> dict[str, list[int | None] | None]:
        """Return the shapes of the inputs as the file declares them, None where it does not."""
        config = self.model["config"]
        if "input_layers" in config:
            by_name = {_name(layer): layer for layer in config["layers"] if isinstance(layer, dict)}
            names = [name for name, _, _ in _histories(config["input_layers"])]
            return {name: _batch_shape(by_name.get(name, {})) for name in names}
        first = next((layer for layer in config["layers"] if isinstance(layer, dict)), {})
        while _is_model(first) and first["config"]["layers"]:
            first = next(iter(first["config"]["layers"]))
        own = config.get("build_input_shape")
        shape = _shape(own) or _batch_shape(first if isinstance(first, dict) else {})
        is_input = isinstance(first, dict) and first.get("class_name") == "InputLayer"
        return {_name(first) if is_input else "input": shape}

    # Calling

    def _apply(self, path: str, layer: Any, inputs: Sequence[Value]) -> list[Value]:
        """Call a layer that another one holds."""
        if not isinstance(layer, dict) or not isinstance(layer.get("config"), dict):
            raise _LayerError("the layer in it is none", printable(path) or None)
        if layer.get("class_name") == "InputLayer":
            return list(inputs)
        own = _joined(path, _name(layer) or "layer")
        return self._call(own, own, layer, list(inputs), {}, ())

    def _call(
        self, name: str, path: str, layer: dict[str, Any], args: Sequence[Any],
        kwargs: Mapping[str, Any], shapes: Sequence[tuple[int | None, ...] | None],
    ) -> list[Value]:  # fmt: skip
        """Return what a layer gives; `shapes` are those the file says of its outputs."""
        self.calls += 1
        if self.calls > _MOST_CALLS:
            raise _LayerError(f"it has more than {_MOST_CALLS} calls of layers")
        kind, config = _kind(layer), layer["config"]
        key = self.shared.setdefault(_identity(layer, path), path)
        if _is_model(layer):
            return self._model(key, layer, tensors_in(args, kwargs))
        call = Call(self.builder, name, key, kind, config, args, kwargs, self._apply)
        try:
            if config.get("lora_rank"):
                raise OperatorError("factors beside a weight are not understood", "lora_rank")
            if kind not in OPERATORS or not _is_keras(layer):
                return self._unknown(call, shapes)
            made = OPERATORS[kind](call)
        except OperatorError as error:
            raise _LayerError(f"{kind}: {error}", printable(path), error.key) from None
        values = [made] if isinstance(made, Value) else list(made)
        for value, shape in zip(values, shapes, strict=False):
            fits = shape is None or (
                len(shape) == len(value.shape)
                and all(
                    s in (None, have) for s, have in zip(shape[1:], value.shape[1:], strict=True)
                )
            )
            if not fits or max(value.shape) > MAX_SIZE:
                said = "x".join("?" if size is None else str(size) for size in shape or ())
                raise _LayerError(
                    f"{kind}: its output of {format_shape(value.shape[1:])} is not what the file "
                    f"says, {said or '?'}", printable(path)
                )  # fmt: skip
        return values

    def _unknown(self, call: Call, shapes: Sequence[tuple[int | None, ...] | None]) -> list[Value]:
        """Return what a layer gives that costs nothing: what the file says, or what it reads."""
        values = call.values(1)
        outputs = []
        for shape in shapes or [None]:
            sizes = values[0].shape
            if shape is not None and len(shape) > 0 and None not in shape[1:]:
                sizes = (values[0].shape[0], *(size for size in shape[1:] if size is not None))
            outputs.append(self.builder.unknown(call.name, call.kind, values, sizes))
        return outputs

    def _model(self, path: str, model: dict[str, Any], inputs: Sequence[Value]) -> list[Value]:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _LayerError("its models are too deep in each other", printable(path))
        config = model["config"]
        run = self._functional if "input_layers" in config else self._sequential
        made = run(path, config["layers"], config, inputs)
        self.depth -= 1
        return made

    def _sequential(
        self, path: str, layers: list[Any], config: Mapping[str, Any], inputs: Sequence[Value]
    ) -> list[Value]:
        del config
        values = list(inputs)
        for layer in layers:
            values = self._apply(path, layer, values)
        return values

    def _functional(
        self, path: str, layers: list[Any], config: Mapping[str, Any], inputs: Sequence[Value]
    ) -> list[Value]:
        keys = list(_histories(config["input_layers"]))
        if len(keys) != len(inputs):
            raise _LayerError(
                f"it has {len(keys)} inputs, and is given {len(inputs)}", printable(path) or None
            )
        values: dict[_Key, Value] = dict(zip(keys, inputs, strict=True))
        fed = {name for name, _, _ in keys}
        waiting: list[tuple[dict[str, Any], int, list[Any], Any]] = []
        for layer in layers:
            if not isinstance(layer, dict) or not isinstance(layer.get("config"), dict):
                raise _LayerError("one of its layers is none", printable(path) or None)
            if _name(layer) in fed:
                continue
            nodes = layer.get("inbound_nodes")
            for node, inbound in enumerate(nodes if isinstance(nodes, list) else []):
                waiting.append((layer, node, *_arguments(inbound)))
        shapes = _recorded(waiting)
        while waiting:
            left = []
            for layer, node, args, kwargs in waiting:
                if not all(key in values for key in _tensors([args, kwargs])):
                    left.append((layer, node, args, kwargs))
                    continue
                own = _joined(path, _name(layer))
                of_node = shapes.get((_name(layer), node), {})
                said = [of_node.get(i) for i in range(max(of_node, default=-1) + 1)]
                made = self._call(
                    own, own, layer, _filled(args, values), _filled(kwargs, values), said
                )
                values.update({(_name(layer), node, i): each for i, each in enumerate(made)})
            if len(left) == len(waiting):
                layer, _, args, kwargs = left[0]
                missing = next(key for key in _tensors([args, kwargs]) if key not in values)
                raise _LayerError(
                    f'it reads "{printable(missing[0])}", which nothing gives before it',
                    printable(_name(layer)),
                )
            waiting = left
        outputs = list(_histories(config.get("output_layers")))
        for name, _, _ in outputs:
            if not any(key[0] == name for key in values):
                raise _LayerError(f'its output "{printable(name)}" is given by no layer')
        return [values[key] for key in outputs if key in values]


# The file's own words


def _name(layer: Any) -> str:
    """Return the name of a layer."""
    if not isinstance(layer, dict):
        return ""
    config = layer.get("config")
    own = config.get("name") if isinstance(config, dict) else None
    return str(layer.get("name") or own or "")


def _joined(path: str, name: str) -> str:
    """Return the path of a layer in a model, whose own path is empty if it is the outermost."""
    return f"{path}/{name}" if path else name


def _layers(path: str, layer: Any, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all layers in a model, with their paths."""
    if not isinstance(layer, dict) or not isinstance(layer.get("config"), dict) or depth > _DEEPEST:
        return
    if not _is_model(layer):
        yield path, layer
        # (What both directions hold is looked at by what holds it.)
        if layer.get("class_name") == "TimeDistributed":
            yield from _layers(f"{path}/layer", layer["config"].get("layer"), depth + 1)
        return
    for each in layer["config"]["layers"]:
        own = _joined(path, _name(each))
        yield from _layers(own, each, depth + 1)


def _is_history(value: object) -> bool:
    """Tell whether it names a tensor of another layer."""
    return (
        isinstance(value, list)
        and len(value) >= 3
        and isinstance(value[0], str)
        and all(isinstance(each, int) for each in value[1:3])
    )


def _histories(value: Any) -> Iterator[_Key]:
    """Yield the tensors that are named in lists and dictionaries."""
    if _is_history(value):
        yield value[0], value[1], value[2]
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _histories(each)


class _Tensor:
    """A tensor that a layer is called with, and the shape that the file says of it."""

    def __init__(self, key: _Key, shape: Any = None) -> None:
        self.key = key
        self.shape = _shape(shape)


def _arguments(inbound: Any) -> tuple[Any, Any]:
    """Return what a layer is called with in either format, tensors as `_Tensor`."""
    if isinstance(inbound, dict):
        args, kwargs = inbound.get("args", []), inbound.get("kwargs", {})
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise _LayerError(_NO_ARGUMENTS)
        return _with_tensors(args), {name: _with_tensors(each) for name, each in kwargs.items()}
    if _is_history(inbound):
        inbound = [inbound]
    if not isinstance(inbound, list) or not all(map(_is_history, inbound)):
        raise _LayerError(_NO_ARGUMENTS)
    tensors = [_Tensor((each[0], each[1], each[2])) for each in inbound]
    # Tensors that are given by name stand with each tensor.
    named = inbound[0][3] if inbound and len(inbound[0]) > 3 else {}
    return tensors, {
        name: _Tensor((each[0], each[1], each[2])) if _is_history(each) else each
        for name, each in (named.items() if isinstance(named, dict) else ())
    }


def _with_tensors(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_tensors(each) for each in value]
    if not isinstance(value, dict):
        return value
    config = value.get("config")
    if value.get("class_name") == "__keras_tensor__" and isinstance(config, dict):
        history = config.get("keras_history")
        if not isinstance(history, list) or not _is_history(history):
            raise _LayerError("a tensor in it does not say which layer it is from")
        return _Tensor((history[0], history[1], history[2]), config.get("shape"))
    return {name: _with_tensors(each) for name, each in value.items()}


def _each_tensor(value: Any) -> Iterator[_Tensor]:
    if isinstance(value, _Tensor):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _each_tensor(each)


def _tensors(value: Any) -> list[_Key]:
    return [tensor.key for tensor in _each_tensor(value)]


def _recorded(calls: Sequence[tuple[Any, int, Any, Any]]) -> dict[tuple[str, int], dict[int, Any]]:
    """Return the shapes that the file says of the outputs of calls."""
    found: dict[tuple[str, int], dict[int, Any]] = {}
    for _, _, args, kwargs in calls:
        for tensor in _each_tensor([args, kwargs]):
            name, node, index = tensor.key
            if tensor.shape is not None and 0 <= index < 1000:
                found.setdefault((name, node), {})[index] = tuple(tensor.shape)
    return found


def _filled(value: Any, values: Mapping[_Key, Value]) -> Any:
    """Return arguments with values in place of tensors."""
    if isinstance(value, _Tensor):
        return values[value.key]
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    if isinstance(value, dict):
        return {name: _filled(each, values) for name, each in value.items()}
    return value


def _shape(value: Any) -> list[int | None] | None:
    """Return a shape with its batch, None for what is none."""
    if not isinstance(value, list) or not value:
        return None
    fits = all(each is None or (type(each) is int and each > 0) for each in value)
    return list(value) if fits else None


def _batch_shape(layer: Mapping[str, Any]) -> list[int | None] | None:
    """Return the shape that a layer says of its input."""
    config = layer.get("config")
    config = config if isinstance(config, dict) else {}
    return _shape(config.get("batch_shape") or config.get("batch_input_shape"))


def _numbers(value: Any) -> Iterator[int]:
    """Yield the sizes that stand anywhere in a configuration."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, int) and each > 1:
            yield each
