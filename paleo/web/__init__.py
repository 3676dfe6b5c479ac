"""The live demo: a server, and a page in which the model itself answers.

Nothing here computes: answers come from the Python API, charts from `paleo.charts`, tables from
`paleo.tables`. Flask and waitress are imported on use.
"""

from __future__ import annotations

from typing import Any

__all__ = ["MAX_UPLOAD", "THREADS", "create_app"]

#: Requests that are answered at once. Python's threads take turns, so that more of them compute no
#: more; but a short answer need not wait for a long one, nor for a process that reads an upload.
THREADS = 8
#: The most bytes of a request: large enough for an ONNX file with the weights of most nets.
MAX_UPLOAD = 64 << 20


def create_app(**options: Any) -> Any:
    """Return the demo as a WSGI application; see `paleo.web.app.create_app`."""
    # Here, since the process that reads uploads imports this package too.
    from paleo.web.app import create_app

    return create_app(**options)
