"""SqueezeNet, and the design space around it, from a handful of metaparameters.

The arithmetic is that of section 5.5.1 of F. Iandola, "Exploring the Design Space of Deep
Convolutional Neural Networks at Large Scale", UC Berkeley, 2016 (section 5.1 of the SqueezeNet
paper). The Fire modules are numbered by i from 0 there; their names count from fire2.

    e_i        base_e + incr_e * floor(i / freq)    expand filters of Fire module i
    e_i,3x3    pct3x3 * e_i, rounded                those of them that are 3x3
    e_i,1x1    e_i - e_i,3x3                        the others
    s_i        sr * e_i, rounded                    squeeze filters

Rounding is to the nearest whole number, a half up, of the exact product: a ratio means the
decimal number that it is written as.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from paleo.core.checks import MAX_SIZE, is_number, shown, whole_number
from paleo.core.errors import Mistakes, SettingError, near
from paleo.core.frozen import dataclass
from paleo.net.graph import infer_nodes
from paleo.net.layers import LAYERS
from paleo.net.spec import LayerSpec, NetSpec

#: The kinds of bypass: around no module, those that keep the channels, all.
BYPASSES = ("none", "simple", "complex")
#: The most Fire modules; SqueezeNet has 8.
MAX_FIRE = 1000

_SOURCE = (
    "F. Iandola et al., SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and "
    "<0.5MB model size, arXiv:1602.07360, 2016"
)
#: The filters of conv1, which no metaparameter changes.
_FIRST = 96
#: Where the image is halved between Fire modules: behind so many eighths of them.
_POOL_EIGHTHS = (3, 7)


@dataclass(frozen=True)
class _Fire:
    """One Fire module: the number in its name, and its filters."""

    number: int
    squeeze: int
    ones: int
    threes: int

    @property
    def expand(self) -> int:
        """Its channels out."""
        return self.ones + self.threes


def squeezenet(
    base_e: int = 128,
    incr_e: int = 128,
    pct3x3: float = 0.5,
    freq: int = 2,
    sr: float = 0.125,
    num_fire: int = 8,
    bypass: str = "none",
    image_size: int = 227,
    num_classes: int = 1000,
    batch_size: int = 128,
    name: str | None = None,
) -> NetSpec:
    """Return SqueezeNet, or a net of its design space.

    Without arguments it is SqueezeNet as in table 5.1 of the dissertation. The first Fire module
    has `base_e` expand filters, and after every `freq` modules there are `incr_e` more. A share
    `pct3x3` of them is 3x3, the others 1x1; at 0 or 1 the empty branch is left out, and with it
    the concatenation. `sr`, the squeeze ratio, is squeeze filters to expand filters.

    There are `num_fire` modules, fire2 to fire9 in SqueezeNet. A max-pooling stands behind conv1
    and behind the first 3/8 and 7/8 of the modules, rounded down (fire4 and fire8 in SqueezeNet),
    so that a deeper net keeps its images as large for as great a part of it. With one or two
    modules, a pooling that would follow maxpool1 at once is left out.

    A `bypass` "simple" adds the input of a module to its output where both have the same number
    of channels (fire3, 5, 7 and 9 in SqueezeNet); "complex" does so around the other modules too,
    through a 1x1 convolution without activation.

    A net without a `name` is called after the settings that are not SqueezeNet's. Raises
    SettingError with every setting that is out of its range or leaves a layer without filters.
    """
    given = {
        "base_e": base_e,
        "incr_e": incr_e,
        "pct3x3": pct3x3,
        "freq": freq,
        "sr": sr,
        "num_fire": num_fire,
        "image_size": image_size,
        "num_classes": num_classes,
    }
    _check_ranges({**given, "batch_size": batch_size}, bypass, name)
    fires = tuple(
        _fire(i + 2, base_e + incr_e * (i // freq), _exact(pct3x3), _exact(sr))
        for i in range(num_fire)
    )
    pooled = _pooled(fires)
    _check_fit(fires, given, 1 + len(pooled))

    maker = _Maker(batch_size, image_size)
    maker.convolve("conv1", 7, 3, _FIRST, strides=(2, 2))
    maker.max_pool("maxpool1")
    channels = _FIRST
    for fire in fires:
        maker.fire(fire, channels, bypass)
        channels = fire.expand
        if fire.number in pooled:
            maker.max_pool(f"maxpool{fire.number}")
    last = fires[-1].number
    maker.add(f"drop{last}", "Dropout", dropout_keep_prob=0.5)
    maker.convolve(f"conv{last + 1}", 1, channels, num_classes)
    window = (_last_size(image_size, 1 + len(pooled)),) * 2
    maker.add(f"avgpool{last + 1}", "AvgPool", ksize=window, strides=(1, 1), padding="VALID")
    maker.add("softmax", "Softmax", num_classes=num_classes)
    net = NetSpec(name or _name(given, bypass), tuple(maker.layers), source=_SOURCE)
    mistakes = Mistakes()
    infer_nodes(net, mistakes)
    if mistakes:  # each setting is right by itself
        raise SettingError(f"too large together: {mistakes.found[0]}")
    return net


class _Maker:
    """The layers so far. What is added without parents reads the last of them."""

    def __init__(self, batch_size: int, image_size: int) -> None:
        self.layers: list[LayerSpec] = []
        self.add("data", "Input", (), tensor=(batch_size, image_size, image_size, 3))

    @property
    def last(self) -> str:
        """The layer that was added last."""
        return self.layers[-1].name

    def add(
        self, name: str, type_name: str, parents: tuple[str, ...] | None = None, **keys: Any
    ) -> str:
        """Add a layer; return its name."""
        parents = (self.last,) if parents is None else parents
        self.layers.append(LayerSpec(name, LAYERS[type_name](**keys), parents))
        return name

    def convolve(
        self,
        name: str,
        window: int,
        channels: int,
        filters: int,
        parents: tuple[str, ...] | None = None,
        **keys: Any,
    ) -> str:
        """Add a convolution, with a stride of 1, without padding and with a ReLU unless said."""
        shape = (window, window, channels, filters)
        usual = {"strides": (1, 1), "padding": "VALID", "activation_fn": "relu"}
        return self.add(name, "Convolution", parents, filter=shape, **{**usual, **keys})

    def max_pool(self, name: str) -> None:
        """Add a max-pooling that halves the image."""
        self.add(name, "Pooling", ksize=(3, 3), strides=(2, 2), padding="VALID")

    def fire(self, fire: _Fire, channels: int, bypass: str) -> None:
        """Add a Fire module that so many channels come into, and its bypass."""
        before, block = self.last, f"fire{fire.number}"
        squeezed = (self.convolve(f"{block}/squeeze1x1", 1, channels, fire.squeeze),)
        branches: list[str] = []
        if fire.ones:
            name = f"{block}/expand1x1"
            branches.append(self.convolve(name, 1, fire.squeeze, fire.ones, squeezed))
        if fire.threes:
            name = f"{block}/expand3x3"
            branches.append(
                self.convolve(name, 3, fire.squeeze, fire.threes, squeezed, padding="SAME")
            )
        if len(branches) > 1:
            self.add(f"{block}/concat", "Concatenate", tuple(branches), dim=3)
        after, around = self.last, before
        if bypass == "complex" and channels != fire.expand:
            around = self.convolve(
                f"{block}/bypass1x1", 1, channels, fire.expand, (before,), activation_fn=None
            )
        if around != before or (bypass != "none" and channels == fire.expand):
            self.add(f"{block}/sum", "Elementwise", (after, around))


def _last_size(image_size: int, num_pools: int) -> int:
    """Return the height and width of what comes into the last convolution; below 1 if nothing."""
    size = (image_size - 7) // 2 + 1
    for _ in range(num_pools):
        size = (size - 3) // 2 + 1
    return size


def _least_image(num_pools: int) -> int:
    """Return the least image of which `_last_size` leaves 1."""
    size = 1
    for _ in range(num_pools):
        size = 2 * (size - 1) + 3
    return 2 * (size - 1) + 7


def _exact(ratio: float) -> Fraction:
    """Return the decimal number that a ratio is written as."""
    return Fraction(str(ratio))


def _rounded(number: Fraction) -> int:
    """Return the nearest whole number, the larger one of a half."""
    return math.floor(number + Fraction(1, 2))


def _fire(number: int, expand: int, pct3x3: Fraction, sr: Fraction) -> _Fire:
    threes = _rounded(pct3x3 * expand)
    return _Fire(number, _rounded(sr * expand), expand - threes, threes)


def _pooled(fires: tuple[_Fire, ...]) -> set[int]:
    """Return the numbers of the modules that a max-pooling follows."""
    counts = [eighths * len(fires) // 8 for eighths in _POOL_EIGHTHS]
    return {fires[count - 1].number for count in counts if count}


def _name(given: Mapping[str, Any], bypass: str) -> str:
    defaults = inspect.signature(squeezenet).parameters
    words = ["squeezenet", *([f"{bypass}_bypass"] if bypass != "none" else [])]
    words += [f"{key}_{value}" for key, value in given.items() if value != defaults[key].default]
    return "_".join(words)


def _check_ranges(given: Mapping[str, Any], bypass: str, name: str | None) -> None:
    """Raise SettingError with every setting that is out of its range."""
    mistakes = Mistakes()
    for key, value in given.items():
        try:
            if key in ("pct3x3", "sr"):
                _check_share(value, above=key == "sr")
            elif whole_number(value, 0 if key == "incr_e" else 1) > MAX_FIRE and key == "num_fire":
                raise ValueError(f"expected {MAX_FIRE} at most, got {shown(value)}")
        except ValueError as error:
            mistakes.add(f"{key}: {error}")
    if bypass not in BYPASSES:
        guess = near(bypass, BYPASSES)
        mistakes.add(f"bypass: expected {', '.join(BYPASSES)}, got {shown(bypass)}{guess}")
    if name is not None and (not isinstance(name, str) or not name):
        mistakes.add(f"name: expected a name that is not empty, got {shown(name)}")
    mistakes.raise_as(SettingError)


def _check_share(value: Any, above: bool) -> None:
    """Raise ValueError unless a value is a number from 0 (or above 0) to 1."""
    if not is_number(value) or not 0 <= value <= 1 or (above and not value):  # NaN is in no range
        span = "above 0, up to 1" if above else "from 0 to 1"
        raise ValueError(f"expected a number {span}, got {shown(value)}")


def _check_fit(fires: tuple[_Fire, ...], given: Mapping[str, Any], num_pools: int) -> None:
    """Raise SettingError with every setting that leaves a layer without filters or input.

    No module has fewer filters of a kind than the first.
    """
    mistakes = Mistakes()
    first, last = fires[0], fires[-1]
    if not first.squeeze:
        mistakes.add(
            f"sr: {given['sr']} of {first.expand} expand filters rounds to no squeeze filter "
            f"in fire{first.number}"
        )
    for filters, kind, end in ((first.threes, "3x3", 0), (first.ones, "1x1", 1)):
        if not filters and given["pct3x3"] != end:
            mistakes.add(
                f"pct3x3: {given['pct3x3']} of {first.expand} expand filters rounds to no {kind} "
                f"filter in fire{first.number}; {end} leaves out that branch"
            )
    if last.expand > MAX_SIZE:
        mistakes.add(
            f"incr_e: {given['incr_e']} gives fire{last.number} {last.expand} expand filters, "
            f"at most {MAX_SIZE} mean anything"
        )
    least = _least_image(num_pools)
    if given["image_size"] < least:
        mistakes.add(
            f"image_size: expected {least} or more, as conv1 and {num_pools} max-poolings need, "
            f"got {given['image_size']}"
        )
    mistakes.raise_as(SettingError)
