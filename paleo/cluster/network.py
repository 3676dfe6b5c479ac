"""Networks: what connects the devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

from paleo.cluster.figures import Figure, FileReader, given
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity

FIGURES = {"bandwidth": "bytes/s", "latency": "s"}


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
    def latency(self) -> Quantity:
        """Seconds of a message, however short; 0 where no source has it."""
        return self.figures["latency"].value if "latency" in self.figures else 0.0

    @property
    def bandwidth_2017(self) -> Quantity:
        """Bytes/s for the 2017 model: its own for this network, else the data sheet's."""
        return self.bandwidth if self.own_bandwidth_2017 is None else self.own_bandwidth_2017

    @property
    def of_2017(self) -> Network:
        """The network as the 2017 model knows it: a bandwidth, which is its own for some."""
        return Network.from_bandwidth(self.name, self.bandwidth_2017)

    def reaching(self, share: Quantity) -> Network:
        """Return the network of which only a share of the bandwidth is reached."""
        bandwidth = self.figures["bandwidth"]
        reached = replace(bandwidth, value=share * bandwidth.value)
        return replace(self, figures={**self.figures, "bandwidth": reached})


def read_network(path: Path) -> Network:
    """Read a network file; raises HardwareError with every mistake in it."""
    root = FileReader(path, ("name", "title", "aliases", "sources", "figures", "paleo2017"))
    name = root.text("name", path.stem)
    figures = root.table("figures").figures(FIGURES, required="bandwidth")
    bandwidth_2017, note = None, ""
    if "paleo2017" in root.values:
        old = root.table("paleo2017").only(("bandwidth", "note"))
        bandwidth_2017, note = old.quantity("bandwidth", "bytes/s"), old.text("note")
    title, aliases = root.text("title", name), root.names("aliases")
    root.finish()
    return Network(name, title, figures, aliases, bandwidth_2017, note, root.sources)
