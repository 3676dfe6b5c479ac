"""The page's HTML and where its files are, for the server and for the report in one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: The folder of the page's files.
STATIC = Path(__file__).parent / "static"
#: Where the page has its data.
_DATA = '<script type="application/json" id="choices">%CHOICES%</script>'


def data_block(value: Any) -> str:
    """Return a value as JSON that can stand in HTML: no text in it ends the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_with(name: str, value: Any) -> str:
    """Return the page with a value in a block of data with this id."""
    text = (STATIC / "index.html").read_text("utf-8")
    return text.replace(
        _DATA, f'<script type="application/json" id="{name}">{data_block(value)}</script>'
    )
