"""One layer, run by the PyTorch executor on given inputs and parameters, in fp64."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import paleo

torch = pytest.importorskip("torch", reason="needs PyTorch")

from paleo.measure.executors import find_executor  # noqa: E402

RNG = np.random.default_rng(6)
EXECUTOR: Any = find_executor("torch", "cpu", "fp64")


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def run(
    kind: str,
    keys: dict[str, Any],
    *inputs: Any,
    parameters: list[np.ndarray] | None = None,
    training: bool = True,
) -> np.ndarray:
    """Return what a layer gives; `parameters` are in the shapes of PyTorch's operators."""
    arrays = [np.asarray(x) for x in inputs]
    layers: dict[str, Any] = {
        f"in{i}": {"type": "Input", "tensor": list(x.shape)}
        if x.shape[0] == arrays[0].shape[0] or x.shape[0] != 1
        else {"type": "Parameter", "shape": list(x.shape[1:]), "trainable": False}
        for i, x in enumerate(arrays)
    }
    layers["x"] = {"type": kind, "parents": list(layers), **keys}
    graph = paleo.build(paleo.loads(json.dumps({"name": "n", "layers": layers})))
    node = graph.nodes[-1]
    planned = EXECUTOR._planned(graph)[-1]
    if isinstance(planned, paleo.PaleoError):
        raise planned
    tensors = []
    for k, x in zip(node.parents, arrays, strict=True):
        value = EXECUTOR._planned(graph)[k].value
        tensor = torch.from_numpy(np.ascontiguousarray(x.transpose(value.order)))
        tensors.append(tensor.to(value.tensor.dtype))
    left = list(parameters or [])
    with torch.no_grad():
        for stage in planned.stages:
            held = EXECUTOR.held(stage)
            for each in EXECUTOR.learnt([held]):
                each.copy_(torch.from_numpy(left.pop(0)) if left else torch.zeros_like(each))
            tensors = [stage.run(tensors, held, training)]
    assert not left
    found = tensors[0].permute(np.argsort(planned.value.order).tolist()).numpy()
    assert found.shape == node.output
    return found


def close(found: np.ndarray, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
