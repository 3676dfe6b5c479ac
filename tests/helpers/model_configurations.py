"""Small configurations of each family, in several forms: a net of each is built in no time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: By `model_type`, with a number behind further ones.
SMALL: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_suffix(".json").read_text("utf-8")
)
