"""What the demo holds requests to."""

from __future__ import annotations

#: Requests that are answered at once. Python's threads take turns, so that more of them compute no
#: more; but a short answer need not wait for a long one, nor for a process that reads an upload.
THREADS = 8
#: The most bytes of a request: large enough for an ONNX file with the weights of most nets.
MAX_UPLOAD = 64 << 20
