"""The predefined nets that are written from configurations of published models.

Run it to write them: `python tests/helpers/models_as_nets.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from paleo.net.importers.base import ImportOptions  # noqa: E402
from paleo.net.importers.transformers import net_text  # noqa: E402
from tests.helpers.model_configurations import PUBLISHED  # noqa: E402


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
