"""Finding and reading nets: by the name of a predefined one, by path, or from text.

A path may be that of a Caffe prototxt, a Keras, ONNX or .pt2 file or a folder of TensorFlow's,
"python:package.module:name" a PyTorch module, "timm:name" and "torchvision:name" nets of these
packages: an importer reads those.

Predefined nets are installed with the package; in a checkout or an editable install they
are in the folder `nets` beside it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from paleo.core.checks import MAX_SIZE, python_int, shown
from paleo.core.errors import Mistakes, NetSpecError
from paleo.core.files import names_in, read_bytes
from paleo.core.quantity import Quantity, is_array, largest, np, whole_array
from paleo.core.registry import unknown
from paleo.net.decode import Body, decode
from paleo.net.graph import build, infer_nodes
from paleo.net.importers import (
    CODE,
    TEXTS,
    ImportOptions,
    hint,
    importer_of,
    read,
    read_object,
    read_text,
)
from paleo.net.lengths import SEQ, notes_at
from paleo.net.reader import parse
from paleo.net.spec import Description, NetSpec, Sweep

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = (_PACKAGE / "nets", _PACKAGE.parent / "nets")


def _predefined() -> dict[str, str]:
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    return {name: f"{folder}/{name}.json" for name in names_in(folder, ".json")} if folder else {}


def _by_number(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts resnet18 before resnet101."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def net_names() -> list[str]:
    """Return the names of the predefined nets."""
    return sorted(_predefined(), key=_by_number)


def net_path(net: str | os.PathLike[str]) -> Path:
    """Return the file of a net.

    A name is a predefined net. A path is that file; where there is none, `nets/NAME.json`
    and `NAME.json` are the predefined net too, so that an example works in any folder.
    Raises UnknownNameError for a name that is not known, NetSpecError for a missing file.
    """
    text = os.fspath(net)
    path = Path(text)
    nets = _predefined()
    if text in nets:
        return Path(nets[text])
    if os.path.exists(text):  # noqa: PTH110  # False for what cannot be a path
        return path
    if path.suffix == ".json" and path.stem in nets and str(path.parent) in (".", "nets"):
        return Path(nets[path.stem])
    if path.suffix or path.name != text:
        raise NetSpecError(f"{text}: no such file")
    raise unknown(
        "net",
        text,
        net_names(),
        "; `paleo nets` lists them, a .json, .prototxt, .keras, .onnx or .pt2 works too",
    )


def net_source(net: str | os.PathLike[str]) -> str:
    """Return where a net is read from: a path, or the target as it is. Raises as `net_path`."""
    target = os.fspath(net)
    return target if target.startswith(CODE) else os.fspath(net_path(target))


@runtime_checkable
class TorchNet(Protocol):
    """A module or an exported program of PyTorch, as far as types go."""

    @property
    def state_dict(self) -> Any: ...


#: What `load` takes, and so whatever asks about a net.
NetLike = str | os.PathLike[str] | NetSpec | TorchNet
#: The same for isinstance: one net, though some modules can be iterated over.
ONE_NET: Any = str | os.PathLike | NetSpec | TorchNet


def load(
    net: NetLike,
    importing: ImportOptions | None = None,
    *,
    dims: Mapping[str, Quantity] | None = None,
) -> NetSpec:
    """Return a net by name, from a file, or as it is.

    A file that ends in .prototxt, .keras, .onnx or .pt2 is read by an importer, and so is the
    folder of a TensorFlow SavedModel, "python:package.module:name", a PyTorch module or a function
    that returns one, "timm:name" or "torchvision:name", a net that the installed package makes
    without weights, and the config.json of a Hugging Face model or the folder that holds it.
    `importing` has what those do not say themselves. Only such targets ever run code. A
    torch.nn.Module (a torch.fx.GraphModule is one) and a torch.export.ExportedProgram may be given
    themselves, with the shapes that a module takes in `importing`: `input=((None, (1, 8)),)`.
    `dims` are sizes of named dimensions, in the place of the file's: `dims={"seq": 4096}`, as if
    they stood in `importing`.

    Raises NetSpecError with every mistake of the file, UnknownNameError for a name that is
    not known.

    >>> net = paleo.load("alex_v2")
    >>> net.name, len(net.layers)
    ('alex_v2', 15)
    """
    if dims:
        importing = replace(importing or ImportOptions(), dims=dims)
    if isinstance(net, NetSpec):
        return net.with_dims(**(dims or {}))
    try:
        target = os.fspath(net)  # type: ignore[arg-type]
    except TypeError:
        spec = read_object(net, importing or ImportOptions())
        if spec is not None:
            from paleo.net.writer import dumps  # here: nets of our own do without

            return loads(dumps(spec), file=spec.file)
        raise NetSpecError(f"a net: expected a name or a file, got {shown(net)}") from None
    importer = importer_of(target)
    if importer is not None:
        return _imported(importer, target, importing or ImportOptions())
    path = net_path(target)
    if (instead := _of_weights(target) or hint(target)) is not None:
        raise NetSpecError(f"{target}: {instead}")
    try:
        text = read_bytes(path)
    except IsADirectoryError:
        raise NetSpecError(f"{target}: a directory, not a net file") from None
    except OSError as error:
        raise NetSpecError(f"{target}: {error.strerror or error}") from None
    check_no_keras(text, target)
    found = loads(text, file=target)
    return found.with_dims(**importing.dims) if importing else found


def check_no_keras(text: bytes, file: str) -> None:
    """Raise NetSpecError for the configuration of a Keras model under the name of a net file."""
    if b'"class_name"' in text and b'"config"' in text and b'"parents"' not in text:
        name = f"{Path(file).stem}.keras.json"
        raise NetSpecError(f"{file}: the configuration of a Keras model: name it {name}")


def _of_weights(target: str) -> str | None:
    """Return what to give instead of weights or what stands beside them; None for others."""
    if not target.endswith((".safetensors", ".json")):
        return None
    from paleo.net.importers import weights  # here: predefined nets do without

    return weights.hint(target)


def _imported(importer: str, target: str, options: ImportOptions) -> NetSpec:
    """Return the net that an importer reads, or that it has read before."""
    from paleo.net.importers import cache  # here: nets of our own do without
    from paleo.net.writer import dumps

    source = net_source(target)
    if importer in TEXTS:
        text = read_text(importer, source, options)
        return loads(text, file=target).with_dims(**options.dims)
    entry = cache.entry(importer, source, options)
    kept = entry.text() if entry else None
    # As its net file would be read: what the reader refuses, no command sees.
    text = dumps(read(importer, source, options)) if kept is None else kept
    net = loads(text, file=target)
    if entry and kept is None:
        entry.keep(text)
    return net


def loads(text: str | bytes, file: str | None = None) -> NetSpec:
    """Return the net that a text in the net-spec format describes.

    `file` names it in messages. Raises NetSpecError with every mistake: of the format, of
    parents, and of shapes at the text's own batch size.

    >>> net = paleo.loads('''{"name": "small", "layers": {
    ...     "data": {"type": "Input", "tensor": [8, 28, 28, 1]},
    ...     "scores": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 10}}}''')
    >>> [layer.name for layer in net.layers]
    ['data', 'scores']
    """
    return _read(decode(text, file), file, None)


def _read(body: Body, file: str | None, chosen: Mapping[str, int] | None) -> NetSpec:
    """Return the net that a decoded file describes, with these sizes of its dimensions."""
    mistakes = Mistakes(file)
    net = parse(body, file, mistakes, chosen)
    if mistakes:
        infer_nodes(net, mistakes)
    mistakes.raise_as(NetSpecError)
    if net.few is not net and not _is_even(net):
        net = replace(net, layers=tuple(net.layers))
    if net.dims or net.repeats:
        net = replace(net, described=(_Described(body, file), net.layers))
    build(net.few)  # the nodes are kept: those at other batch sizes are made from them
    return net


def _is_even(net: NetSpec) -> bool:
    """Tell whether blocks that are made when they are asked for get and do the same as others."""
    layers: Any = net.layers
    try:
        nodes = {node.name: node.like for node in build(net.few).nodes}
    except NetSpecError:  # what is wrong is said of all
        return False
    before, own = (
        [nodes.get(spec.name) for spec in layers.block(number)]
        for number in (layers.like - 1, layers.like)
    )
    return before == own and len(nodes) == len(layers.few)


class _Described(Description):
    """A decoded net file that names dimensions or repeats blocks.

    `named`, `written` and `notes` are the net's name, its dimensions and its notes before any were
    chosen.
    """

    body: Body

    def __init__(
        self,
        body: Body,
        file: str | None,
        named: str | None = None,
        written: Mapping[str, Any] | None = None,
        notes: Sequence[str] | None = None,
    ) -> None:
        self.body = body
        self.file = file
        self.named: str = named or body["name"]
        self.written: Mapping[str, Any] = body.get("dims", {}) if written is None else written
        self.notes: Sequence[str] = body.get("notes", []) if notes is None else notes

    def read(self, dims: Mapping[str, Any]) -> NetSpec:
        chosen = {name: python_int(size) for name, size in dims.items()}
        if any(map(is_array, chosen.values())):
            return self._swept(chosen)
        before = self.body.get("dims", {})
        after = {**before, **{name: chosen[name] for name in before if name in chosen}}
        others = [f"{name}={after[name]}" for name in after if after[name] != self.written[name]]
        name = " ".join([self.named, ", ".join(others)]) if others else self.named
        given = self.body.with_values(name=name)
        if SEQ in chosen and "notes" in given:
            given = given.with_values(notes=notes_at(self.notes, chosen[SEQ]))
        body = given.with_values(dims=self.body.like(after))
        # The file's own dimensions are looked at, so that a name that is none is said.
        net = _read(given, self.file, chosen)
        described = _Described(body, self.file, self.named, self.written, self.notes)
        return replace(net, described=(described, net.layers))

    def _swept(self, chosen: Mapping[str, Any]) -> NetSpec:
        """Return the net with arrays of sizes of its dimensions."""
        mistakes = Mistakes(self.file)
        arrays: dict[str, Any] = {
            name: whole_array(size, MAX_SIZE) for name, size in chosen.items() if is_array(size)
        }
        for name, sizes in arrays.items():
            if sizes is None:
                wanted = f"expected whole numbers from 1 to {MAX_SIZE}"
                mistakes.add(wanted, key=f"dims.{name}")
        mistakes.raise_as(NetSpecError)
        try:
            np.broadcast_shapes(*(sizes.shape for sizes in arrays.values()))
        except ValueError:
            raise NetSpecError(
                f"{self.file or self.named}: arrays of dims differ in shape"
            ) from None
        net = self.read({**chosen, **{name: largest(sizes) for name, sizes in arrays.items()}})
        sizes = {name: largest(one) if name in arrays else one for name, one in chosen.items()}
        every = {**self.body.get("dims", {}), **sizes, **arrays}
        read = parse(self.body, self.file, mistakes, every)
        mistakes.raise_as(NetSpecError)
        sweep = Sweep(arrays, {spec.name: spec.layer for spec in read.layers})
        several = ", ".join(f"{name}={size.min()}..{size.max()}" for name, size in arrays.items())
        return replace(net, name=f"{self.named} {several}", described=None, sweep=sweep)

    def with_batch(self, batch_size: int) -> NetSpec | None:
        body = _with_batch(self.body, batch_size)
        if body is None:
            return None
        net = _read(body, self.file, {})
        described = _Described(body, self.file, self.named, self.written, self.notes)
        return replace(net, described=(described, net.layers))


def _with_batch(body: Body, batch_size: int) -> Body | None:
    """Return a net or a block whose inputs have another batch; None if one's is no number."""
    layers = Body([])
    for name, layer in body["layers"].items():
        found: Body | None = layer
        if "layers" in layer:
            found = _with_batch(layer, batch_size)
        elif layer["type"] == "Input":
            first, *others = layer["tensor"] if isinstance(layer["tensor"], list) else [None]
            is_said = isinstance(first, int)
            found = layer.with_values(tensor=[batch_size, *others]) if is_said else None
        if found is None:
            return None
        layers[name] = found
    return body.with_values(layers=layers)
