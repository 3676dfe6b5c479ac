"""`paleo convert`, and nets of other frameworks on every command: what comes out, what is refused.

The importers have tests of their own; here are the files that none of them can read, each
through the command line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import paleo
from paleo.cli import cli

PROTOTXT = """
name: "small"
input: "data"
input_shape { dim: 4 dim: 3 dim: 8 dim: 8 }
layer {
  name: "block/conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 16 kernel_size: 3 }
}
layer { name: "block/relu" type: "ReLU" bottom: "conv" top: "conv" }
layer {
  name: "score" type: "InnerProduct" bottom: "conv" top: "score"
  inner_product_param { num_output: 10 }
}
"""
UNKNOWN = PROTOTXT + 'layer { name: "odd" type: "Oddity" bottom: "score" top: "odd" }\n'
MODULES = """
import torch
from torch import nn


def net():
    return nn.Sequential(nn.Linear(8, 4), nn.ReLU())


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def needs(size):
    return nn.Linear(size, size)


def no_module():
    return 5


number = 5
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


@pytest.fixture
def prototxt(tmp_path: Path) -> str:
    pytest.importorskip("google.protobuf", reason="needs protobuf")
    path = tmp_path / "small.prototxt"
    path.write_text(PROTOTXT, "utf-8")
    return str(path)


def test_a_converted_net_is_a_net_file(prototxt: str, tmp_path: Path) -> None:
    target = tmp_path / "small.json"
    done = run("convert", prototxt, "-o", str(target))
    assert (done.exit_code, done.output) == (0, "")
    written = json.loads(target.read_text("utf-8"))
    assert list(written["layers"]["block"]["layers"]) == ["conv", "relu"]
    net = paleo.load(target)
    assert net.name == "small"
    assert net.layers == paleo.load(prototxt).layers
    # 3*3*3*16 + 16, and (8 - 3 + 1)^2 * 16 features.
    assert paleo.summarize(net).num_params == 448 + 6 * 6 * 16 * 10 + 10


def test_a_converted_net_goes_to_standard_output_by_default(prototxt: str) -> None:
    done = run("convert", prototxt, "--name=other", "--source=a page", "--batch_size=7")
    assert done.exit_code == 0
    net = paleo.loads(done.stdout)
    assert (net.name, net.source) == ("other", "a page")
    assert paleo.build(net).batch_size == 7


def test_a_net_file_can_be_converted_too() -> None:
    assert paleo.loads(run("convert", "nin").stdout).layers == paleo.load("nin").layers
    done = run("convert", "alex_v2_4gpu")
    assert done.exit_code == 1
    assert done.stderr == "paleo: alex_v2_4gpu: a net with ModelParallel is written by hand only\n"


def test_every_command_takes_the_file(prototxt: str) -> None:
    assert "block/conv" in run("summary", prototxt).stdout
    done = run("simulate", prototxt, "--batch_size=64", "--format=json")
    assert json.loads(done.stdout)["runs"][0]["rows"][0]["batch_size"] == 64
    assert run("summary", prototxt, "--verbose").stderr == f"paleo: net {prototxt}: {prototxt}\n"


def test_what_is_not_understood_is_named_or_listed(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf", reason="needs protobuf")
    path, target = tmp_path / "odd.prototxt", tmp_path / "odd.json"
    path.write_text(UNKNOWN, "utf-8")
    done = run("convert", str(path), "-o", str(target))
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert "Oddity" in line
    assert "odd" in line
    assert "--unknown=zero" in line
    assert not target.exists()
    done = run("convert", str(path), "-o", str(target), "--unknown=zero")
    assert done.exit_code == 0
    assert done.stderr == "paleo: note: operators that are not known, and not counted: Oddity (1)\n"
    # Whoever reads the file later is told as well.
    assert "not counted: Oddity (1)" in run("summary", str(target)).output
    for cost_model in ("paleo2017", "roofline"):
        done = run("simulate", str(target), f"--cost_model={cost_model}", "--format=json")
        assert "Oddity" in json.loads(done.stdout)["runs"][0]["not_counted"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--input=1x3xx", "expected a shape such as 1x3x224x224"),
        ("--input==1x3", "expected a shape such as 1x3x224x224"),
        ("--dim=5", "expected a name and sizes, such as seq=1024,4096"),
        ("--phase=tests", "is not one of"),
    ],
)
def test_what_the_options_do_not_parse_is_wrong_usage(
    option: str, message: str, prototxt: str
) -> None:
    done = run("summary", prototxt, option)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert message in line


def onnx_file(path: Path, *nodes: Any, inputs: Any = None, initializers: Any = ()) -> None:
    """Write an ONNX model that turns X into Y."""
    import onnx

    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        list(nodes),
        "graph",
        inputs or [helper.make_tensor_value_info("X", floats, [2, 8])],
        [helper.make_tensor_value_info("Y", floats, None)],
        initializer=list(initializers),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())


def truncated_onnx(path: Path) -> None:
    import onnx

    onnx_file(path, onnx.helper.make_node("Relu", ["X"], ["Y"]))
    path.write_bytes(path.read_bytes()[:-30])


def cyclic_onnx(path: Path) -> None:
    import onnx

    node = onnx.helper.make_node
    onnx_file(path, node("Add", ["X", "Y"], ["a"]), node("Relu", ["a"], ["Y"]))


def unknown_domain(path: Path) -> None:
    import onnx

    onnx_file(path, onnx.helper.make_node("Rotor", ["X"], ["Y"], domain="com.elsewhere"))


def missing_external_data(path: Path) -> None:
    import onnx

    shape = onnx.TensorProto(name="shape", data_type=onnx.TensorProto.INT64, dims=[2])
    shape.data_location = onnx.TensorProto.EXTERNAL
    shape.external_data.add(key="location", value="/etc/passwd")
    onnx_file(path, onnx.helper.make_node("Reshape", ["X", "shape"], ["Y"]), initializers=[shape])


def open_dimension(path: Path) -> None:
    import onnx

    value = onnx.helper.make_tensor_value_info("X", onnx.TensorProto.FLOAT, ["batch", "words"])
    onnx_file(path, onnx.helper.make_node("Relu", ["X"], ["Y"]), inputs=[value])


def text(content: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(content, "utf-8")

    return write


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 40)


LAYER = 'layer { name: "%d" type: "ReLU" bottom: "data" top: "data" }\n'
BAD_FILES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a truncated prototxt": ("a.prototxt", text(PROTOTXT[:200])),
    "garbage as a prototxt": ("b.prototxt", garbage),
    "JSON as a prototxt": ("c.prototxt", text('{"name": "net", "layers": {}}')),
    "an empty prototxt": ("d.prototxt", text("")),
    "a solver": ("e.prototxt", text('net: "train.prototxt"\nbase_lr: 0.01\n')),
    "a million layers": (
        "f.prototxt",
        text(PROTOTXT + LAYER % 1 * 1_000_000),
    ),
    "a truncated ONNX file": ("g.onnx", truncated_onnx),
    "garbage as ONNX": ("h.onnx", garbage),
    "a prototxt as ONNX": ("i.onnx", text(PROTOTXT)),
    "an empty ONNX file": ("j.onnx", text("")),
    "a cycle": ("k.onnx", cyclic_onnx),
    "an unknown domain": ("l.onnx", unknown_domain),
    "a shape outside the file": ("m.onnx", missing_external_data),
    "an open dimension": ("n.onnx", open_dimension),
    "no file": ("o.onnx", lambda path: None),
    "a folder": ("p.prototxt", lambda path: path.mkdir()),
    "a prototxt as a net file": ("q.json", text(PROTOTXT)),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_file_that_cannot_be_read_is_one_line(kind: str, tmp_path: Path) -> None:
    name, write = BAD_FILES[kind]
    if name.endswith(".onnx"):
        pytest.importorskip("onnx", reason="needs onnx")
    else:
        pytest.importorskip("google.protobuf", reason="needs protobuf")
    path, target = tmp_path / name, tmp_path / "out.json"
    write(path)
    before = sorted(tmp_path.iterdir())
    done = run("convert", str(path), "-o", str(target))
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"paleo: {path}: ")
    assert len(line) < 400
    assert done.stdout == ""
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("modules:net", ["--input=1x9"], "modules:net"),
        ("modules:net", [], "--input"),
        ("modules:nte", ["--input=1x8"], "did you mean 'net'"),
        ("modules:number", ["--input=1x8"], "module"),
        ("modules:needs", ["--input=1x8"], "size"),
        ("modules:no_module", ["--input=1x8"], "int"),
        ("modules:Branching", ["--input=1x8"], "branches on data"),
        ("no_such_module:net", ["--input=1x8"], "no_such_module"),
        ("broken:net", ["--input=1x8"], "ZeroDivisionError"),
        ("leaving:net", ["--input=1x8"], "SystemExit"),
        ("modules", ["--input=1x8"], "python:"),
    ],
)
def test_a_target_that_cannot_be_read_is_one_line(
    target: str,
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    monkeypatch.chdir(tmp_path)
    for name, source in {
        "modules": MODULES,
        "broken": "1 / 0\n",
        "leaving": "raise SystemExit(0)\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(source, "utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
    done = run("convert", f"python:{target}", *options, "-o", "out.json")
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"paleo: python:{target}: ")
    assert message in line
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("file", "library", "extra"),
    [("a.onnx", "onnx", "onnx"), ("a.prototxt", "google.protobuf", "caffe")],
)
def test_a_missing_library_is_named(
    file: str, library: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / file
    path.write_text(PROTOTXT, "utf-8")
    for name in [name for name in sys.modules if name.split(".")[0] == library.split(".")[0]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    done = run("summary", str(path))
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"paleo: {path}: ")
    assert f'pip install "paleo[{extra}]"' in line


def test_a_file_is_not_converted_onto_itself(prototxt: str) -> None:
    done = run("convert", prototxt, "-o", prototxt)
    assert done.exit_code == 1
    assert done.stderr == (f"paleo: {prototxt}: it is the file that is converted; name another\n")
    assert Path(prototxt).read_text("utf-8") == PROTOTXT


def test_a_dash_is_standard_output(
    prototxt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("--verbose", "convert", prototxt, "-o", "-")
    assert paleo.loads(done.stdout).name == "small"
    assert done.stderr == "paleo: standard output: small, 4 layers\n"
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["summary", "nin", "--input=1x3x8x8"], "--input: none of the nets is of another"),
        (["summary", "nin", "--dim=x=3"], "nin: it has no dims to set"),
        (["simulate", "nin", "--phase=test"], "--phase: none of the nets is a prototxt or"),
        (["convert", "nin", "--unknown=zero"], "--unknown: none of the nets is of another"),
        (["convert", "nin", "--name="], "name: expected the net's name, got an empty one"),
        (["convert", "nin", "--batch_size=0"], "batch_size: expected a whole number"),
    ],
)
def test_an_option_that_nobody_looks_at_is_refused(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"paleo: {message}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("models.py", "python:models:Net"),
        ("net.caffemodel", "give the .prototxt"),
        ("net.pth", "name the PyTorch module"),
        ("net.h5", "export the net as ONNX"),
    ],
)
def test_what_stands_beside_a_net_is_no_net(name: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x80")
    done = run("summary", str(path))
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"paleo: {path}: ")
    assert message in line


def test_what_a_module_prints_is_not_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "talking", raising=False)
    (tmp_path / "talking.py").write_text(
        "from torch import nn\nprint('imported')\n\ndef net():\n    print('made')\n"
        "    return nn.Linear(4, 2)\n",
        "utf-8",
    )
    done = run("convert", "python:talking:net", "--input=1x4")
    assert paleo.summarize(paleo.loads(done.stdout)).num_params == 10
    assert done.stderr.splitlines() == ["imported", "made"]
