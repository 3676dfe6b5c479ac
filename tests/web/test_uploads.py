"""Uploads: read as the importers read files, within bounds, and never written or run."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import paleo
from paleo.web import parsing, uploads
from paleo.web.parsing import Job
from paleo.web.uploads import BusyError, UnlimitedError, Uploads, checked_file

NETS = Path(__file__).parents[2] / "nets"
TINY = b"""
name: "tiny"
layer { name: "data" type: "Input" top: "data"
        input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 4 kernel_size: 3 } }
"""
#: Within limits that a test reaches in no time; an interpreter with its packages needs the memory.
QUICK = {"seconds": 5, "layers": 100, "characters": 10_000}


def net_text(layers: int) -> bytes:
    found: dict[str, Any] = {"data": {"type": "Input", "parents": [], "tensor": [1, 4]}}
    for i in range(layers - 1):
        found[f"d{i}"] = {
            "type": "Dropout",
            "parents": [next(reversed(found))],
            "dropout_keep_prob": 0.5,
        }
    return json.dumps({"name": "long", "layers": found}).encode()


def refused(data: bytes, file: str, **limits: Any) -> list[str]:
    """Return what is said of a file, read in this process."""
    found = parsing.answer(data, Job(file, **{**QUICK, **limits}))
    assert list(found) == ["errors"]
    assert all("\n" not in line for line in found["errors"])
    return list(found["errors"])


def test_a_net_file_is_read_to_a_net_file() -> None:
    data = (NETS / "nin.json").read_bytes()
    found = Uploads().read(data, "mine.json")
    assert (found["name"], found["file"], found["layers"]) == ("nin", "mine.json", 19)
    assert paleo.loads(found["text"]).layers == paleo.load("nin").layers


def test_a_prototxt_is_read() -> None:
    pytest.importorskip("google.protobuf", reason="needs protobuf")
    found = Uploads().read(TINY, "tiny.prototxt")
    # 3 x 3 windows of 3 channels, 4 filters and their biases.
    assert paleo.summarize(paleo.loads(found["text"])).num_params == 3 * 3 * 3 * 4 + 4
    assert found["notes"] == ["imported from caffe"]


def onnx_net(external: str = "") -> bytes:
    onnx = pytest.importorskip("onnx", reason="needs onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = helper.make_tensor("w", kind, [5, 4], [0.0] * 20)
    if external:
        weights = onnx.TensorProto(name="w", data_type=kind, dims=[5, 4], data_location=1)
        weights.external_data.add(key="location", value=external)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        "tiny",
        [helper.make_tensor_value_info("x", kind, ["batch", 5])],
        [helper.make_tensor_value_info("y", kind, ["batch", 4])],
        [weights],
    )
    opset = [helper.make_opsetid("", 17)]
    data: bytes = helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    return data


def test_an_onnx_file_is_read() -> None:
    found = Uploads().read(onnx_net(), "tiny.onnx")
    assert paleo.summarize(paleo.loads(found["text"])).num_params == 5 * 4


def keras_net(*, is_zip: bool = True) -> bytes:
    """Return what Keras saves of a model of one product."""
    fed = {"name": "x", "batch_shape": [None, 5]}
    layers = [
        {"class_name": "InputLayer", "config": fed},
        {"class_name": "Dense", "config": {"name": "d", "units": 4}},
    ]
    text = json.dumps({"class_name": "Sequential", "config": {"name": "tiny", "layers": layers}})
    if not is_zip:
        return text.encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("config.json", text)
        archive.writestr("model.weights.h5", b"never opened")
    return file.getvalue()


@pytest.mark.parametrize("file", ["tiny.keras", "tiny.keras.json", "TINY.KERAS"])
def test_a_keras_model_is_read(file: str) -> None:
    reader = Uploads()
    found = reader.read(keras_net(is_zip=file != "tiny.keras.json"), file, "--input=3x5")
    assert paleo.summarize(paleo.loads(found["text"])).num_params == 5 * 4 + 4
    assert (found["notes"], found["options"]) == (["imported from keras"], "--input=3x5")
    # A link has its net file under its own name; another server reads that as what it is.
    assert len(Uploads().net(found["text"], file, found["options"]).net.layers) == found["layers"]


def test_a_keras_model_by_the_name_of_a_net_file_is_said_to_be_one() -> None:
    (line,) = refused(keras_net(is_zip=False), "tiny.json")
    assert line == "tiny.json: the configuration of a Keras model: name it tiny.keras.json"


def test_what_is_uploaded_is_what_importers_parse() -> None:
    """Those that have other readers build something, as PyTorch's, read no bytes."""
    from paleo.net import importers

    parses = {
        name for name in importers.IMPORTERS if hasattr(importers._module(name), "read_bytes")
    }
    assert parses == set(parsing.PARSERS)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("net.pt2", "only commands read it: `paleo convert` makes a net file of it"),
        ("saved_model.pb", "only commands read it: `paleo convert` makes a net file of it"),
        ("model.safetensors", "weights: name the PyTorch module that they are for"),
        ("net.h5", "not understood: export the net as ONNX"),
        ("net.txt", "expected a file that ends in .json, .prototxt, .pbtxt, .prototext, .keras or"),
    ],
)
def test_it_is_said_what_to_do_about_other_files(name: str, said: str) -> None:
    with pytest.raises(paleo.NetSpecError) as caught:
        checked_file(name)
    assert str(caught.value).startswith(f"{name}: {said}")


def test_no_folder_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").mkdir()
    (tmp_path / "a.json" / "saved_model.pb").touch()
    monkeypatch.chdir(tmp_path)
    assert Uploads().read(net_text(3), "a.json")["layers"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("file", ["tiny.onnx", "nin.json", "tiny.prototxt", "tiny.keras"])
def test_reading_opens_no_file_and_imports_nothing_of_the_users(file: str, tmp_path: Path) -> None:
    """Every file that the process opens while it reads is one of Python's or of a package."""
    if file.endswith("prototxt"):
        pytest.importorskip("google.protobuf", reason="needs protobuf")
    (tmp_path / "outside.bin").write_bytes(b"\0" * 80)
    data = {
        "nin.json": (NETS / "nin.json").read_bytes(),
        "tiny.prototxt": TINY,
        "tiny.keras": keras_net(),
    }.get(file) or onnx_net(str(tmp_path / "outside.bin"))
    program = (
        "import sys, json\n"
        "opened = []\n"
        "def hook(event, arguments):\n"
        "    if event in ('open', 'os.system', 'subprocess.Popen', 'socket.connect', 'exec'):\n"
        "        opened.append((event, repr(arguments[:2])))\n"
        "from paleo.web.parsing import Job, answer\n"
        "sys.addaudithook(hook)\n"
        f"found = answer(sys.stdin.buffer.read(), Job({file!r}))\n"
        "assert 'text' in found, found\n"
        "print(json.dumps(opened))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=data, capture_output=True, check=True, cwd=tmp_path
    )
    opened = [tuple(each) for each in json.loads(done.stdout)]
    places = (sys.prefix, sys.base_prefix, str(Path(paleo.__file__).parent))
    for event, arguments in opened:
        if event == "open":
            assert any(place in arguments for place in places), arguments
            assert "'w" not in arguments
        else:
            # Importing a module of a package runs its code.
            assert event == "exec", event


@pytest.mark.parametrize(
    "name",
    [
        None, "", 3, "net", "net.txt", "../net.json", "a/b.json", "a\\b.json", "/etc/passwd",
        "a\0.json",
        "a\n.json", "python:os.json", "x" * 300 + ".json", "\ud800.json", "net.json/", "net.py",
        "net.caffemodel",
    ],
)  # fmt: skip
def test_only_names_of_nets_without_a_folder_are_taken(name: Any) -> None:
    with pytest.raises(paleo.NetSpecError) as caught:
        checked_file(name)
    assert str(caught.value).isprintable()


def test_a_name_may_be_any_other_text() -> None:
    for name in ("<script>alert(1)</script>.json".replace("/", ""), "-x.onnx", "é 深.PROTOTXT"):
        assert checked_file(name) == name


@pytest.mark.parametrize(
    ("data", "file", "said"),
    [
        (b"[" * 200_000, "a.json", "nested too deeply"),
        (b'{"layers":{"a":' * 30_000, "a.json", "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "a.json", "nested too deeply"),
        (b"{", "a.json", "not JSON"),
        (b"\xff\xfe{}", "a.json", "not JSON"),
        (b"null", "a.json", "expected a JSON object"),
        (b"[1]", "a.json", "expected a JSON object"),
        (net_text(101), "a.json", "101 layers"),
        (net_text(2).replace(b"[1, 4]", b"[1," + b"9" * 5000 + b"]"), "a.json", "too large"),
    ],
)  # fmt: skip
def test_a_bad_net_file_is_refused_in_a_line(data: bytes, file: str, said: str) -> None:
    (line,) = refused(data, file)
    assert line.startswith(f"{file}: ")
    assert said in line


def test_blocks_that_would_blow_up_are_counted_before_they_are_written_out() -> None:
    # 90 layers, each in 1024 slices.
    inside = {f"d{i}": {"type": "Dropout", "parents": ["d0"]} for i in range(90)}
    block = {"type": "ModelParallel", "parents": [], "splits": 1024, "layers": inside}
    (line,) = refused(json.dumps({"name": "a", "layers": {"b": block}}).encode(), "a.json")
    assert "it has 92,160 layers" in line


def test_many_mistakes_are_cut() -> None:
    layers = {f"x{i}": {"type": "Nothing", "parents": []} for i in range(99)}
    found = refused(json.dumps({"name": "a", "layers": layers, "b": 1, "c": 1}).encode(), "a.json")
    assert len(found) == 101
    assert found[-1] == "a.json: there are more mistakes, which are not listed"


@pytest.mark.parametrize(
    ("data", "file"),
    [
        (b"layer {" * 50_000, "a.prototxt"),
        (b"\x00\x01", "a.prototxt"),
        (b"{}", "a.prototxt"),
        (b"layer { name: 'a' type: 'Convolution' bottom: 'b' top: 'a' }", "a.prototxt"),
        (b"\x0a" * 1000, "a.onnx"),
        (b"PK\x03\x04", "a.onnx"),
        (b"{}", "a.onnx"),
        (b"{}", "a.keras"),
        (b"PK\x03\x04", "a.keras"),
        pytest.param(keras_net()[:60], "a.keras", id="cut off"),  # the time stands in it
    ],
)
def test_bad_files_of_frameworks_are_refused(data: bytes, file: str) -> None:
    pytest.importorskip("google.protobuf", reason="needs protobuf")
    if file.endswith("onnx"):
        pytest.importorskip("onnx", reason="needs onnx")
    for line in refused(data, file):
        assert line.startswith(f"{file}: ")


def test_an_onnx_file_of_graphs_in_graphs_is_refused() -> None:
    onnx = pytest.importorskip("onnx", reason="needs onnx")
    data = onnx_net()
    model = onnx.ModelProto.FromString(data)
    nested = model.graph.SerializeToString()

    def field(number: int, payload: bytes) -> bytes:
        size, found = len(payload), b""
        while size > 127:
            found += bytes([size & 127 | 128])
            size >>= 7
        return bytes([number << 3 | 2]) + found + bytes([size]) + payload

    for _ in range(2000):  # an attribute (5) of a node (1) has a graph (6)
        nested = field(1, field(5, field(6, nested)))
    (line,) = refused(field(7, nested) + b"\x08\x08", "deep.onnx")
    assert line.startswith("deep.onnx: not an ONNX model")


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the process that reads do something else."""

    def start(program: str) -> None:
        monkeypatch.setattr(uploads, "_START", program.replace("{", "{{").replace("}", "}}"))

    return start


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        "import time; time.sleep(60)",
        "while True: pass",
        "import sys; sys.stdin.buffer.read(); import os; os._exit(3)",
        "import os; os.abort()",
        "print('nonsense')",
        "import sys\nwhile True: sys.stdout.write('x' * 65536)",
        "",
    ],
)
def test_a_process_that_does_not_answer_is_stopped(
    program: str, slow: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(program)
    monkeypatch.setattr(uploads, "Job", lambda file, options: Job(file, options, seconds=1))
    began = time.monotonic()
    with pytest.raises(paleo.NetSpecError, match="too much to be read here"):
        Uploads().read(net_text(2), "a.json")
    assert time.monotonic() - began < 60  # and not the minute that it would take


def read_apart(program: str, job: Job) -> tuple[int, bytes]:
    """Return the status and the output of a process that reads b"{}"."""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin
    assert process.stdout
    process.stdin.write(replace(job, size=2).to_line() + b"{}")
    process.stdin.flush()  # and stays open: the server is there
    with process:
        output = process.stdout.read()
    return process.returncode, output


def test_memory_is_limited() -> None:
    resource = pytest.importorskip("resource", reason="needs POSIX limits")
    assert resource
    program = (
        "from paleo.web import parsing\n"
        "def hog(*_): return bytearray(2 << 30)\n"
        "parsing.read = hog\n"
        "parsing.main()"
    )
    status, output = read_apart(program, Job("a.json", memory=600 << 20))
    assert status == 0
    assert json.loads(output) == {
        "errors": ["a.json: too large or nested too deeply to be read here"]
    }


def test_the_process_can_write_no_file(tmp_path: Path) -> None:
    pytest.importorskip("resource", reason="needs POSIX limits")
    target = tmp_path / "made"
    program = (
        "from paleo.web import parsing\n"
        f"def write(*_): open({str(target)!r}, 'wb').write(b'x' * 10000)\n"
        "parsing.read = write\n"
        "parsing.main()"
    )
    status, _ = read_apart(program, Job("a.json"))
    assert status != 0
    assert not target.exists() or target.stat().st_size == 0


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a way to end without a word")
def test_what_reads_ends_with_the_server(tmp_path: Path) -> None:
    """Even where that is killed, while a file is being read."""
    said = tmp_path / "said"
    reader = (
        "import sys; sys.path[:] = {path!r}\n"
        "import os, time\n"
        "from pathlib import Path\n"
        "from paleo.web import parsing\n"
        "def busy(*_):\n"
        f"    Path({str(said)!r}).write_text(str(os.getpid()))\n"
        "    while True: pass\n"
        "parsing._limit = lambda job: None\n"
        "parsing.read = busy\n"
        "parsing.main()"
    )
    program = (
        "from paleo.web import uploads\n"
        f"uploads._START = {reader!r}\n"
        "uploads.Uploads().read(b'{}', 'a.json')"
    )
    server = subprocess.Popen([sys.executable, "-c", program])
    until = time.monotonic() + 60
    while not (said.exists() and said.read_text()):
        assert time.monotonic() < until
        time.sleep(0.05)
    server.kill()
    server.wait(30)
    pid = int(said.read_text())
    until = time.monotonic() + 15  # the server would have stopped it after 20 seconds
    while is_running(pid):
        assert time.monotonic() < until
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # In a container without an init, it may be left for nobody to ask about.
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return not state.stdout.startswith("Z")


def test_without_limits_uploads_are_refused_unless_they_are_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    for ask in (
        lambda: Uploads().read(net_text(2), "a.json"),
        lambda: Uploads().net(net_text(2).decode(), "a.json"),
    ):
        with pytest.raises(UnlimitedError, match="--unlimited_uploads"):
            ask()
    found = Uploads(unlimited=True).read(net_text(2), "a.json")
    assert found["layers"] == 2


@pytest.mark.slow
def test_only_a_few_are_read_at_once(
    slow: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "Job", lambda file, options: Job(file, options, seconds=2))
    slow("import sys; sys.stdin.buffer.read(); import time; time.sleep(60)")
    reader = Uploads(at_once=1)
    errors: list[Exception] = []

    def read() -> None:
        try:
            reader.read(net_text(2), "a.json")
        except paleo.PaleoError as error:
            errors.append(error)

    threads = [threading.Thread(target=read, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [type(error) for error in errors] == [BusyError, paleo.NetSpecError]


@pytest.mark.slow
def test_the_server_parses_only_what_a_process_has_found_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[bytes] = []
    output = uploads._output

    def counting(data: bytes, job: Job) -> bytes | None:
        runs.append(data)
        return output(data, job)

    monkeypatch.setattr(uploads, "_output", counting)
    reader = Uploads()
    text = reader.read(net_text(3), "a.json")["text"]
    assert len(runs) == 1
    net = reader.net(text, "a.json").net
    assert len(net.layers) == 3
    assert reader.net(text, "a.json").net is net
    assert len(runs) == 1
    # Another one goes through a process first, once.
    other = net_text(4).decode()
    assert len(reader.net(other, "b.onnx").net.layers) == 4
    assert len(reader.net(other, "b.onnx").net.layers) == 4
    assert len(runs) == 2
    with pytest.raises(paleo.NetSpecError, match="not JSON"):
        reader.net("{", "a.json")
    wrongs: tuple[Any, ...] = (None, "", 3, {}, "\ud800")
    for wrong in wrongs:
        with pytest.raises(paleo.NetSpecError, match="expected the text"):
            reader.net(wrong, "a.json")


@pytest.mark.slow
def test_what_was_read_is_remembered_within_bounds() -> None:
    reader = Uploads(most=2000)
    for layers in range(2, 8):
        reader.read(net_text(layers), "a.json")
    assert 0 < reader._answers.weight <= 2000
    assert 0 < reader._nets.weight <= 2000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--input=1x2", "--input: the net is not of another framework"),
        ("-o x", "options: unknown option '-o'"),
        ("a" * 1001, "options: more than 1000 characters"),
        ("--input=1\n2", "options: expected those of a command in one line"),
        (3, "options: expected those of a command in one line"),
        ("\ud800", "options: expected those of a command in one line"),
    ],
)
def test_options_that_are_none_of_the_file_are_refused_before_it_is_read(
    options: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Uploads()
    monkeypatch.setattr(reader, "_run", None)
    with pytest.raises(paleo.SettingError) as caught:
        reader.read(net_text(3), "a.json", options)
    assert str(caught.value.mistakes[0]).startswith(said)


@pytest.mark.slow
def test_a_file_is_read_again_with_other_options() -> None:
    reader = Uploads()
    read = [reader.read(onnx_net(), "a.onnx", options) for options in ("", "--dim=batch=3")]
    assert [each["options"] for each in read] == ["", "--dim=batch=3"]
    assert [json.loads(each["text"])["layers"]["x"]["tensor"] for each in read] == [[1, 5], [3, 5]]


def test_an_empty_file_is_said_to_be_empty() -> None:
    with pytest.raises(paleo.NetSpecError, match=r"^a\.json: the file is empty$"):
        Uploads().read(b"", "a.json")


@pytest.mark.parametrize("importer", ["caffe", "onnx", "pytorch"])
def test_bytes_and_files_are_read_alike(importer: str, tmp_path: Path) -> None:
    from paleo.net.importers import ImportOptions, read, read_bytes

    if importer == "pytorch":
        with pytest.raises(paleo.NetSpecError, match="names code, not a file"):
            read_bytes(importer, b"", "python:x:y", ImportOptions())
        return
    if importer == "caffe":
        pytest.importorskip("google.protobuf", reason="needs protobuf")
    data, name = (TINY, "a.prototxt") if importer == "caffe" else (onnx_net(), "a.onnx")
    path = tmp_path / name
    path.write_bytes(data)
    target = str(path)
    found = read_bytes(importer, data, target, ImportOptions())
    assert found == read(importer, target, ImportOptions())
