"""Error bands of served tokens: how far measured seconds were from predicted ones."""

from __future__ import annotations

from paleo.cluster.device import Device
from paleo.costs.error_bands import Band
from paleo.costs.model import CostModel


def band(cost_model: CostModel, device: Device, what: str) -> Band | None:
    """Return the band of "ttft" or "tpot" on a device; None where nothing was measured."""
    return None
