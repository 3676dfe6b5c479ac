"""What several test files share."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from nets_of_tests import make_net

import paleo

# TensorFlow's own kernels for CPUs take no dilation and no groups; oneDNN's do, which it turns on
# by itself on newer processors alone.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

# How long examples take on a machine that does other things too is not what is tested.
settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any")


@pytest.fixture(autouse=True)
def _columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables be as wide as in a pipe, whatever terminal the tests are run in."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every test import nets anew, and leave the user's cache folder alone."""
    monkeypatch.setenv("PALEO_CACHE", "")


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


def pytest_collection_finish() -> None:
    """Leave what was collected out of garbage collections, which would go through it each time."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Look for garbage once at the end: pytest looks five times, through all nets that are kept."""
    gc.collect()
    gc.freeze()
