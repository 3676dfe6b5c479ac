"""What is said of weights that are given in the place of a net."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import paleo
from paleo.core.errors import NetSpecError

ADVICE = "; for its layers name the PyTorch module, as in python:models:Net"
TENSORS: dict[str, Any] = {
    "__metadata__": {"format": "pt"},
    "embed": {"dtype": "BF16", "shape": [100, 8], "data_offsets": [0, 1600]},
    "bias": {"dtype": "BF16", "shape": [8], "data_offsets": [1600, 1616]},
    "steps": {"dtype": "I64", "shape": [], "data_offsets": [1616, 1624]},
}


def write(path: Path, tensors: dict[str, Any]) -> None:
    header = json.dumps(tensors).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))


def said(path: Path) -> str:
    with pytest.raises(NetSpecError) as caught:
        paleo.load(path)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{path}: ")
    return line.removeprefix(f"{path}: ")


def test_a_file_is_counted_from_its_header(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    write(path, TENSORS)
    # 100 x 8 + 8 of the one type, a single number of the other.
    assert said(path) == f"weights without layers: 808 BF16 and 1 I64 in 3 tensors{ADVICE}"


def test_an_index_counts_the_tensors_of_its_files(tmp_path: Path) -> None:
    write(tmp_path / "model-1.safetensors", TENSORS)
    write(tmp_path / "model-2.safetensors", {"head": {"dtype": "F32", "shape": [8, 1000]}})
    places = {"embed": "model-1.safetensors", "head": "model-2.safetensors"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    held = "8,000 F32 and 800 BF16 in 2 tensors"
    assert said(index) == f"weights without layers: {held}{ADVICE}"
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "small", "hidden_size": 8}')
    advice = ADVICE.replace("for its layers ", f"give {config}, or ")
    assert said(index) == f"weights without layers: {held}{advice}"


@pytest.mark.parametrize(
    "data", [b"", b"\xff" * 40, (5).to_bytes(8, "little") + b"[1,2]", (3).to_bytes(8, "little")]
)
def test_what_is_damaged_is_not_counted(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    path.write_bytes(data)
    assert said(path) == f"weights without layers{ADVICE}"


def test_an_index_looks_for_its_files_beside_it_alone(tmp_path: Path) -> None:
    write(tmp_path / "far.safetensors", TENSORS)
    folder = tmp_path / "inner"
    folder.mkdir()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"embed": "../far.safetensors"}}))
    assert said(index) == f"weights without layers{ADVICE}"


def test_a_net_of_that_name_is_a_net(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", TENSORS)
    layers = {
        "data": {"type": "Input", "tensor": [1, 4]},
        "out": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 2},
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"name": "small", "layers": layers}))
    assert paleo.build(paleo.load(path)).num_params == 4 * 2 + 2
