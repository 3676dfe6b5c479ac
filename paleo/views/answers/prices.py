"""What prices come to, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from paleo.cluster.prices import KINDS
from paleo.studies.prices import DevicePrice
from paleo.views.answers.base import device_named
from paleo.views.charts.numbers import counted
from paleo.views.tables.prices import amount


def prices_answer(found: Sequence[DevicePrice]) -> list[str]:
    """Return the cheapest of the prices that were found, and how many there are of what."""
    if not found:
        return ["No such price is known; a file of your own can give one: --prices=FILE."]
    # Of those that compare: of the kind and in the currency of most use.
    kind = min((each.price.kind for each in found), key=KINDS.index)
    ranked = [each for each in found if each.price.kind == kind]
    first = next((each for each in ranked if each.is_usual), ranked[0])
    ranked = [each for each in ranked if each.price.currency == first.price.currency]
    devices = {each.device for each in found}
    number = f"{counted(len(found), 'price')} of {counted(len(devices), 'device')}"
    providers = counted(len({each.price.provider for each in found}), "provider")
    least, most = (end(ranked, key=lambda each: each.price.amount) for end in (min, max))
    if len(devices) == 1:
        which = "cheapest recent" if first.is_usual and first is not least else "cheapest"
        best = first if first.is_usual else least
        said = f"{amount(best.price)} an hour: {best.price.origin()}"
        return [f"The {which} {device_named(best.device)} is {said}.", f"{number} at {providers}."]
    said = " to ".join(
        f"{amount(end.price)} ({device_named(end.device)}, {end.price.provider})"
        for end in (least, most)
    )
    return [f"An hour of a device {kind} costs {said}: {number} at {providers}."]
