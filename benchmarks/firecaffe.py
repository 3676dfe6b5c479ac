"""FireCaffe's speedups, as its authors printed them, beside those of one setting.

F. Iandola, "Exploring the Design Space of Deep Convolutional Neural Networks at Large Scale", UC
Berkeley, 2016, tables 3.2 and 3.3: hours of whole trainings on Titan's nodes of one GPU on Cray
Gemini, gradients by reduction trees after the backward pass. A speedup is of those hours: more
epochs than on one GPU make it smaller.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import paleo

NETS = Path(__file__).parents[1] / "nets"

#: The setting. Caffe of 2015 multiplies image by image, so that what it takes for an image does not
#: depend on how many there are, and is four times what the device could do. Between nodes gradients
#: pass the host: PCI Express 2.0 (8 GB/s) and Gemini (8.3), one after the other, are half of it.
#: Both shares were read off the rows, these two of five.
SETTING: dict[str, Any] = {
    "cluster": "firecaffe", "cost_model": "roofline", "ppp_comp": 0.25, "ppp_comm": 0.5,
    "schemes": "TreeAllReduce", "overlap": False, "scaling": "strong",
}  # fmt: skip


class Trained(NamedTuple):
    """A training: its net, images of a step, GPUs and epochs; speedup as printed over one GPU.

    On one GPU steps had `alone` images, and there were `epochs_alone`.
    """

    net: str
    batch: int
    workers: int
    epochs: int
    speedup: float
    alone: int
    epochs_alone: int


TRAINED = (
    Trained("nin", 256, 32, 47, 13, 256, 47),
    Trained("nin", 1024, 32, 47, 23, 256, 47),
    Trained("nin", 1024, 128, 47, 39, 256, 47),
    Trained("googlenet", 1024, 32, 72, 20, 32, 64),
    Trained("googlenet", 1024, 128, 72, 47, 32, 64),
)


def speedups() -> Iterator[tuple[Trained, float]]:
    """Yield each training with its predicted speedup."""
    nets = {"nin": paleo.load("nin"), "googlenet": _googlenet()}
    for trained in TRAINED:
        net = nets[trained.net]
        alone = _step(net, trained.alone, 1) / trained.alone * trained.epochs_alone
        together = _step(net, trained.batch, trained.workers) / trained.batch * trained.epochs
        yield trained, alone / together


def _step(net: Any, batch: int, workers: int) -> float:
    (run,) = paleo.simulate(net, batch_size=batch, workers=workers, **SETTING).runs
    return float(run.rows[0].total(SETTING["schemes"]))


def _googlenet() -> Any:
    """Return GoogLeNet with its auxiliary classifiers, which are trained: 54 MB of parameters."""
    text = json.loads((NETS / "googlenet.json").read_text("utf-8"))
    layers: dict[str, Any] = {}
    heads = {"inception_4a": ("loss1", 512), "inception_4d": ("loss2", 528)}
    for name, layer in text["layers"].items():
        layers[name] = layer
        if name in heads:
            head, channels = heads[name]
            layers |= _head(head, f"{name}/cat", channels)
    return paleo.loads(json.dumps(text | {"layers": layers}))


def _head(head: str, parent: str, channels: int) -> dict[str, Any]:
    """Return a classifier on images of so many channels (Szegedy et al. 2014, section 5)."""
    return {
        f"{head}_pool": {
            "type": "AvgPool", "parents": [parent], "ksize": [1, 5, 5, 1],
            "strides": [1, 3, 3, 1], "padding": [0, 0], "rounding": "ceil",
        },
        f"{head}_conv": {
            "type": "Convolution", "parents": [f"{head}_pool"], "activation_fn": "relu",
            "filter": [1, 1, channels, 128], "strides": [1, 1, 1, 1], "padding": [0, 0],
        },
        f"{head}_fc": {
            "type": "InnerProduct", "parents": [f"{head}_conv"], "num_outputs": 1024,
        },
        f"{head}_dropout": {
            "type": "Dropout", "parents": [f"{head}_fc"], "dropout_keep_prob": 0.3,
        },
        f"{head}_classifier": {
            "type": "InnerProduct", "parents": [f"{head}_dropout"], "num_outputs": 1000,
        },
        f"{head}_softmax": {"type": "Softmax", "parents": [f"{head}_classifier"]},
    }  # fmt: skip
