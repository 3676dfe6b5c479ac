"""The schemes by which gradients are summed on any cluster."""

from __future__ import annotations

import paleo

EXCHANGES = [
    name
    for name, each in paleo.COLLECTIVES.items()
    if each.can_exchange(paleo.find_cluster("dgx_a100").tiers)
]
