"""What a step is planned on: device, network, cost model, and how well they are used."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paleo.collectives import COLLECTIVES
from paleo.costs import ConvolutionChoice, CostModel, Target, Time, convolution_choice
from paleo.errors import SettingError
from paleo.estimate import (
    BACKWARD,
    FORWARD,
    PassTime,
    adapter,
    checked_share,
    checked_target,
    estimate_pass,
    estimate_update,
    exchange_time,
    link_bandwidth,
    update_time,
)
from paleo.graph import Graph, build
from paleo.hardware import Device, Network
from paleo.layers import Layer
from paleo.netspec import NetSpec
from paleo.quantity import Quantity, largest
from paleo.tensor import find_precision
from paleo.values import MAX_COUNT, shown

__all__ = ["Plan", "check_together"]


@dataclass(frozen=True)
class Plan:
    """The cluster and how it is used; everything of a step but net, batch and workers.

    `dtype` is one of paleo.tensor.PRECISIONS; with `fuse`, pointwise operations run in the
    kernels before them. `conv_library`, `workspace` and `use_only_gemm` say by which algorithm
    convolutions are computed, as in `estimate_forward`. Raises SettingError or HardwareError for
    what does not go together.
    """

    device: Device
    network: Network
    cost_model: CostModel
    dtype: str = "fp32"
    use_pipeline: bool = False
    ppp_comp: Quantity = 1.0
    ppp_comm: Quantity = 1.0
    schemes: tuple[str, ...] = tuple(COLLECTIVES)
    fuse: bool = False
    conv_library: str | None = None
    workspace: int | str | None = None
    use_only_gemm: bool = False

    def __post_init__(self) -> None:
        for name, kind, find in (
            ("device", Device, "find_device"),
            ("network", Network, "find_network"),
            ("cost_model", CostModel, "find_cost_model"),
        ):
            if not isinstance(getattr(self, name), kind):
                raise SettingError(
                    f"{name}: expected a {kind.__name__}, such as paleo.{find} returns, "
                    f"got {shown(getattr(self, name))}"
                )
        checked_target(self.device, self.cost_model, self.dtype, self.ppp_comp, self.convolutions)
        checked_share(self.ppp_comm, "ppp_comm")

    @property
    def target(self) -> Target:
        """Where operations run."""
        computing = find_precision(self.dtype).computing
        return Target(self.device, computing, self.ppp_comp, convolutions=self.convolutions)

    @property
    def convolutions(self) -> ConvolutionChoice:
        """Among which algorithms the quickest is taken for each convolution."""
        return convolution_choice(self.conv_library, self.workspace, self.use_only_gemm)

    @property
    def adapt(self) -> Callable[[Layer], Layer] | None:
        """How the cost model wants layers changed when the graph is built."""
        return adapter(self.cost_model)

    def graph(self, net: NetSpec, batch_size: Quantity | None) -> Graph:
        """Return the graph of a net as the cost model sees it; None takes the file's batch."""
        return build(net, batch_size, self.dtype, self.adapt)

    def passes(
        self,
        graph: Graph,
        fetches: Mapping[int, Time] | None = None,
        *,
        use_pipeline: bool | None = None,
    ) -> tuple[PassTime, PassTime]:
        """Return the time of the forward and of the backward pass; see `estimate_pass`."""
        pipelined = self.use_pipeline if use_pipeline is None else use_pipeline
        forward, backward = (
            estimate_pass(
                graph, each, self.target, self.cost_model, pipelined, fetches, fuse=self.fuse
            )
            for each in (FORWARD, BACKWARD)
        )
        return forward, backward

    def communication(self, num_bytes: Quantity, workers: Quantity, scheme: str) -> Quantity:
        """Return the seconds in which workers exchange gradients of so many bytes."""
        # Without the checks of estimate_communication: a curve asks hundreds of times.
        return exchange_time(
            num_bytes, workers, self._reached_bandwidth, COLLECTIVES[scheme], self.cost_model
        )

    @functools.cached_property
    def _reached_bandwidth(self) -> Quantity:
        """Bytes/s of the network, as far as they are reached."""
        return link_bandwidth(self.network, self.cost_model) * self.ppp_comm

    def update(self, num_params: Quantity, use_pipeline: bool | None = None) -> Quantity:
        """Return the seconds to update so many parameters."""
        return estimate_update(
            num_params,
            self.device,
            cost_model=self.cost_model,
            ppp_comp=self.ppp_comp,
            use_pipeline=self.use_pipeline if use_pipeline is None else use_pipeline,
            dtype=self.dtype,
        )

    def update_time(self, num_params: Quantity) -> Time:
        """Return what takes the time to update so many parameters."""
        return update_time(num_params, self.target, self.cost_model, self.dtype)


def check_together(batch_size: Quantity, workers: Quantity) -> None:
    """Raise SettingError if the batches of all workers are too many samples to count."""
    if largest(batch_size) * largest(workers) > MAX_COUNT:
        raise SettingError("batch_size: with so many workers, too large to mean anything")
