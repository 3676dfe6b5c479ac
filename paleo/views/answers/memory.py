"""What footprints say: how much memory is taken at the peak, what most of it is, and what fits."""

from __future__ import annotations

from collections.abc import Sequence

from paleo.core.attributes import at_ends
from paleo.step.memory import Fit
from paleo.views.answers.base import device_named, percent, spread, told_apart
from paleo.views.table import in_unit

#: The digits of memory, of which little is uncertain.
_DIGITS = 3
_PARTS = ("weights", "gradients", "optimizer_state", "activations")


def memory_answer(fits: Sequence[Fit]) -> list[str]:
    """Return the sentences of footprints; of several, which fit."""
    if len(fits) == 1:
        return _of_one(fits[0])
    known = [fit for fit in fits if fit.fits is not None]
    most = max(fits, key=lambda fit: fit.footprint.peak)
    sentences = []
    if known:
        fitting = [fit for fit in known if fit.fits]
        sentences.append(f"{len(fitting):,} of {len(known):,} fit.")
    return [*sentences, f"The most: {_of_one(most)[0]}"]


def _of_one(fit: Fit) -> list[str]:
    found = fit.footprint
    peak = float(found.peak)
    ends = told_apart(
        at_ends(found.peak_ends, float), lambda end, digits: in_unit(end, "bytes", digits), _DIGITS
    )
    where = f"{found.peak_pass} pass".removeprefix("update pass") or "update"
    purpose = found.purpose[0].upper() + found.purpose[1:]
    said = (
        f"{purpose} of {found.net} on batches of {found.batch_size:,} takes "
        f"{in_unit(peak, 'bytes', _DIGITS)} at its peak{spread(ends, found.band)}, in the "
        f"{where} of {found.peak_layer}."
    )
    return [said, *_fitting(fit), *_largest(fit)]


def _fitting(fit: Fit) -> list[str]:
    device = fit.device
    if device is None or device.memory_capacity is None:
        return []
    of = f"the {in_unit(device.memory_capacity, 'bytes')} of one {device_named(device.name)}"
    if not fit.fits:
        if not fit.largest_batch:
            return [f"It does not fit {of}: not even one sample does; a smaller type may."]
        return [f"It does not fit {of}: --batch_size={fit.largest_batch} is the largest that does."]
    return [f"It fits {of}; the largest batch that does is {fit.largest_batch:,}."]


def _largest(fit: Fit) -> list[str]:
    found = fit.footprint
    sizes = {name: float(getattr(found, name)) for name in _PARTS}
    every = sum(sizes.values())
    if not every:
        return []
    name = max(sizes, key=sizes.__getitem__)
    words = name.replace("optimizer_state", "the state of the optimizer")
    if name == "activations" and found.training:
        words = "activations kept for the backward pass"
    return [f"{words[0].upper()}{words[1:]} are {percent(sizes[name] / every)} of what is kept."]
