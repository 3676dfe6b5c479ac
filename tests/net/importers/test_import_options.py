"""What a file of another framework leaves open, as a line of options."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

import paleo
from paleo.core.errors import NetSpecError
from paleo.net.importers import ImportOptions, importer_of, read_bytes
from paleo.net.importers.options import LOOKED_AT, option_words, parse_options

LINES = [
    ("caffe", "--input=1x3x8x8", ImportOptions(((None, (1, 3, 8, 8)),))),
    ("caffe", "--input data=1x3x8x8", ImportOptions((("data", (1, 3, 8, 8)),))),
    ("onnx", "--input=a=1,4 --input=b=5", ImportOptions((("a", (1, 4)), ("b", (5,))))),
    ("onnx", "--dim N=2  --dim=a=b=3", ImportOptions(dims={"N": 2, "a=b": 3})),
    ("onnx", "--dim='two words=2'", ImportOptions(dims={"two words": 2})),
    ("caffe", "--phase test --unknown=zero", ImportOptions(phase="test", unknown="zero")),
    ("caffe", "--phase=train", ImportOptions()),
    ("caffe", "--proposals=100", ImportOptions(proposals=100)),
    ("pytorch", "--proposals=300", ImportOptions(proposals=300)),
    ("onnx", "--value=a=1,-2.5 --value=b=0.1", ImportOptions(values={"a": (1, -2.5), "b": (0.1,)})),
    (None, " ", ImportOptions()),
]


@pytest.mark.parametrize(("importer", "line", "options"), LINES, ids=[line for _, line, _ in LINES])
def test_a_line_says_options_and_options_make_a_line(
    importer: str | None, line: str, options: ImportOptions
) -> None:
    assert parse_options(line, importer) == options
    again = shlex.join(option_words(options, importer))
    assert parse_options(again, importer) == options


EVERY = [f"--{option}" for option in LOOKED_AT]
WRONG = [
    ("--input=1x3xx", "--input: expected a shape such as 1x3x224x224 or data=1x3x224x224"),
    ("--input", "--input: expected a shape such as 1x3x224x224 or data=1x3x224x224"),
    ("--dim=N", "--dim: expected a name and a size, such as sequence=128"),
    ("--dim=N=-1", "--dim: expected a name and a size, such as sequence=128"),
    ("--proposals=0", "--proposals: expected 1 or more, got 0"),
    ("--proposals=many", '--proposals: expected a whole number, got "many"'),
    ("--value=a=", "--value: expected a name and numbers, such as new_shape=1,3,448,448"),
    ("--value=a=1,nan", "--value: expected a name and numbers, such as new_shape=1,3,448,448"),
    ("--unknown=none", "--unknown: expected error or zero, got 'none'"),
    ("--phase=test", "--phase: the net is not a prototxt or PyTorch module"),
    ("--dims=N=1", "options: unknown option '--dims' (did you mean '--dim'?)"),
    (
        "1x3x8x8",
        f"options: unknown option '1x3x8x8' (there are: {', '.join(EVERY)})",
    ),
    ("-o x", "options: unknown option '-o'"),
    ("--dim='N=1", "options: a quotation mark is not closed"),
]


@pytest.mark.parametrize(("line", "said"), WRONG, ids=[line for line, _ in WRONG])
def test_what_is_wrong_in_a_line_is_said(line: str, said: str) -> None:
    with pytest.raises(paleo.SettingError) as caught:
        parse_options(line, "onnx")
    assert str(caught.value.mistakes[0]).startswith(said)


def test_every_mistake_is_said() -> None:
    with pytest.raises(paleo.SettingError) as caught:
        parse_options("--value=N=1 --input=x --size=3", None)
    assert [str(each).partition(":")[0] for each in caught.value.mistakes] == [
        "--value", "--input", "--input", "options",
    ]  # fmt: skip


def test_an_importer_has_the_options_alone_that_it_looks_at() -> None:
    options = ImportOptions(((None, (1, 3)),), {"N": 2}, "test", "zero")
    assert option_words(options, "caffe") == ["--input=1x3", "--phase=test", "--unknown=zero"]
    assert option_words(options, "onnx") == ["--input=1x3", "--dim=N=2", "--unknown=zero"]
    assert option_words(options, None) == ["--dim=N=2"]  # as a net file that names N


def test_a_saved_model_is_a_folder_or_its_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = tmp_path / "saved_model.pb"
    assert importer_of(str(tmp_path)) is None
    assert importer_of(str(graph)) == "tensorflow"
    with pytest.raises(NetSpecError, match=r"saved_model\.pb: no such file"):
        paleo.load(graph)
    graph.write_bytes(b"")
    assert importer_of(str(tmp_path)) == "tensorflow"
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    said = r'reading it needs tensorflow; install it with: pip install "paleo\[tensorflow\]"'
    for target in (tmp_path, graph):
        with pytest.raises(NetSpecError, match=said):
            paleo.load(target)
    # What is uploaded is not given to TensorFlow.
    with pytest.raises(NetSpecError, match="only commands read it"):
        read_bytes("tensorflow", b"", graph.name, ImportOptions())
