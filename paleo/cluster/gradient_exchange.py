"""How software exchanges the gradients of data-parallel workers."""

from __future__ import annotations

from paleo.cluster.device import Device
from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity
from paleo.core.units import MIB


@dataclass(frozen=True)
class Exchange:
    """How workers exchange gradients, as `source` says.

    Gradients are sent in buckets of `bucket` bytes or more, the first of `first`; with 0 each
    layer's by themselves, with None all of them once the backward pass is done. Where software
    looks every `cycle` seconds for what to send, it sends what there is, up to a bucket. In mixed
    precision parameters' gradients are sent as halves if `in_halves`, else in the parameters' type.
    """

    name: str
    source: str
    bucket: int | None = 25 * MIB
    first: int = 0
    cycle: float = 0.0
    in_halves: bool = False
    #: Whether each device of a node updates its share of the parameters, and passes it on.
    in_shards: bool = False
    #: Whether the host sums them and sends parameters back, over PCIe.
    on_host: bool = False
    #: How many times all gradients are copied on their device, into buckets and out of them.
    copies: int = 0

    @property
    def overlaps(self) -> bool:
        """Whether gradients are sent while the backward pass goes on."""
        return self.bucket is not None

    def copying(self, num_bytes: Quantity, device: Device) -> Quantity:
        """Return the seconds in which gradients are copied on a device, each read and written."""
        return 2 * self.copies * num_bytes / device.memory_bandwidth


PLAIN = Exchange(
    "plain",
    "as PyTorch's DistributedDataParallel with gradient_as_bucket_view=True, where gradients lie "
    "in buckets from the beginning",
    first=MIB,
)
DDP = Exchange(
    "ddp",
    "PyTorch, DistributedDataParallel: bucket_cap_mb=25, a first bucket of 1 MiB "
    "(torch/csrc/distributed/c10d/reducer.hpp, kDefaultFirstBucketBytes), gradients in the "
    "parameters' type; gradient_as_bucket_view, off, would avoid both copies",
    first=MIB,
    copies=2,
)
HOROVOD = Exchange(
    "horovod",
    "Horovod, docs/tensor-fusion.rst: 64 MiB, looked for every 5 ms (128 MiB and 1 ms from 0.21 "
    "on), copied into a buffer and out of it; no compression unless asked for",
    bucket=64 * MIB,
    cycle=5e-3,
    copies=2,
)
MIRRORED = Exchange(
    "mirrored",
    "TensorFlow, tf.distribute.MirroredStrategy: NcclAllReduce(num_packs=1), which concatenates "
    "all gradients (python/distribute/cross_device_utils.py)",
    bucket=None,
    copies=2,
)
KVSTORE = Exchange(
    "kvstore",
    "Apache MXNet, src/kvstore/comm.h: each key by itself, as soon as its gradient is there",
    bucket=0,
)
PADDLE = Exchange(
    "paddle",
    "PaddlePaddle, fleet.DistributedStrategy: fuse_all_reduce_ops, fuse_grad_size_in_MB=32",
    bucket=32 * MIB,
)
FUSED = Exchange(
    "fused",
    "MindSpore, mindspore/nn/wrap/grad_reducer.py: all AllReduce of one fusion group unless "
    "all_reduce_fusion_config says where to split",
    bucket=None,
    copies=2,
)
AT_ONCE = Exchange(
    "at_once",
    "NVIDIA/Megatron-LM, model/distributed.py: one buffer of all gradients, summed when the "
    "backward pass is done",
    bucket=None,
    in_halves=True,
)
TUNED = Exchange(
    "tuned",
    "MLCommons, training_results repositories: gradients of halves stay halves; groups of layers "
    "are sent while the backward pass goes on (of MXNet, MXNET_HOROVOD_NUM_GROUPS)",
    bucket=8 * MIB,
    in_halves=True,
)
DISTRIBUTED_LAMB = Exchange(
    "distributed_lamb",
    "NVIDIA/apex, apex/contrib/optimizers/distributed_fused_lamb.py, as NVIDIA's BERT of MLPerf "
    "Training has it: gradients of halves, exchanged when the backward pass is done unless "
    "--dwu-overlap-reductions asks for more; the update is divided among the devices of a node",
    bucket=None,
    in_halves=True,
    in_shards=True,
)
HOST_SERVER = Exchange(
    "host_server",
    "TensorFlow, benchmarks/scripts/tf_cnn_benchmarks: variable_update=parameter_server with "
    "local_parameter_device=cpu: variables are the host's, each device sends its gradients there "
    "and reads what it needs, layer by layer",
    bucket=0,
    on_host=True,
)
REPLICATED = Exchange(
    "replicated",
    "TensorFlow, benchmarks/scripts/tf_cnn_benchmarks: variable_update=replicated with use_nccl: "
    "a sum by NCCL for each gradient, each device updates its own variables",
    bucket=0,
)
#: By name.
EXCHANGES = {
    each.name: each
    for each in (
        PLAIN, DDP, HOROVOD, MIRRORED, KVSTORE, PADDLE, FUSED, AT_ONCE, TUNED, DISTRIBUTED_LAMB,
        HOST_SERVER, REPLICATED,
    )
}  # fmt: skip
