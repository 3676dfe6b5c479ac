"""Networks: what connects the devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paleo.hardware.figures import Figure, FileReader, given
from paleo.quantity import Quantity

__all__ = ["Network"]

FIGURES = {"bandwidth": "bytes/s"}


@dataclass(frozen=True)
class Network:
    """A link between devices; `bandwidth` in bytes/s and one direction."""

    name: str
    title: str
    figures: Mapping[str, Figure]
    aliases: tuple[str, ...] = ()
    own_bandwidth_2017: Quantity | None = None
    note_2017: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_bandwidth(cls, name: str, bandwidth: Quantity) -> Network:
        """Return a network of your own, of so many bytes/s."""
        return cls(name, name, {"bandwidth": given(bandwidth, "bytes/s", "bandwidth")})

    @property
    def bandwidth(self) -> Quantity:
        """Bytes/s by the data sheet."""
        return self.figures["bandwidth"].value

    @property
    def bandwidth_2017(self) -> Quantity:
        """Bytes/s for the 2017 model: its own for this network, else the data sheet's."""
        return self.bandwidth if self.own_bandwidth_2017 is None else self.own_bandwidth_2017


def read_network(path: Path) -> Network:
    """Read a network file; raises HardwareError with every mistake in it."""
    reader = FileReader(path)
    root = reader.root
    reader.only(root, ("name", "title", "aliases", "sources", "figures", "paleo2017"))
    name = reader.text(root, "name", path.stem)
    figures = reader.figures(FIGURES, required="bandwidth")
    bandwidth_2017, note = None, ""
    if "paleo2017" in root:
        old = reader.table(root, "paleo2017")
        reader.only(old, ("bandwidth", "note"), "paleo2017.")
        bandwidth_2017 = reader.quantity(old.get("bandwidth"), "bytes/s", "paleo2017.bandwidth")
        note = reader.text(old, "note", "", "paleo2017.")
    network = Network(
        name,
        reader.text(root, "title", name),
        figures,
        reader.names(root, "aliases"),
        bandwidth_2017,
        note,
        reader.sources,
    )
    reader.finish()
    return network
