"""Nets that tests write as a file has them."""

from __future__ import annotations

import functools
import json
from typing import Any

import paleo


def make_net(layers: dict[str, Any], name: str = "net") -> paleo.NetSpec:
    return paleo.loads(json.dumps({"name": name, "layers": layers}))


@functools.cache
def predefined(name: str) -> paleo.NetSpec:
    """Return a predefined net, read once for all tests of a process."""
    return paleo.load(name)
