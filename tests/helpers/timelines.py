"""What tests of timelines share: a net whose step is derived by hand, and nets of chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from nets_of_tests import make_net

import paleo

DEVICE = """title = "A device"
[figures]
base_clock = "1 GHz"
multiprocessors = 1
memory_bandwidth = "1 GB/s"
[peak.fp32]
vector = "0.0008 TFLOP/s"
"""
NETWORK = """title = "A network"
[figures]
bandwidth = "8 Gbit/s"
"""


def hardware(folder: Path) -> dict[str, Any]:
    """Return a device of 0.8 GFLOP/s and 1 GB/s, and a network of 1 GB/s."""
    (folder / "device.toml").write_text(DEVICE)
    (folder / "network.toml").write_text(NETWORK)
    return {"device": folder / "device.toml", "network": folder / "network.toml"}


def two_layers() -> paleo.NetSpec:
    """Return a net of two products without biases."""
    product = {"type": "InnerProduct", "use_bias": False}
    return make_net(
        {
            "data": {"type": "Input", "parents": [], "tensor": [2, 1000]},
            "fc1": {"parents": ["data"], "num_outputs": 1000, **product},
            "fc2": {"parents": ["fc1"], "num_outputs": 500, **product},
        },
        "two",
    )


@st.composite
def nets(draw: st.DrawFn) -> paleo.NetSpec:
    """Draw a net with branches, and perhaps a block of split layers in it."""
    layers: dict[str, Any] = {"data": {"type": "Input", "parents": [], "tensor": [4, 32]}}

    def stack(begin: str, prefix: str) -> str:
        own = [begin]
        for number in range(draw(st.integers(1, 5))):
            name = f"{prefix}{number}"
            size = draw(st.integers(1, 5))
            if size == 1 and len(own) > 1:
                parents = draw(st.lists(st.sampled_from(own[1:]), min_size=2, max_size=3))
                layers[name] = {"type": "Concatenate", "parents": parents, "dim": 1}
            else:
                parent = draw(st.sampled_from(own))
                outputs = {"type": "InnerProduct", "num_outputs": 60 * size}
                layers[name] = {"parents": [parent], **outputs}
            own.append(name)
        return own[-1]

    last = stack("data", "a")
    splits = draw(st.integers(0, 6))
    if splits:
        inner: dict[str, Any] = {
            "s1": {"type": "InnerProduct", "parents": [], "num_outputs": 120},
            "s2": {"type": "Concatenate", "parents": ["s1@all"], "dim": 1},
            "s3": {"type": "InnerProduct", "parents": ["s2@self"], "num_outputs": 60},
            "s4": {"type": "InnerProduct", "parents": ["s2@self"], "num_outputs": 180},
        }
        block = {"type": "ModelParallel", "parents": [last], "splits": splits, "layers": inner}
        layers["block"] = block
        parents = ["block/s3@all", "block/s4@all"]
        layers["joined"] = {"type": "Concatenate", "parents": parents, "dim": 1}
        last = "joined"
    stack(last, "b")
    return make_net(layers, "random")
