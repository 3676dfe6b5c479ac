"""Every net that torchvision lists, beside PyTorch's own counter.

Nets are made with weights that have no data; nothing is computed and nothing is downloaded. A
detector's regions depend on data, so that PyTorch counts its parts one after another: the backbone
and the heads over the whole image, and the heads over as many regions as the detector keeps at
most. That is all of it that multiplies.
"""

from __future__ import annotations

import importlib
from typing import Any

from collected.outcome import Outcome, module_outcome
from paleo.net.importers import ImportOptions
from paleo.net.importers.pytorch import packages
from paleo.net.importers.pytorch.reader import read_module

#: Samples in a batch.
BATCH = 2


def names() -> list[str]:
    """Return all of the package's nets."""
    return packages.names("torchvision")


def in_parts(detector: Any) -> Any:
    """Return a module that runs the parts of a detector, each on as much as it has to do."""
    torch: Any = importlib.import_module("torch")

    class Parts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.detector = detector

        def forward(self, images: Any) -> None:
            features = list(detector.backbone(images).values())
            if not hasattr(detector, "rpn"):
                detector.head(features)
                return
            detector.rpn.head(features)
            kept = {"box": detector.rpn.post_nms_top_n()}
            for part in ("box", "mask", "keypoint"):
                head = getattr(detector.roi_heads, f"{part}_head", None)
                if head is not None:
                    pool = getattr(detector.roi_heads, f"{part}_roi_pool")
                    rows = len(images) * kept.get(part, detector.roi_heads.detections_per_img)
                    shape = (rows, detector.backbone.out_channels, *pool.output_size)
                    getattr(detector.roi_heads, f"{part}_predictor")(head(images.new_empty(shape)))

    return Parts()


def run(name: str) -> Outcome:
    """Import a net for inference and compare what it counts."""
    torch: Any = importlib.import_module("torch")
    target = f"torchvision:{name}"
    _, net, shapes = packages.find(target, BATCH)
    options = ImportOptions(input=tuple((None, shape) for shape in shapes), phase="test")
    return module_outcome(
        lambda: read_module(target, name, net, options),
        in_parts(net) if hasattr(net, "transform") else net,
        [torch.empty(shape, device="meta") for shape in shapes],
        batch=BATCH,
        training=False,
    )
