"""Every net that torchvision lists, beside PyTorch's own counter.

Nets are made with weights that have no data; nothing is computed and nothing is downloaded. A
detector's regions depend on data, so that PyTorch counts its parts one after another: the backbone
and the heads over the whole image, and the heads over as many regions as the detector keeps at
most. That is all of it that multiplies.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

from collected.outcome import Outcome, module_outcome
from paleo.net.importers import ImportOptions

#: Samples in a batch.
BATCH = 2
#: Heights and widths where no crop is known: of segmentation's and of optical flow's data sets.
_SEGMENTED, _FLOW = (520, 520), (360, 520)
#: Frames where the weights do not say how many a net takes.
_FRAMES = 16


def names() -> list[str]:
    """Return all of the package's nets."""
    models: Any = importlib.import_module("torchvision.models")
    return [str(name) for name in models.list_models()]


def shapes_of(name: str, net: Any) -> list[tuple[int, ...]]:
    """Return the shapes of what a net takes: those that its weights were trained on."""
    models: Any = importlib.import_module("torchvision.models")
    if hasattr(net, "transform"):  # a detector brings images to a size of its own
        sizes = getattr(net.transform, "fixed_size", None) or (net.transform.min_size[-1],) * 2
        return [(BATCH, 3, *sizes[::-1])]
    weights = models.get_model_weights(name).DEFAULT
    kind = models.get_model_builder(name).__module__.split(".")[2]
    if kind == "optical_flow":
        return [(BATCH, 3, *_FLOW)] * 2
    crop = _SEGMENTED if kind == "segmentation" else tuple(weights.transforms().crop_size)
    sizes = crop if len(crop) == 2 else crop * 2
    frames = (max(weights.meta.get("min_temporal_size", 0), _FRAMES),) if kind == "video" else ()
    return [(BATCH, 3, *frames, *sizes)]


def in_parts(detector: Any) -> Any:
    """Return a module that runs the parts of a detector, each on as much as it has to do."""
    torch: Any = importlib.import_module("torch")

    class Parts(torch.nn.Module):  # type: ignore[misc]
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
    models: Any = importlib.import_module("torchvision.models")
    export: Any = importlib.import_module("paleo.net.importers.pytorch.export")
    reader: Any = importlib.import_module("paleo.net.importers.pytorch.reader")
    backbone = {} if name.startswith("quantized_") else {"weights_backbone": None}
    try:
        net = export.construct(lambda: models.get_model(name, weights=None, **backbone))
    except (TypeError, ValueError):  # it has no backbone of its own
        net = export.construct(lambda: models.get_model(name, weights=None))
    holder: Any = types.ModuleType("collected_net")
    holder.net = net
    sys.modules[holder.__name__] = holder
    shapes = shapes_of(name, net)
    options = ImportOptions(input=tuple((None, shape) for shape in shapes), phase="test")
    return module_outcome(
        lambda: reader.read(f"python:{holder.__name__}:net", options),
        in_parts(net) if hasattr(net, "transform") else net,
        [torch.empty(shape, device="meta") for shape in shapes],
        batch=BATCH,
        training=False,
    )
