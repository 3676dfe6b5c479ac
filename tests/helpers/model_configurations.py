"""Configurations of models: small ones of each family, and of sizes that were published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent


def _read(name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((_HERE / name).read_text("utf-8"))
    return found


#: By `model_type`, with a number behind further ones: a net of each is built in no time.
SMALL = _read("model_configurations.json")
#: By name: the `config`, what of it decides on layers; the `source`; and the `parameters` that the
#: published weights have, where that is known.
PUBLISHED = _read("published_models.json")
