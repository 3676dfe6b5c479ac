"""What several test files share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

import paleo

# TensorFlow's own kernels for CPUs take no dilation and no groups; oneDNN's do, which it turns on
# by itself on newer processors alone.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def make_net(layers: dict[str, Any], name: str = "net") -> paleo.NetSpec:
    return paleo.loads(json.dumps({"name": name, "layers": layers}))


@pytest.fixture
def net() -> Callable[..., paleo.NetSpec]:
    """Make a net-spec of layers as in a file."""
    return make_net


@pytest.fixture
def one_layer() -> Callable[..., paleo.Graph]:
    """Make a graph of an input, optionally a layer before, and one layer."""

    def make(
        shape: list[int], layer: dict[str, Any], before: dict[str, Any] | None = None
    ) -> paleo.Graph:
        layers: dict[str, Any] = {"data": {"type": "Input", "parents": [], "tensor": shape}}
        if before:
            layers["before"] = {"parents": ["data"], **before}
        layers["layer"] = {"parents": [next(reversed(layers))], **layer}
        return paleo.build(make_net(layers))

    return make
