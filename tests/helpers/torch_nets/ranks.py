"""The memory of training steps of small nets that several processes share, over gloo.

    python ranks.py '[{"net": "gpt", "dp": 2, "how": "fsdp", ...}, ...]'

prints a line for each case (see `Case`): a JSON list of the most bytes of tensors of each process
in a step after the first ones. Processes are forked from one that has computed nothing yet.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn import functional as F  # noqa: N812

sys.path.insert(0, str(Path(__file__).parents[1]))

from torch_nets import recomputed
from torch_nets.alive import Alive
from torch_nets.peak import OPTIMIZERS

#: Seconds that the processes of one case may take.
_PATIENCE = 120
#: Steps before the one that is measured: the first make what stays.
_BEFORE = 3


@dataclass(frozen=True)
class Case:
    """A net shared by dp x tp x pp processes.

    `how` says what shares of the data do: "ddp", "ddp_views" (gradients are views of buckets),
    "zero1" (ZeroRedundancyOptimizer), "fsdp" (FSDP2, whose blocks are gathered in each pass) or
    "fsdp_kept" (they stay gathered). `batch` is of each share of the data, in `micro_batches`.
    `sizes` are set by `torch_nets.recomputed.sized`.
    """

    net: str
    dp: int = 1
    tp: int = 1
    pp: int = 1
    how: str = ""
    sequence: bool = False
    schedule: str = ""
    interleave: int = 1
    batch: int = 4
    micro_batches: int = 1
    optimizer: str = "sgd"
    fused: bool = False
    mode: str = "none"
    dtype: str = "fp32"
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def processes(self) -> int:
        return self.dp * self.tp * self.pp

    def net_of(self) -> nn.Module:
        """Return the net, of the sizes that are set now."""
        return recomputed.NETS[self.net](self.fused, self.mode)


class _Stage(nn.Module):
    """Some of the blocks of a net, with what stands before the first and behind the last."""

    def __init__(self, net: Any, blocks: range) -> None:
        super().__init__()
        self.is_first, self.is_last = blocks.start == 0, blocks.stop == len(net.h)
        own = {name: child for name, child in net.named_children() if name != "h"}
        own |= dict(net.named_parameters(recurse=False))
        ends = ("norm_f", "head")
        for name, child in own.items():
            if self.is_last if name in ends else self.is_first:
                setattr(self, name, child)
        self.h = nn.ModuleList([net.h[i] for i in blocks])
        self._begin, self._end = type(net).begin, type(net).end

    def forward(self, x: Tensor) -> Tensor:
        if self.is_first:
            x = self._begin(self, x)
        for block in self.h:
            x = block(x)
        return self._end(self, x) if self.is_last else x


def _tensor_parallel(net: Any, mesh: DeviceMesh, sequence: bool) -> Any:
    """Divide a transformer as torchtitan does."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    between: Any = Shard(1) if sequence else Replicate()
    plan: dict[str, Any] = {}
    if hasattr(net, "words"):
        plan["words"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
    if hasattr(net, "head") and net.head.out_features > recomputed.CLASSES:
        plan["head"] = ColwiseParallel(
            input_layouts=between, output_layouts=Shard(-1), use_local_output=False
        )
        if sequence:
            plan["norm_f"] = SequenceParallel()
    for i, block in enumerate(net.h):
        names = [name for name, _ in block.named_modules()]
        own: dict[str, Any] = {}
        for name in names:
            if name in ("norm1", "norm2") and sequence:
                own[name] = SequenceParallel()
            elif name.endswith((".query", ".key", ".value", ".fc1", ".gate", ".up")):
                own[name] = ColwiseParallel()
            elif name.endswith((".out", ".fc2", ".down")):
                own[name] = RowwiseParallel(output_layouts=between)
            elif name in ("attention", "mlp"):
                own[name] = PrepareModuleInput(
                    input_layouts=(between,), desired_input_layouts=(Replicate(),)
                )
        plan |= {f"h.{i}.{name}": style for name, style in own.items()}
    return parallelize_module(net, mesh, plan)


def _sharded(net: Any, mesh: DeviceMesh, case: Case) -> Any:
    """Shard parameters by FSDP2: those of each block, and all others."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    options: dict[str, Any] = {"mesh": mesh}
    if case.how == "fsdp_kept":
        options["reshard_after_forward"] = False
    if case.dtype == "mixed_bf16":
        options["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32
        )
    for block in net.h:
        fully_shard(block, **options)
    return fully_shard(net, **options)


def _loss(name: str) -> Callable[[Any, Tensor], Tensor]:
    if name in ("vit", "conv"):
        return F.cross_entropy
    return recomputed.loss_of_words


def _schedule(case: Case, mesh: DeviceMesh, stages: list[nn.Module]) -> Any:
    """Return the schedule of a pipeline."""
    from torch.distributed.pipelining import PipelineStage, schedules

    place, count = mesh.get_local_rank(), case.pp * case.interleave
    made = [
        PipelineStage(
            module, place + i * case.pp, count, torch.device("cpu"), group=mesh.get_group()
        )
        for i, module in enumerate(stages)
    ]
    kind = {
        "gpipe": schedules.ScheduleGPipe,
        "1f1b": schedules.Schedule1F1B,
        "interleaved": schedules.ScheduleInterleaved1F1B,
        "zero_bubble": schedules.ScheduleInterleavedZeroBubble,
    }[case.schedule]
    first: Any = made[0] if case.schedule in ("gpipe", "1f1b") else made
    return kind(first, case.micro_batches, loss_fn=_loss(case.net))


def _step(case: Case, tracker: Alive) -> tuple[Callable[[], None], Any]:
    """Return a step, and its optimizer."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (case.pp, case.dp, case.tp), mesh_dim_names=("pp", "dp", "tp"))
    net: Any = case.net_of().train()
    chunks = case.pp * case.interleave
    each = len(net.h) // chunks
    own = range(mesh["pp"].get_local_rank(), chunks, case.pp)
    parts: list[Any] = [_Stage(net, range(i * each, (i + 1) * each)) for i in own]
    if case.tp > 1:
        parts = [_tensor_parallel(part, mesh["tp"], case.sequence) for part in parts]
    if case.how.startswith("fsdp"):
        parts = [_sharded(part, mesh["dp"], case) for part in parts]
    elif case.dp > 1:
        views = case.how == "ddp_views"
        group = mesh["dp"].get_group()
        parts = [
            nn.parallel.DistributedDataParallel(
                part, process_group=group, gradient_as_bucket_view=views
            )
            for part in parts
        ]
    params = [param for part in parts for param in part.parameters()]
    make = OPTIMIZERS[case.optimizer]
    if case.how == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        kind = type(make([nn.Parameter(torch.zeros(1))]))
        how = {"momentum": 0.9} if case.optimizer == "momentum" else {}
        optimizer: Any = ZeroRedundancyOptimizer(
            params, kind, process_group=mesh["dp"].get_group(), lr=1e-3, **how
        )
    else:
        optimizer = make(params)
    place = mesh["pp"].get_local_rank()
    x: Tensor | None = recomputed.batch_of(case.net, case.batch)
    labels = x if case.net not in ("vit", "conv") else torch.zeros(case.batch, dtype=torch.int64)
    x = x if place == 0 else None
    labels = labels if place == case.pp - 1 else None
    tracker.add([x, labels, *params, *(each for part in parts for each in part.buffers())])
    del net
    if case.pp > 1:
        schedule = _schedule(case, mesh["pp"], parts)

        def pipelined() -> None:
            given = () if x is None else (x,)
            with _divided_loss(case):
                schedule.step(*given, target=labels, return_outputs=False)
            optimizer.step()

        return pipelined, optimizer
    (module,) = parts
    loss_of, count = _loss(case.net), case.micro_batches
    assert x is not None
    assert labels is not None
    shares = list(zip(x.chunk(count), labels.chunk(count), strict=True))

    def plain() -> None:
        for own, wanted in shares:
            with _divided_loss(case):
                scores = module(own)
                loss_of(scores, wanted).backward()
            del scores
        optimizer.step()

    return plain, optimizer


def _divided_loss(case: Case) -> Any:
    """Return the context in which scores that are divided by words are judged as they are."""
    if case.tp == 1 or case.net in ("vit", "conv"):
        return contextlib.nullcontext()
    from torch.distributed.tensor.parallel import loss_parallel

    return loss_parallel()


def _measured(case: Case) -> int:
    with recomputed.sized(case.sizes), Alive() as tracker:
        step, optimizer = _step(case, tracker)
        for _ in range(_BEFORE):
            step()
            optimizer.zero_grad(set_to_none=True)
        tracker.begin()
        step()
    return tracker.most


def _process(case: Case, rank: int, folder: str, found: Any) -> None:
    torch.set_num_threads(1)
    try:
        store = dist.FileStore(f"{folder}/store", case.processes)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=case.processes)
        found.put((rank, _measured(case), ""))
        dist.barrier()
        dist.destroy_process_group()
    except Exception:  # noqa: BLE001 - whatever it is, the first process says it
        found.put((rank, 0, traceback.format_exc()))
    found.close()
    found.join_thread()
    os._exit(0)


def measured(case: Case) -> list[int]:
    """Return the most bytes of tensors of each process; raises RuntimeError where one fails."""
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=_process, args=(case, rank, folder, queue))
            for rank in range(case.processes)
        ]
        for process in processes:
            process.start()
        try:
            said = [queue.get(timeout=_PATIENCE) for _ in processes]
        finally:
            for process in processes:
                process.join(5)
                process.kill()
    errors = [text for _, _, text in said if text]
    if errors:
        raise RuntimeError(f"{case}: {errors[0]}")
    return [most for _, most, _ in sorted(said)]


def main() -> None:
    """Measure the cases of the first argument, and print a line for each."""
    for case in json.loads(sys.argv[1]):
        sys.stdout.write(json.dumps(measured(Case(**case))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
