"""The settings of a plan by what they are about: under which keys JSON has them, and defaults."""

from __future__ import annotations

from paleo.costs import ConvolutionChoice

#: The keys of JSON under which a plan says which kernels run.
HOW = (
    "use_pipeline",
    "fuse",
    "framework",
    "compile",
    "graphs",
    "memory_format",
    "attention",
    *ConvolutionChoice().to_dict(),
    "convolution_algorithm",
)
#: Those that say how parameters are updated.
UPDATED = ("optimizer", "optimizer_kernels", "clip_gradients", "scale_loss")
#: Those that say what training makes smaller, and what is computed again.
TRAINED = ("loss", "recompute")
#: Those that say when gradients are exchanged.
OVERLAPPED = ("overlap", "bucket_bytes")
#: The same, and what of them is sent, to whom, and who waits.
EXCHANGED = (
    *OVERLAPPED,
    *("accumulate", "gradient_dtype", "compress", "num_servers", "jitter", "nccl"),
)
#: Settings that data parallelism alone has, and what they are where nothing is said.
OF_DATA_PARALLEL = {
    "accumulate": 1,
    "gradient_dtype": None,
    "compress": None,
    "num_servers": None,
    "jitter": None,
    "nccl": None,
}
#: The keys of JSON under which a plan says how devices share a net.
MESH = (
    "schedule",
    "interleave",
    "zero",
    "shard_degree",
    "offload",
    "sequence_parallel",
    "context",
    "expert_load",
    "expert_capacity",
    "allocator_slack",
)
#: How many devices share a net in each way.
DEGREES = ("tp", "pp", "cp", "ep")
