"""An importer of files that end in .dense: the sizes of dense layers, the input's first."""

from __future__ import annotations

import json
from pathlib import Path

from paleo import ImportOptions, NetSpec, NetSpecError, loads


def read(target: str, options: ImportOptions) -> NetSpec:
    """Return the net of a file; raises NetSpecError if it has no sizes."""
    try:
        first, *sizes = map(int, Path(target).read_text("utf-8").split())
    except (OSError, ValueError):
        raise NetSpecError(f"{target}: expected the sizes of layers, such as: 784 500 10") from None
    layers: dict[str, object] = {"data": {"type": "Input", "tensor": [1, first]}}
    for number, size in enumerate(sizes, 1):
        parents = [next(reversed(layers))]
        layers[f"dense{number}"] = {"type": "InnerProduct", "parents": parents, "num_outputs": size}
    return loads(json.dumps({"name": Path(target).stem, "layers": layers}), file=target)
