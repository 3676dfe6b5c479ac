"""What the tests of Caffe's files share: small nets as text, and reading them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import paleo
from paleo.core.operations import Pass
from paleo.net.importers import ImportOptions

__all__ = ["IMAGE", "Faults", "Read", "data", "faults", "layer", "multiply_adds", "outputs"]
__all__ += ["Notes", "notes", "params", "read", "read_file"]

Read = Callable[..., paleo.Graph]
Faults = Callable[..., list[str]]
Notes = Callable[..., tuple[str, ...]]


def layer(kind: str, body: str = "", name: str = "x", bottom: str = "data") -> str:
    """Return a layer whose top has its name."""
    bottoms = " ".join(f'bottom: "{each}"' for each in bottom.split())
    return f'layer {{ name: "{name}" type: "{kind}" {bottoms} top: "{name}" {body} }}\n'


def data(*shape: int) -> str:
    return f'input: "data" input_shape {{ {" ".join(f"dim: {size}" for size in shape)} }}\n'


IMAGE = data(2, 8, 9, 9)


def spec_of(file: Path, **options: Any) -> paleo.NetSpec:
    from paleo.net.importers import caffe

    return caffe.read(str(file), ImportOptions(**options))


def read_file(file: Path, **options: Any) -> paleo.Graph:
    return paleo.build(spec_of(file, **options))


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    """Return what a net says that it takes for granted."""

    def make(text: str, **options: Any) -> tuple[str, ...]:
        file = tmp_path / "net.prototxt"
        file.write_text(text)
        return spec_of(file, **options).notes

    return make


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def make(text: str | bytes, **options: Any) -> paleo.Graph:
        file = tmp_path / "net.prototxt"
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_file(file, **options)

    return make


@pytest.fixture
def faults(read: Read, tmp_path: Path) -> Faults:
    def make(text: str | bytes, **options: Any) -> list[str]:
        with pytest.raises(paleo.NetSpecError) as caught:
            read(text, **options)
        lines = str(caught.value).split("\n")
        assert len(lines) == len(caught.value.mistakes)
        start = f"{tmp_path / 'net.prototxt'}: "
        assert all(line.startswith(start) for line in lines)
        return [line.removeprefix(start) for line in lines]

    return make


def outputs(graph: paleo.Graph) -> dict[str, tuple[Any, ...]]:
    return {node.name: tuple(node.output) for node in graph.nodes}


def params(graph: paleo.Graph) -> dict[str, int]:
    return {node.name: node.num_params for node in graph.nodes if node.num_params}


def multiply_adds(graph: paleo.Graph) -> float:
    products = [node for node in graph.nodes if node.type_name in ("Convolution", "InnerProduct")]
    return (
        sum(
            float(operation.flops)
            for node in products
            for operation in node.layer.operations(Pass.FORWARD, node.inputs, 4)
        )
        / 2
    )
