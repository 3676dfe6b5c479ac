"""Configurations of models: small ones of each family, and of sizes that were published."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import paleo

_HERE = Path(__file__).parent


def _read(name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((_HERE / name).read_text("utf-8"))
    return found


#: By `model_type`, with a number behind further ones: a net of each is built in no time.
SMALL = _read("model_configurations.json")
#: By name: the `config`, what of it decides on layers; the `source`; and the `parameters` that the
#: published weights have, where that is known.
PUBLISHED = _read("published_models.json")


def _further_sizes() -> set[str]:
    """Return the published models of which there is a smaller one of the same kind."""
    kinds: dict[str, list[str]] = {}
    for name in sorted(PUBLISHED, key=lambda name: PUBLISHED[name].get("parameters") or math.inf):
        config = PUBLISHED[name]["config"]
        kinds.setdefault(config.get("model_type") or str(sorted(config)), []).append(name)
    return {name for names in kinds.values() for name in names[1:]}


#: The predefined nets that differ in more than sizes: what is tried on every net is on these.
DIFFERENT = [name for name in paleo.net_names() if name not in _further_sizes()]
#: The same, each with one of the cost models in turn: for what takes all of them too long.
IN_TURN = list(zip(itertools.cycle(paleo.COST_MODELS), DIFFERENT, strict=False))
