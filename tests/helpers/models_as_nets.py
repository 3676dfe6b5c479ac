"""The predefined nets that are written from configurations of published models.

Run it to write them: `python tests/helpers/models_as_nets.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

from model_configurations import PUBLISHED

from paleo.net.importers.base import ImportOptions
from paleo.net.importers.transformers import net_text

ROOT = Path(__file__).parents[2]


def made(name: str) -> str:
    """Return the text of a net's file."""
    model = PUBLISHED[name]
    data = json.dumps(model["config"]).encode()
    return net_text(data, f"{name}.json", ImportOptions(), model["source"])


def main() -> None:
    """Write all files."""
    for name in PUBLISHED:
        (ROOT / "nets" / f"{name}.json").write_text(made(name), "utf-8")


if __name__ == "__main__":
    main()
