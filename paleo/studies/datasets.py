"""How many samples a training has: datasets, and epochs of them.

To add a dataset: its name, its size and the source of that, registered here by `_add`.
"""

from __future__ import annotations

from typing import Any

from paleo.core.checks import MAX_COUNT, is_number, is_whole, shown
from paleo.core.errors import Mistakes, PaleoError
from paleo.core.frozen import dataclass
from paleo.core.registry import Registry
from paleo.net.spec import NetSpec

#: More epochs mean nothing, nor do more tokens.
_MOST, _MOST_TOKENS = 1e12, 1e18


@dataclass(frozen=True)
class Dataset:
    """The training part of a dataset: `num_samples` of it, by its `source`."""

    name: str
    num_samples: int
    source: str


DATASETS: Registry[Dataset] = Registry("dataset")


def _add(name: str, num_samples: int, source: str) -> None:
    DATASETS.add(name, Dataset(name, num_samples, source))


def takes_images(net: NetSpec) -> bool:
    """Tell whether images go into a net, grey or in colour, as the datasets here all have them."""
    shapes = [spec.layer.infer_shape(()) for spec in net.few.layers if spec.layer.is_input]
    return any(len(shape) == 4 and min(shape[1:3]) > 1 and shape[3] in (1, 3) for shape in shapes)


_TINY_IMAGES = (
    "Krizhevsky, Learning Multiple Layers of Features from Tiny Images, technical report, "
    "University of Toronto, 2009"
)

_add(
    "imagenet",
    1_281_167,
    "ILSVRC 2012, classification: Russakovsky et al., ImageNet Large Scale Visual Recognition "
    "Challenge, International Journal of Computer Vision 115(3), 2015, table 2 (arXiv:1409.0575)",
)
_add("cifar10", 50_000, _TINY_IMAGES)
_add("cifar100", 50_000, _TINY_IMAGES)
_add(
    "mnist",
    60_000,
    "LeCun, Bottou, Bengio, Haffner, Gradient-Based Learning Applied to Document Recognition, "
    "Proceedings of the IEEE 86(11), 1998",
)
_add(
    "fashion_mnist",
    60_000,
    "Xiao, Rasul, Vollgraf, Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine "
    "Learning Algorithms, 2017 (arXiv:1708.07747)",
)
_add(
    "svhn",
    73_257,
    "Netzer et al., Reading Digits in Natural Images with Unsupervised Feature Learning, NIPS "
    "Workshop on Deep Learning and Unsupervised Feature Learning, 2011 (without the extra images)",
)
_add(
    "coco",
    118_287,
    "COCO train2017: Lin et al., Microsoft COCO: Common Objects in Context, ECCV 2014 "
    "(arXiv:1405.0312), in the split of 2017 (cocodataset.org)",
)
_add(
    "places365",
    1_803_460,
    "Places365-Standard: Zhou et al., Places: A 10 Million Image Database for Scene Recognition, "
    "IEEE Transactions on Pattern Analysis and Machine Intelligence 40(6), 2018",
)


@dataclass(frozen=True)
class Schedule:
    """How long a net is trained, None where that is not known.

    `epochs` of a `dataset`, one of DATASETS, or of `dataset_size` samples; or until it has read so
    many `tokens`. Raises a PaleoError with all that is wrong.
    """

    epochs: float | None = None
    dataset: str | None = None
    dataset_size: int | None = None
    tokens: float | None = None

    def __post_init__(self) -> None:
        mistakes = Mistakes()
        epochs, size = self.epochs, self.dataset_size
        if epochs is not None and not (is_number(epochs) and 0 < epochs <= _MOST):
            mistakes.add(f"epochs: {_wanted(epochs, 'a number above 0')}")
        if size is not None and not (is_whole(size) and 1 <= size <= MAX_COUNT):
            mistakes.add(f"dataset_size: {_wanted(size, 'a whole number of 1 or more')}")
        if self.dataset is not None:
            mistakes.check(DATASETS.__getitem__, self.dataset)
            if size is not None:
                mistakes.add("dataset: give it or dataset_size, not both")
        if self.tokens is not None:
            if not (is_number(self.tokens) and 1 <= self.tokens <= _MOST_TOKENS):
                said = _wanted(self.tokens, "a number of 1 or more", _MOST_TOKENS)
                mistakes.add(f"tokens: {said}")
            if epochs is not None or size is not None or self.dataset is not None:
                mistakes.add("tokens: give them or epochs of a dataset, not both")
        mistakes.raise_as(PaleoError)

    @property
    def size(self) -> int | None:
        """Samples of an epoch."""
        return self.dataset_size if self.dataset is None else DATASETS[self.dataset].num_samples

    @property
    def num_samples(self) -> float | None:
        """Samples of all epochs together; how many have so many tokens depends on the net."""
        return None if self.epochs is None or self.size is None else self.epochs * self.size


def _wanted(value: Any, expected: str, most: float = _MOST) -> str:
    """Return what is said of a value that is not as expected, or too large."""
    if is_number(value) and value > most:
        return f"{value:g} is too large to mean anything"
    return f"expected {expected}, got {shown(value)}"
