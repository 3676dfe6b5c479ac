"""Programs of torch.export, as objects and as files, and modules that are given themselves."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import paleo
from paleo.core.errors import NetSpecError
from paleo.net.importers import ImportOptions, importer_of

torch: Any = pytest.importorskip("torch", reason="needs PyTorch")
nn = torch.nn


class Small(nn.Module):  # type: ignore[name-defined]
    """A convolution in a block, a mean, and a product, without a word of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(4, 5)
        self.register_buffer("scale", torch.ones(5))

    def forward(self, image: Any) -> Any:
        with torch.no_grad():
            image = image * 2.0
        pooled = self.block(image).mean((2, 3)).reshape(image.shape[0], -1)
        return self.head(pooled) * self.scale


PARAMS = 4 * 3 * 3 * 3 + 4 + 2 * 4 + 5 * 4 + 5


def exported(batch: int = 2, size: int = 8, *, is_open: bool = False, wide: bool = False) -> Any:
    open_sizes = {0: torch.export.Dim("batch")} if is_open else {}
    if wide:
        open_sizes |= {2: torch.export.Dim("height", min=4), 3: torch.export.Dim("width", min=4)}
    return torch.export.export(
        Small().eval(), (torch.zeros(batch, 3, size, size),), dynamic_shapes=(open_sizes or None,)
    )


def flops_of_convolution(net: paleo.NetSpec, batch: int) -> Any:
    layers = {layer.name: layer for layer in paleo.summarize(net, batch_size=batch).layers}
    return layers["block/0"].forward_flops


def check(net: paleo.NetSpec, batch: int, side: int = 6) -> None:
    graph = paleo.build(net)
    assert graph.num_params == PARAMS
    assert graph.nodes[0].output[0] == batch
    assert graph.nodes[-1].output == (batch, 5)
    for several in (1, 7):
        assert flops_of_convolution(net, several) == several * side**2 * 4 * 2 * 27
        assert paleo.build(net.with_batch(several)).nodes[-1].output == (several, 5)


@pytest.mark.parametrize("is_open", [False, True])
def test_a_program_is_a_net(is_open: bool) -> None:
    program = exported(is_open=is_open)
    text = str(program.graph)
    check(paleo.load(program), 2)
    assert str(program.graph) == text  # it stays as it is


@pytest.mark.parametrize("is_open", [False, True])
def test_a_file_is_a_net_without_its_weights(is_open: bool, tmp_path: Path) -> None:
    path = tmp_path / "small.pt2"
    torch.export.save(exported(3, is_open=is_open), path)
    check(paleo.load(path), 3)
    bare = rewritten(path, lambda content: None)  # of which nothing but the graph is there
    net = paleo.load(bare)
    check(net, 3)
    assert net.name == "bare"
    assert importer_of(str(path)) == "pytorch"


def test_sizes_that_are_open_are_those_of_the_input() -> None:
    program = exported(is_open=True, wide=True)
    check(paleo.load(program), 2)
    given = ImportOptions(input=((None, (4, 3, 12, 12)),))
    check(paleo.load(program, given), 4, side=10)
    named = ImportOptions(input=(("image", (4, 3, 12, 12)),))
    assert paleo.load(program, named).layers == paleo.load(program, given).layers


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ((None, (2, 3, 9, 8)),),
            "its input image is 2x3x9x8 here, and 2x3x8x8 where it was exported, with these sizes",
        ),
        (((None, (3, 3, 8)),), "its input image is 3x3x8 here, and 2x3x8x8 where it was exported"),
        ((("x", (2, 3, 8, 8)),), "--input is given for what is no input; it takes image"),
    ],
)
def test_sizes_that_are_fixed_stay(given: Any, message: str) -> None:
    with pytest.raises(NetSpecError) as caught:
        paleo.load(exported(), ImportOptions(input=given))
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"ExportedProgram: {message}")


def test_a_module_is_a_net() -> None:
    options = ImportOptions(input=((None, (2, 3, 8, 8)),), phase="test")
    check(paleo.load(Small(), options), 2)
    traced = torch.fx.symbolic_trace(Small())
    net = paleo.load(traced, options)
    assert paleo.build(net).num_params == PARAMS
    with pytest.raises(
        NetSpecError, match=r"the module Small: say what it takes, .* importing=paleo\.Impor"
    ):
        paleo.load(Small())
    with pytest.raises(NetSpecError, match="expected a name or a file"):
        paleo.load(torch.zeros(3))


def two_products() -> Any:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))


#: What asks about one net or several, beside `load`.
ASKED: dict[str, Callable[..., Any]] = {
    "compare": lambda net, **given: paleo.compare([net, net], **given),
    "edit": paleo.edit,
    "footprint": paleo.footprint,
    "largest_batch": lambda net, **given: paleo.largest_batch(net, 2**30, **given),
    "memory": lambda net, **given: paleo.memory(net, device="K40", **given),
    "metrics": lambda net, **given: paleo.metrics(net, device="K40", **given),
    "scenario": lambda net, **given: paleo.scenario(net, device="K40", **given),
    "series": lambda net, **given: paleo.series(net, "0.num_outputs=7,8", **given),
    "simulate": lambda net, **given: paleo.simulate([net], device="K40", **given),
    "simulate one": lambda net, **given: paleo.simulate(net, device="K40", **given),
    "summarize": paleo.summarize,
    "timeline": lambda net, **given: paleo.timeline(net, device="K40", **given),
}


@pytest.mark.parametrize("asked", ASKED)
def test_whatever_asks_about_a_net_takes_a_module(asked: str) -> None:
    """Also of a Sequential, which is no list of nets, though it has entries."""
    options = ImportOptions(input=((None, (3, 6)),))
    given = {"batch_size": 8} if asked not in ("edit", "series", "largest_batch") else {}
    found = ASKED[asked](two_products(), importing=options, **given)
    assert found == ASKED[asked](paleo.load(two_products(), options), **given)


def test_a_program_is_one_net_too() -> None:
    (run,) = paleo.simulate(exported(is_open=True), device="K40", batch_size=4).runs
    assert run.scenario.net.name == "ExportedProgram"


class Elsewhere(nn.Module):  # type: ignore[name-defined]
    """A product and a scale, whose numbers the forward pass reads from objects of another kind."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(4, 3)) for _ in range(2)])
        self.variables = SimpleNamespace(of=list(self.weights), scale=torch.ones(4))

    def forward(self, x: Any) -> Any:
        first, second = self.variables.of
        return (x @ first.T + x @ second.T) * self.variables.scale


def test_parameters_that_are_read_from_elsewhere_are_parameters() -> None:
    net = paleo.load(Elsewhere(), ImportOptions(input=((None, (2, 3)),)))
    assert paleo.build(net).num_params == 2 * 4 * 3


def rewritten(path: Path, change: Callable[[Any], None]) -> Path:
    """Return a copy of a file with another graph, and with nothing besides."""
    with zipfile.ZipFile(path) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("models/model.json")]
        content = json.loads(archive.read(name))
    change(content)
    bare = path.with_name("bare.pt2")
    with zipfile.ZipFile(bare, "w") as archive:
        archive.writestr(name, json.dumps(content))
    return bare


def calls(target: str) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        node = content["graph_module"]["graph"]["nodes"][0]
        node["target"] = target

    return change


def has_size(text: str) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        size = {"as_expr": {"expr_str": text, "hint": {"as_int": 2}}}
        values = content["graph_module"]["graph"]["tensor_values"]
        values["image"]["sizes"][0] = size

    return change


def opens_a_file(content: Any) -> None:
    """Have an operator map a tensor to a file, which PyTorch makes if there is none."""
    graph = content["graph_module"]["graph"]
    given: Any = {
        "filename": {"as_string": "ran"},
        "shared": {"as_bool": True},
        "size": {"as_int": 4},
        "out": {"as_tensor": {"name": "image"}},
    }
    inputs = [{"name": key, "arg": arg, "kind": 1 + (key == "out")} for key, arg in given.items()]
    called = {"target": "torch.ops.aten.from_file.out", "name": "mapped", "inputs": inputs}
    outputs = [{"as_tensor": {"name": "mapped"}}]
    graph["nodes"].insert(0, {**graph["nodes"][0], **called, "outputs": outputs})
    graph["tensor_values"]["mapped"] = graph["tensor_values"]["image"]


RUN = "__import__('pathlib').Path('ran').touch()"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (calls("torch.os.system"), "the operator torch.os.system is not understood"),
        (calls("torch.ops.aten.add.Tensor;x"), "the operator torch.ops.aten.add.Tensor;x is not"),
        (calls("torch.ops.aten.save"), "the operator torch.ops.aten.save is not understood"),
        (opens_a_file, "the operator torch.ops.aten.from_file.out is not understood"),
        (calls("builtins.exec"), "the operator builtins.exec is not understood"),
        (has_size(RUN), f"the size {RUN} is not understood"),
        (has_size("exit()"), "the size exit() is not understood"),
    ],
)
def test_nothing_of_a_file_is_run(
    change: Callable[[Any], None],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.pt2"
    torch.export.save(exported(), path)
    with pytest.raises(NetSpecError) as caught:
        paleo.load(rewritten(path, change))
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{tmp_path / 'bare.pt2'}: {message}")
    assert not Path("ran").exists()


def test_pickles_of_a_file_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "small.pt2"
    torch.export.save(exported(), path)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("unpickled")

    monkeypatch.setattr(torch, "load", refuse)
    monkeypatch.setattr("pickle.loads", refuse)
    assert paleo.build(paleo.load(path)).num_params == PARAMS


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x80\x02}q\x00."])
def test_what_is_no_program_is_one_line(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(data)
    with pytest.raises(NetSpecError) as caught:
        paleo.load(path)
    assert str(caught.value) == (
        f"{path}: not a program that torch.export.save of PyTorch 2.8 or newer has written"
    )


@pytest.mark.parametrize("drop", ["graph_module", "nodes", "tensor_values", "signature", "inputs"])
def test_a_graph_that_lacks_something_is_one_line(drop: str, tmp_path: Path) -> None:
    def change(content: Any) -> None:
        holder = content["graph_module"]
        for place in (content, holder, holder["graph"]):
            place.pop(drop, None)

    path = tmp_path / "small.pt2"
    torch.export.save(exported(), path)
    with pytest.raises(NetSpecError) as caught:
        paleo.load(rewritten(path, change))
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{path.with_name('bare.pt2')}: ")
