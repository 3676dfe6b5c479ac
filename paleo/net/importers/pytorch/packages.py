"""Nets of installed packages: `timm:NAME` and `torchvision:NAME`.

The package makes the net, without weights: nothing is downloaded. What it takes is known from the
configuration that comes with it, that is, the images that its published weights were trained on.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from paleo.core.errors import UnknownNameError, near
from paleo.core.frozen import dataclass
from paleo.net.importers.base import missing_library
from paleo.net.importers.pytorch.running import guarded

Shape = tuple[int, ...]

#: Heights and widths where no crop is known: of segmentation's and of optical flow's data sets.
_SEGMENTED, _FLOW = (520, 520), (360, 520)
#: Frames where the weights do not say how many a net takes.
_FRAMES = 16


@dataclass(frozen=True)
class _Package:
    """What a package has: its nets, how it makes one, and the shapes that one takes.

    Each is given the package, and where it is about one net its name, and the net. `names` are
    those that people are told of; `has` knows others too, such as older ones.
    """

    names: Callable[[Any], list[str]]
    has: Callable[[Any, str], bool]
    make: Callable[[Any, str], Any]
    shapes: Callable[[Any, str, Any, int], list[Shape]]


def _timm_shapes(timm: Any, name: str, net: Any, batch: int) -> list[Shape]:
    return [(batch, *net.pretrained_cfg["input_size"])]


def _make_torchvision(torchvision: Any, name: str) -> Any:
    takes = torchvision.models.get_model_builder(name)
    # A detector's backbone has weights of its own, which it would download.
    backbone = {} if name.startswith("quantized_") else {"weights_backbone": None}
    try:
        return takes(weights=None, **backbone)
    except (TypeError, ValueError):  # it has no backbone of its own
        return takes(weights=None)


def _torchvision_shapes(torchvision: Any, name: str, net: Any, batch: int) -> list[Shape]:
    if hasattr(net, "transform"):  # a detector brings images to a size of its own
        sizes = getattr(net.transform, "fixed_size", None) or (net.transform.min_size[-1],) * 2
        return [(batch, 3, *sizes[::-1])]
    weights = torchvision.models.get_model_weights(name).DEFAULT
    kind = torchvision.models.get_model_builder(name).__module__.split(".")[2]
    if kind == "optical_flow":
        return [(batch, 3, *_FLOW)] * 2
    crop = _SEGMENTED if kind == "segmentation" else tuple(weights.transforms().crop_size)
    if hasattr(net, "image_size"):  # without those weights it may take another
        crop = (net.image_size,)
    sizes = crop if len(crop) == 2 else crop * 2
    frames = (max(weights.meta.get("min_temporal_size", 0), _FRAMES),) if kind == "video" else ()
    return [(batch, 3, *frames, *sizes)]


_PACKAGES: Mapping[str, _Package] = {
    "timm": _Package(
        lambda timm: timm.list_models(),
        # It makes nets by the names that they once had, too. What it has behind a dot says which
        # weights, and with them which configuration.
        lambda timm, name: timm.is_model(name),
        lambda timm, name: timm.create_model(name),
        _timm_shapes,
    ),
    "torchvision": _Package(
        lambda torchvision: torchvision.models.list_models(),
        lambda torchvision, name: name in torchvision.models.list_models(),
        _make_torchvision,
        _torchvision_shapes,
    ),
}


def names(package: str) -> list[str]:
    """Return the nets of a package, as targets name them."""
    return _PACKAGES[package].names(_imported(package, f"{package}:"))


def find(target: str, batch: int = 1) -> tuple[str, Any, list[Shape]]:
    """Return the name of a net, the net, and the shapes of what it takes with such a batch.

    Raises NetSpecError where the package is missing or cannot make it, UnknownNameError for a net
    that it does not have.
    """
    from paleo.net.importers.pytorch.export import construct

    title, _, name = target.partition(":")
    package = _PACKAGES[title]
    module = _imported(title, target)
    if not guarded(target, f"importing {title}", lambda: package.has(module, name)):
        known = package.names(module)
        hint = near(name, known) or f"; {title}'s list_models() has the names of its {len(known)}"
        raise UnknownNameError(f"{target}: {title} has no net {name!r}{hint}")
    net = guarded(target, "making it", lambda: construct(lambda: package.make(module, name)))
    shapes = guarded(target, "its configuration", lambda: package.shapes(module, name, net, batch))
    return name, net, shapes


def _imported(package: str, target: str) -> Any:
    """Return an installed package; raises NetSpecError."""
    if importlib.util.find_spec(package) is None:
        raise missing_library(target, package, package)
    return guarded(target, f"importing {package}", lambda: importlib.import_module(package))
