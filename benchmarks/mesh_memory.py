"""Predicted memory of devices that share a net beside what processes of PyTorch take over gloo.

    python benchmarks/mesh_memory.py            measure all and print a table (10 minutes)
    python benchmarks/mesh_memory.py --write    and write it into docs/accuracy.md
    python benchmarks/mesh_memory.py --check    measure a few; exit with 1 if a bound is missed
    python benchmarks/mesh_memory.py --rows     print each stage as well

Small nets (`tests/helpers/torch_nets/recomputed.py`) are trained by 2 to 8 processes on the CPU
(`ranks.py` beside it); each process counts the bytes of its tensors, as benchmarks/memory.py does.
The fullest process of a stage stands beside that stage's memory of `paleo memory`; nothing is
fitted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paleo
from paleo.studies.mesh_memory import mesh_memory

ROOT = Path(__file__).parents[1]
HELPERS = ROOT / "tests" / "helpers"
PAGE = ROOT / "docs" / "accuracy.md"
MARKS = "<!-- mesh memory -->\n", "<!-- end of mesh memory -->\n"
sys.path.insert(0, str(HELPERS))

if TYPE_CHECKING:
    from torch_nets.ranks import Case

#: Mean and largest error over all stages, and that of each stage that --check measures.
BOUND_OF_MEAN, BOUND_OF_WORST, BOUND_OF_STAGE = 0.05, 0.20, 0.05
#: The widths at which parameters weigh as much as activations. Words divide by 128 x 4.
WIDE = {"WIDTH": 128, "HEADS": 8, "GROUPS": 4, "WORDS": 1024}
SIZES: dict[str, dict[str, int]] = {"conv": {"WIDTH": 64}}
NETS = ("gpt", "llama", "moe", "vit", "conv")
#: What `paleo memory` calls what shares of the data do.
ZERO = {"": 0, "ddp": 0, "ddp_views": 0, "zero1": 1, "fsdp": 3, "fsdp_kept": 2}
#: The rows of the table.
TITLES = {
    "ddp": "DistributedDataParallel",
    "ddp_views": "DistributedDataParallel, gradients in buckets",
    "zero1": "ZeroRedundancyOptimizer (ZeRO 1)",
    "fsdp_kept": "fully_shard, parameters stay gathered (ZeRO 2)",
    "fsdp": "fully_shard (ZeRO 3)",
    "tp": "tensor parallel",
    "sequence": "tensor and sequence parallel",
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "interleaved 1F1B",
    "zero_bubble": "zero bubble",
    "fsdp x sequence": "fully_shard x tensor and sequence parallel",
    "1f1b x ddp": "1F1B x DistributedDataParallel",
    "1f1b x fsdp_kept": "1F1B x fully_shard, parameters stay gathered",
}


@dataclass(frozen=True)
class Row:
    """A stage: bytes predicted, and those of its fullest process."""

    case: Case
    stage: int
    predicted: int
    measured: int

    @property
    def kind(self) -> str:
        """The key of TITLES."""
        case = self.case
        tensors = {1: ""}.get(case.tp, "sequence" if case.sequence else "tp")
        first = case.schedule if case.pp > 1 else case.how
        second = (case.how if case.pp > 1 else "") or tensors
        return " x ".join(filter(None, (first, second)))

    @property
    def error(self) -> float:
        """How much too much is predicted."""
        return self.predicted / self.measured - 1


def cases() -> Iterator[Case]:
    """Yield what is measured."""
    from torch_nets.ranks import Case

    def case(net: str, **values: Any) -> Case:
        return Case(net, **{"sizes": SIZES.get(net, WIDE), "optimizer": "adam", **values})

    for net in NETS:
        for how in ("ddp", "ddp_views", "zero1", "fsdp_kept", "fsdp"):
            plain = {"optimizer": "sgd"} if how.startswith("ddp") else {}
            for dp in (2, 4):
                yield case(net, dp=dp, how=how, batch=2, **plain)
        for schedule in ("gpipe", "1f1b", "zero_bubble"):
            yield case(net, pp=2, schedule=schedule, batch=8, micro_batches=4)
            if net != "moe":  # which has two blocks
                yield case(net, pp=4, schedule=schedule, batch=8, micro_batches=8)
    yield case("gpt", dp=8, how="fsdp", batch=2)
    for net, tp in (("gpt", 2), ("gpt", 4), ("llama", 2)):
        for sequence in (False, True):
            yield case(net, tp=tp, sequence=sequence, fused=True)
    yield case("vit", tp=2, fused=True)
    for net in ("gpt", "llama", "vit", "conv"):
        interleaved = {"pp": 2, "interleave": 2, "schedule": "interleaved"}
        yield case(net, **interleaved, batch=8, micro_batches=4)
    pipeline = {"pp": 2, "schedule": "1f1b", "batch": 8, "micro_batches": 4}
    for net in ("gpt", "llama"):
        yield case(net, dp=2, tp=2, how="fsdp", sequence=True, fused=True)
        yield case(net, dp=2, how="ddp", **pipeline)
        yield case(net, dp=2, how="fsdp_kept", **pipeline)


def small() -> list[Case]:
    """Return what --check measures: one of each kind that two processes can share."""
    kinds = {"ddp", "ddp_views", "zero1", "fsdp_kept", "fsdp", "tp", "sequence", "gpipe", "1f1b"}
    wanted = {"gpt": kinds, "conv": {"fsdp", "ddp"}}
    return [
        case
        for case in cases()
        if case.processes == 2 and Row(case, 0, 0, 1).kind in wanted.get(case.net, ())
    ]


def measured(wanted: Sequence[Case]) -> Iterator[list[int]]:
    """Yield the bytes of the processes of each case, which a Python of their own starts."""
    program = [sys.executable, "-W", "ignore", str(HELPERS / "torch_nets" / "ranks.py")]
    given = json.dumps([asdict(case) for case in wanted])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*program, given], stdout=subprocess.PIPE, text=True, env=environment
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            yield json.loads(line)
    if running.returncode:
        raise RuntimeError(f"{program[-1]} ended with {running.returncode}")


def predicted(case: Case) -> list[int]:
    """Return the bytes of a device of each stage."""
    from torch_nets import recomputed

    with recomputed.sized(case.sizes):
        example = recomputed.batch_of(case.net, 2)
        options = paleo.ImportOptions(input=((None, tuple(example.shape)),))
        net = paleo.load(case.net_of(), options)
    (found,) = mesh_memory(
        net,
        cluster="dgx_a100",
        # Without a framework gradients lie in buckets from the beginning.
        framework=None if case.how == "ddp_views" else "pytorch",
        workers=case.processes,
        tp=case.tp,
        pp=case.pp,
        zero=ZERO[case.how],
        sequence_parallel=case.sequence,
        schedule={"": "1f1b", "interleaved": "1f1b"}.get(case.schedule, case.schedule),
        interleave=case.interleave,
        micro_batch=case.batch // case.micro_batches,
        global_batch=case.batch * case.dp,
        optimizer=case.optimizer,
        # As PyTorch does on the CPU.
        optimizer_kernels="forloop" if case.optimizer == "adam" else None,
    )
    return [int(stage.allocated) for stage in found.stages]


def rows(wanted: Sequence[Case]) -> Iterator[Row]:
    """Measure cases, and yield their stages."""
    for case, found in zip(wanted, measured(wanted), strict=True):
        each = case.dp * case.tp
        for stage, size in enumerate(predicted(case)):
            yield Row(case, stage, size, max(found[stage * each : (stage + 1) * each]))


def table(found: Sequence[Row]) -> str:
    """Return the table of errors, by kind."""
    lines = [
        "| shared by | stages | mean error | worst | mean, signed |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for kind, title in TITLES.items():
        own = [row for row in found if row.kind == kind]
        if own:
            lines.append(_line(title, own))
    return "\n".join([*lines, _line("**all**", found)])


def _line(title: str, found: Sequence[Row]) -> str:
    signed = sum(row.error for row in found) / len(found)
    numbers = [f"{100 * value:.1f} %" for value in errors(found)]
    return f"| {title} | {len(found)} | {' | '.join(numbers)} | {100 * signed:+.1f} % |"


def errors(found: Iterable[Row]) -> tuple[float, float]:
    """Return the mean and the largest error, without their signs."""
    sizes = [abs(row.error) for row in found]
    return sum(sizes) / len(sizes), max(sizes)


def main() -> int:
    """Measure and print; return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md")
    parser.add_argument("--check", action="store_true", help="a few; exit with 1 if missed")
    parser.add_argument("--rows", action="store_true", help="print each stage")
    options = parser.parse_args()
    found = []
    for row in rows(small() if options.check else list(cases())):
        found.append(row)
        if options.rows:
            case, mega = row.case, (row.predicted / 1e6, row.measured / 1e6)
            shape = f"{case.net} {row.kind} dp {case.dp} tp {case.tp} pp {case.pp}"
            print(
                f"{shape} stage {row.stage}: %.3f of %.3f MB" % mega,
                f"{row.error:+.1%}",
                flush=True,
            )
    text = table(found)
    print(text)
    if options.write:
        begin, end = MARKS
        before, _, rest = PAGE.read_text("utf-8").partition(begin)
        _, _, after = rest.partition(end)
        PAGE.write_text(f"{before}{begin}\n{text}\n\n{end}{after}", "utf-8")
    average, worst = errors(found)
    if options.check:
        return int(worst > BOUND_OF_STAGE)
    return int(average > BOUND_OF_MEAN or worst > BOUND_OF_WORST)


if __name__ == "__main__":
    sys.exit(main())
