"""`paleo.memory`: what `paleo memory` answers, for every combination of settings."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.step.memory import fit, footprint

GIB = 2**30


def test_one_net_is_its_footprint_on_a_device() -> None:
    (found,) = paleo.memory("vgg16", batch_size=64, device="K40", optimizer="adam")
    assert found == fit("vgg16", 64, device=paleo.find_device("K40"), optimizer="adam")
    assert found.fits
    assert found.largest_batch == paleo.largest_batch("vgg16", 12 * GIB, optimizer="adam")
    (plain,) = paleo.memory("vgg16")
    assert plain.footprint == footprint("vgg16")
    assert (plain.device, plain.fits, plain.largest_batch) == (None, None, None)


def test_every_combination_is_asked_in_order() -> None:
    batches: Any = np.array([1, 8])
    found = paleo.memory(
        ["lenet5", "nin"], batch_size=batches, device=["K40", "T4"], dtype=["fp32", "fp16"]
    )
    told = [
        (each.footprint.net, each.device and each.device.name, each.footprint.dtype,
         each.footprint.batch_size)
        for each in found
    ]  # fmt: skip
    settings = (("lenet5", "nin"), ("K40", "T4"), ("fp32", "fp16"), (1, 8))
    assert told == list(itertools.product(*settings))
    for each, (net, device, dtype, batch) in zip(found, told, strict=True):
        assert each == fit(net, batch, device=paleo.find_device(str(device)), dtype=dtype)


def test_inference_and_workspace_are_those_of_the_footprint() -> None:
    (found,) = paleo.memory("lenet5", inference=True, workspace="1 GiB", batch_size=2)
    assert found.footprint == footprint("lenet5", 2, training=False, workspace=GIB)
    (same,) = paleo.memory("lenet5", inference=True, workspace=float(GIB), batch_size=2)
    assert same == found


def test_a_peak_has_a_band_in_training_alone() -> None:
    (found,) = paleo.memory("lenet5", batch_size=64)
    low, high = found.footprint.peak_ends
    assert low is not None
    assert high is not None
    assert low <= found.footprint.peak <= high
    values = found.to_dict()
    assert values["peak_bytes_low"] <= values["peak_bytes"] <= values["peak_bytes_high"]
    # Of inference, and of workspace that somebody adds, nothing was measured.
    for more in ({"inference": True}, {"workspace": "1 MiB"}):
        settings: Any = more
        (found,) = paleo.memory("lenet5", batch_size=64, **settings)
        assert found.footprint.peak_ends == (None, None)
        assert "peak_bytes_low" not in found.to_dict()


def test_every_mistake_is_said_and_nothing_computed() -> None:
    settings: Any = {
        "batch_size": [0, 2], "optimizer": "adan", "dtype": "x", "workspace": "4", "device": 3,
        "wrkspace": 2,
    }  # fmt: skip
    with pytest.raises(paleo.PaleoError) as caught:
        paleo.memory(["gone", "lenet5"], **settings)
    said = [mistake.message for mistake in caught.value.mistakes]
    beginnings = (
        "wrkspace: unknown setting (did you mean 'workspace'?)",
        "unknown net 'gone'",
        "batch_size: expected a whole number of 1 or more, got 0",
        "unknown optimizer 'adan' (did you mean 'adam'?)",
        "unknown dtype 'x'",
        "workspace: expected a number with a unit, such as",
        "device: expected a name or a file, got 3",
    )
    assert len(said) == len(beginnings)
    for message, beginning in zip(said, beginnings, strict=True):
        assert message.startswith(beginning)


@pytest.mark.parametrize("workspace", [-1, "-1 GB", "much", float("nan")])
def test_workspace_is_so_many_bytes(workspace: Any) -> None:
    with pytest.raises(paleo.PaleoError, match="workspace"):
        paleo.memory("lenet5", workspace=workspace)
