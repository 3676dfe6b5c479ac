"""What a simulation says: how quick training is on how many devices, and what limits it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paleo.cluster import Cluster
from paleo.cluster.topology import Level
from paleo.core.attributes import at_ends
from paleo.core.tensor import find_precision
from paleo.step.loader import LOADER
from paleo.step.parallelism import PARALLELISMS
from paleo.step.pieces import Step, WholeStep
from paleo.step.recompute import Recompute
from paleo.step.results import Predicted, Run, Simulation
from paleo.views.answers.base import (
    amounts,
    device_named,
    duration,
    misfits,
    percent,
    remedy_said,
    rounded,
    samples_of,
    spread,
    used,
    which,
)
from paleo.views.charts.numbers import counted
from paleo.views.table import in_unit

if TYPE_CHECKING:
    from paleo.studies.explain_exchange import ExplainedStep

#: The settings of a run that sentences do not say, but where there are several.
_DIFFERING = ("cluster", "network", "dtype", "cost_model", "scaling", "batch_size")
#: From this share of a step on it matters what is exposed of communication.
_MATTERS = 0.05
#: Bytes of an element than which a type is hardly smaller.
_HALF = 2


def simulation_answer(simulation: Simulation) -> list[str]:
    """Return the sentences of a simulation: of several runs, of the quickest that fits.

    Of one plan on several numbers of workers, of the most.
    """
    runs = [max(plan, key=_workers) for plan in simulation.plans]
    if len(runs) == 1:
        return run_answer(runs[0])
    trained = [run for run in runs if _whole(run)]
    if len(trained) < len(runs):
        return [sentence for run in runs for sentence in run_answer(run)]
    fitting = [run for run in runs if _fits(run) is not False]
    sentences = misfits(len(runs) - len(fitting), len(runs))
    among = fitting or runs
    best = max(among, key=lambda run: _rate(_whole(run)))
    first, *others = run_answer(best)
    if not fitting:
        return [*sentences, first, *others]
    name = which(best, among, *_DIFFERING)
    return [*sentences, f"The quickest of {len(among):,}{name}: {first}", *others]


def _workers(run: Run) -> int:
    return run.step.workers if run.step else 0


def _fits(run: Run) -> bool | None:
    """Return whether the batch of a worker fits on most workers, None where it is not known."""
    most = run.worth.largest_batch
    return None if most is None or not run.largest else bool(run.largest.worker_batch_size <= most)


def _rate(whole: WholeStep | None) -> float:
    return whole.throughput if whole else 0.0


def _whole(run: Run) -> WholeStep | None:
    """Return the step that is spoken of: on most workers, by the best scheme."""
    return run.largest.whole_step(run.best_scheme) if run.largest else run.step


def run_answer(
    run: Run, row: Step | None = None, scheme: str | None = None, *, remedied: bool = True
) -> list[str]:
    """Return the sentences of a run, of its step on most workers or of another of its rows.

    What would make a step on a mesh fit takes longer than all else: it is said if `remedied`.
    """
    row = row or run.largest
    if row is None or not row.exchanges:
        return _of_whole(run, run.step) if run.step else _of_passes(run)
    whole = row.whole_step(scheme or row.best_scheme)
    if PARALLELISMS[run.parallel].shares_net:
        memory = in_mesh(run, row)
        said = [speed_said(run, whole, memory), *_trained(run, whole), *_shared(run, row)]
        return (
            said
            if memory or row_value(row, "fits") is None
            else [_too_much(run, row, remedied=remedied), *said]
        )
    said = [
        speed_said(run, whole, _memory(run, row)),
        *_trained(run, whole),
        *_limits(run, row, whole, scheme or row.best_scheme),
        *_scaling(run, row),
        *_loading(row, scheme or row.best_scheme, whole),
    ]
    return [*_misfit(run, row), *said]


def speed_said(run: Predicted, whole: WholeStep, *more: str) -> str:
    """Return how quick training is, with the error band."""
    band, digits = run.plan.band, run.plan.digits
    what = samples_of(run.scenario.net)
    others = run.plan.other_devices
    kinds = [(run.device, whole.workers - sum(count for _, count in others))]
    kinds += [(device.name, count) for device, count in others]
    of = f" of {run.plan.cluster.name}" if run.plan.cluster else ""
    devices = " and ".join(f"{count:,} x {device_named(name)}" for name, count in kinds)
    devices = f"{devices}{of} train"
    if whole.workers == 1:
        devices = f"One {device_named(run.device)}{of} trains"
    about = "about " if band else ""
    tokens = whole.sample.tokens if whole.sample else None
    rate, things = whole.tokens_per_s or whole.throughput, "tokens" if tokens else what
    ends = at_ends(whole.ends, lambda end: end.tokens_per_s or end.throughput)
    slow, quick = amounts(ends, digits)[::-1]
    each = f" of {tokens:,} tokens" if tokens else ""
    sentence = (
        f"{devices} {run.net} at {about}{rounded(rate, digits)} {things}/s"
        f"{spread((slow, quick), band)}: "
        f"{duration(whole.seconds, digits)} a step of "
        f"{counted(whole.batch_size, what.removesuffix('s'))}{each}"
    )
    if tokens and whole.mfu:
        more = (f"{rounded(100 * whole.mfu, 2)} % MFU", *more)
    if whole.workers > 1 and whole.one_worker:
        more = (f"{percent(whole.efficiency)} scaling efficiency", *more)
    return ", ".join([sentence, *filter(None, more)]) + "."


def _trained(run: Run, whole: WholeStep) -> list[str]:
    """Return what the whole training takes and costs, where it is known how long it is."""
    training: Any = run.train(whole) if run.train else None
    if not training:
        return []
    from paleo.views.answers.training import training_said

    return [training_said(run, training, training.ends())]


def _memory(run: Run, row: Step) -> str:
    """Return the memory of a worker, if there is room for it."""
    found = run.footprint(row)
    if found is None or (run.memory_capacity or found.peak) < found.peak:
        return ""
    each = "" if row.workers == 1 else " each"
    return f"{used(float(found.peak), run.memory_capacity)} used{each}"


def _misfit(run: Run, row: Step) -> list[str]:
    """Return what is said first of a step for which there is not the memory."""
    largest, found = run.worth.largest_batch, run.footprint(row)
    if largest is None or found is None or row.worker_batch_size <= largest:
        return []
    peak, there = in_unit(float(found.peak), "bytes", 3), in_unit(run.memory_capacity, "bytes")
    needed = f"training needs {peak}, one {device_named(run.device)} has {there}"
    if not largest:
        return [f"It does not fit, not even one sample does: {needed}."]
    most = largest * (row.workers if run.scaling == "strong" else 1)
    batch = f"--batch_size={most} is the largest that does"
    return [f"It does not fit: {needed}; {'; '.join([batch, *_less(run)])}. If it did fit:"]


def _less(run: Run) -> list[str]:
    """Return what may take less memory: a smaller type, or blocks that are computed again."""
    if find_precision(run.dtype).element_size > _HALF:
        return ["a smaller type, such as --dtype=mixed_fp16, may help"]
    has_blocks = bool(Recompute("full").regions(run.scenario.graph(1)))
    is_kept = has_blocks and run.plan.recompute.mode != "full"
    return ["--recompute=full may help"] * is_kept


def row_value(row: Step, key: str) -> Any:
    """Return the value of a step under a key of its JSON."""
    return next(entry.value(row) for entry in row.fields if entry.key == key)


def in_mesh(run: Run, row: Step) -> str:
    """Return what a device of the fullest stage takes of its memory, "" if that is too much."""
    if not row_value(row, "fits"):
        return ""
    return f"{used(float(row_value(row, 'memory_bytes')), run.memory_capacity)} used at most"


def _too_much(run: Run, row: Step, *, remedied: bool) -> str:
    """Return that a stage does not fit."""
    needed = in_unit(float(row_value(row, "memory_bytes")), "bytes", 3)
    there = in_unit(run.memory_capacity, "bytes")
    said = f"the fullest stage needs {needed}, one {device_named(run.device)} has {there}"
    if row_value(row, "memory_bytes") <= (run.memory_capacity or 0):
        on_host = in_unit(float(row_value(row, "host_memory_bytes")), "bytes", 3)
        said = f"each device needs {on_host} of its host's memory, which is more than its share"
    if not remedied:
        return f"It does not fit: {said}. If it did fit:"
    from paleo.studies.fitting import remedy  # here: most steps fit
    from paleo.studies.mesh_stages import meshed_of

    found = remedy(meshed_of(run, row), row.batch_size)
    if found is None:
        more = "more devices for tensors or stages (--tp, --pp) may help"
        return f"It does not fit: {said}; {more}. If it did fit:"
    return f"It does not fit: {said}. {remedy_said(found)} If it did fit:"


#: What the parts of a step on a mesh are called in a sentence.
_PARTS = {
    "tensor_parallel": "messages of tensor parallelism",
    "context_parallel": "messages of context parallelism",
    "expert_parallel": "messages of expert parallelism",
    "parameters_gathered": "gathering parameters and sharing out gradients",
    "pipeline_parallel": "messages between stages",
    "data_parallel": "the exchange of gradients",
    "offloaded": "copies to the host and back",
    "bubble": "waiting in the pipeline (the bubble)",
    LOADER: "waiting for the data loader",
}


def _shared(run: Run, row: Step) -> list[str]:
    """Return what of a step on a mesh is computation, and what is not."""
    pieces = row.under(row.best_scheme)
    seconds = float(sum(piece.seconds for piece in pieces))
    others = {
        _PARTS[piece.name]: float(piece.seconds) / seconds
        for piece in pieces
        if piece.name in _PARTS and piece.seconds >= 0.005 * seconds
    }
    computing = percent(float(row.compute) / seconds)
    shares = [
        f"{percent(share)} {name}" for name, share in sorted(others.items(), key=lambda kv: -kv[1])
    ]
    if not shares:
        return ["All of the step is computation."]
    *front, last = shares
    said = f"{', '.join(front)} and {last}" if front else last
    return [f"{computing} of the step is computation, {said}."]


def _loading(row: Step, scheme: str, whole: WholeStep) -> list[str]:
    """Return how long a step waits for the data loader, if that is to be seen."""
    share = float(row.loading(scheme)) / whole.seconds
    return [f"{percent(share)} of the step waits for the data loader."] if share >= 0.005 else []


def _limits(run: Run, row: Step, whole: WholeStep, scheme: str) -> list[str]:
    """Return how much of communication is hidden, and what most of a step is."""
    share, waiting = float(row.compute) / whole.seconds, float(row.waiting) / whole.seconds
    from paleo.studies.explain_exchange import (
        explain_step,  # here: a step on one worker starts without
    )

    explained = explain_step(run, row, scheme)
    said = exchange_said(explained, run.plan.digits) if explained else []
    if row.workers > 1 and share + waiting < 0.5:
        what = f"{percent(1 - share - waiting)} of the step is communication by {run.network}"
        return said or [f"{what}: a quicker network or a larger batch would help."]
    kind, most = next(iter(run.time_by_type(row).items()), ("", 0.0))
    if not most:
        return said
    of_passes = f"{kind} layers are {percent(most / row.compute)} of"
    if row.workers == 1:
        return [f"{of_passes} the step."]
    return [*said, f"{percent(share)} of the step is computation; {of_passes} that."]


def exchange_said(explained: ExplainedStep, digits: int = 2) -> list[str]:
    """Return how much of communication is hidden, and what bounds it where that matters."""
    said = [_hidden_said(explained, digits)]
    share = explained.exposed / float(explained.step.total(explained.scheme))
    if share >= _MATTERS:
        said[0] = f"{said[0].removesuffix('.')}; the rest is {percent(share)} of the step."
        if not explained.hidden:
            said[0] = (
                f"{duration(explained.communication, digits)} of communication, "
                f"{percent(share)} of the step, come after the backward pass."
            )
        said.append(_bottleneck(explained))
    return said


def _hidden_said(explained: ExplainedStep, digits: int) -> str:
    whole, exposed = explained.communication, explained.exposed
    said = f"{duration(whole, digits)} of communication"
    behind = "hidden behind the backward pass"
    if not explained.hidden:
        return f"{said} come after the backward pass."
    if exposed <= 0:
        return f"All of {said} is {behind}."
    if explained.hidden < exposed:
        return f"Of {said} {duration(explained.hidden, digits)} are {behind}."
    last = ", of the last gradients," if explained.buckets[-1].exposed >= exposed else ""
    return f"Of {said} all but {duration(exposed, digits)}{last} is {behind}."


def _bottleneck(explained: ExplainedStep) -> str:
    level = explained.bounding_level
    if level is None:
        more = "larger buckets or a larger batch" if explained.hidden else "a larger batch"
        return f"Latency, of many messages in turn, is the bottleneck: {more} would help."
    links = links_said(level, explained.plan.topology)
    return f"{links[0].upper()}{links[1:]}: quicker ones or a larger batch would help."


def links_said(level: Level, cluster: Cluster) -> str:
    """Return that the links of a tier are the bottleneck, with what they connect and how quickly.

    A cluster of one tier has a network.
    """
    tier, links = level.tier, float(level.links)
    i = [each.name for each in cluster.tiers].index(tier.name)
    member = cluster.tiers[i - 1].name if i else "device"
    count = f"{links:g} x " if links != 1 else ""
    rate = f"{count}{tier.network.name}, {in_unit(level.bandwidth, 'bytes/s', 3)} per {member}"
    if len(cluster.tiers) == 1:
        return f"the links of the network ({rate}) are the bottleneck"
    if not i:
        a = "an" if tier.name[0] in "aeiou" else "a"
        return f"the links inside {a} {tier.name} ({rate}) are the bottleneck"
    return f"the links from one {member} to another ({rate}) are the bottleneck"


def _scaling(run: Run, row: Step) -> list[str]:
    """Return from how many workers on it scales badly, if these are as many."""
    if row.workers == 1:
        return []
    balance = run.worth.balance.get(row.best_scheme)
    if balance and balance <= row.workers:
        return [f"From {balance:,} workers on communication takes at least as long as computation."]
    knee = run.worth.knee.get(row.best_scheme)
    if knee and knee < row.workers:
        return [f"More than {knee:,} worker{'s' * (knee != 1)} waste more than they gain."]
    return []


def _of_whole(run: Run, whole: WholeStep) -> list[str]:
    return [speed_said(run, whole), *_trained(run, whole)]


def _of_passes(run: Run) -> list[str]:
    """Return what both passes take where there is no step: of layers split over devices."""
    digits = run.plan.digits
    splits = max(run.scenario.net.splits, default=1)
    least, most = sum(row.total() for row in run.rows), sum(row.busy for row in run.rows)
    device = device_named(run.device)
    devices = f"{splits} x {device} take" if splits > 1 else f"One {device} takes"
    seconds = " to ".join(dict.fromkeys(duration(end, digits) for end in (least, most)))
    batch = f"a batch of {run.batch_size:,} {samples_of(run.scenario.net)}"
    return [f"{devices} {seconds} for {batch} through {run.net} and back, {run.division}."]
