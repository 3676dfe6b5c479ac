"""Networks: what connects the devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

from paleo.cluster.figures import Figure, FileReader, Table, given
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity

FIGURES = {"bandwidth": "bytes/s", "latency": "s"}
#: What a link is to NCCL, by which it knows what a hop costs each protocol.
NCCL_KINDS = ("nvlink", "pci", "network")
NCCL_FIGURES = {
    "bandwidth": "bytes/s",
    "launch": "s",
    "hop": "s",
    "ramp": "s",
    "kernel": "s",
    "channel": "bytes/s",
    "ll_bandwidth": "bytes/s",
    "head": "bytes/s",
    "sums_share": "",
}


@dataclass(frozen=True)
class NcclLink:
    """What NCCL counts with of a link, and what was measured of its collectives over it.

    `bandwidth` is that of all links of a device, of a network that of one. Of links inside a node
    `launch` is the seconds of a collective without hops, `hop` of the shortest message to the next
    device, `ramp` what long messages lose until the pipeline is full, `kernel` of an all-reduce
    by a kernel of one's own; `channel` the bytes/s that one of NCCL's channels copies,
    `ll_bandwidth` the most that NCCL counts of protocol LL, `head` the most of one channel of
    switches that sum, of which it counts `sums_share`. `ll128` is whether LL128 is used.
    """

    kind: str
    figures: Mapping[str, Figure]
    ll128: bool = False

    def value(self, name: str, default: Quantity = 0.0) -> Quantity:
        """Return a figure in SI units, or what it is where the file has none."""
        return self.figures[name].value if name in self.figures else default

    @property
    def bandwidth(self) -> Quantity:
        """Bytes/s in one direction."""
        return self.figures["bandwidth"].value

    @property
    def is_measured(self) -> bool:
        """Whether there is all that collectives inside a node are predicted by."""
        return {"launch", "hop", "ramp", "channel"} <= set(self.figures)

    def reaching(self, share: Quantity) -> NcclLink:
        """Return the link of which only a share of the bandwidth is reached."""
        bandwidth = self.figures["bandwidth"]
        reached = replace(bandwidth, value=share * bandwidth.value)
        return replace(self, figures={**self.figures, "bandwidth": reached})


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
    nccl: NcclLink | None = None

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
        own = self.own_bandwidth_2017
        return replace(
            self,
            figures={**self.figures, "bandwidth": reached},
            own_bandwidth_2017=None if own is None else share * own,
            nccl=self.nccl.reaching(share) if self.nccl else None,
        )


_TABLES = ("name", "title", "aliases", "sources")


def read_network(path: Path) -> Network:
    """Read a network file; raises HardwareError with every mistake in it."""
    root = FileReader(path, (*_TABLES, "figures", "nccl", "paleo2017"))
    name = root.text("name", path.stem)
    figures = root.table("figures").figures(FIGURES, required="bandwidth")
    bandwidth_2017, note = None, ""
    if "paleo2017" in root.values:
        old = root.table("paleo2017").only(("bandwidth", "note"))
        bandwidth_2017, note = old.quantity("bandwidth", "bytes/s"), old.text("note")
    nccl = _nccl_link(root.table("nccl")) if "nccl" in root.values else None
    title, aliases = root.text("title", name), root.names("aliases")
    root.finish()
    return Network(name, title, figures, aliases, bandwidth_2017, note, root.sources, nccl)


def _nccl_link(table: Table) -> NcclLink:
    table.only(("kind", "ll128", *NCCL_FIGURES))
    kind = table.text("kind")
    if kind not in NCCL_KINDS:
        table.note("kind", f"expected one of {', '.join(NCCL_KINDS)}, got {kind!r}")
    if "bandwidth" not in table.values:
        table.note("bandwidth", "missing")
    figures = {
        name: table.figure(name, dimension)
        for name, dimension in NCCL_FIGURES.items()
        if name in table.values
    }
    return NcclLink(kind, figures, table.flag("ll128"))
