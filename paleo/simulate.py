"""Predicting training steps: nets on a cluster, under a plan, at many worker counts."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from paleo.collectives import COLLECTIVES
from paleo.costs import DEFAULT_COST_MODEL, CostModel, convolution_choice, find_cost_model
from paleo.errors import Mistakes, PaleoError, SettingError
from paleo.estimate import (
    DeviceLike,
    NetworkLike,
    checked_share,
    checked_workers,
    net_band,
)
from paleo.graph import checked_batch
from paleo.hardware import find_device, find_network
from paleo.importers import ImportOptions
from paleo.layers.convolution import Filtered
from paleo.load import load
from paleo.memory import largest_batch
from paleo.netspec import NetSpec
from paleo.parallelism import (
    SCALINGS,
    Computations,
    DataParallel,
    DataParallelStep,
    Plan,
    divided,
    hybrid_parallel,
    model_parallel,
)
from paleo.parallelism.data import spread_times
from paleo.parallelism.plan import check_together
from paleo.quantity import Quantity, has_arrays, is_array
from paleo.rows import DataRow, HybridRow, ModelRow, Run, Simulation, WholeStep, Worth
from paleo.scaling import Curve, balance, curve, knee, own_batches
from paleo.tensor import find_precision
from paleo.values import check_choice, listed, python_int, shown

__all__ = ["DEFAULT_WORKERS", "PARALLELISMS", "NetLike", "simulate"]

#: Layers that differ, times batch sizes, from which arrays are quicker, NumPy's import and all.
_WORTH_ARRAYS = 300
#: So many are computed at once whether or not anybody will ask.
_FEW_BATCHES = 64
#: Worker counts from which their exchanges are too.
_MANY_WORKERS = 500

#: The ways to divide a step among devices.
PARALLELISMS = ("data", "model", "hybrid")
#: The worker counts of the original command line.
DEFAULT_WORKERS = (1, 2, 4, 8, 16, 32, 64, 128)

NetLike = str | os.PathLike[str] | NetSpec


def simulate(
    nets: NetLike | Iterable[NetLike],
    *,
    device: DeviceLike = "TITAN_X",
    network: NetworkLike = "ethernet",
    batch_size: int = 128,
    workers: int | Sequence[int] = DEFAULT_WORKERS,
    scaling: str | Sequence[str] = SCALINGS,
    parallel: str = "data",
    hybrid_workers: int = 1,
    use_pipeline: bool = False,
    use_only_gemm: bool = False,
    ppp_comp: float = 1.0,
    ppp_comm: float = 1.0,
    cost_model: str | CostModel = DEFAULT_COST_MODEL,
    schemes: str | Sequence[str] | None = None,
    importing: ImportOptions | None = None,
    dtype: str = "fp32",
    fuse: bool = False,
    conv_library: str | None = None,
    workspace: int | str | None = None,
    computations: Computations | None = None,
) -> Simulation:
    """Predict training steps of one net or several.

    `nets`, `device` and `network` are names, paths of files, or objects. `batch_size` is one
    worker's in weak scaling, all workers' in strong scaling, and replaces the file's. `workers`,
    `scaling` and `schemes` are for `parallel` "data" alone, `hybrid_workers` for "hybrid" alone.
    `ppp_comp` and `ppp_comm` are the shares of peak that computation and communication reach, above
    0 and up to 1. Each convolution takes the quickest algorithm that `conv_library` offers (one of
    paleo.costs.convolutions.LIBRARIES; None: what the cost model takes by itself) within a
    `workspace` of so many bytes, or a text such as "4 GiB"; with `use_only_gemm`, the quickest
    matrix product. `dtype` is one of paleo.tensor.PRECISIONS; with `fuse`, pointwise operations run
    in the kernels before them, as paleo.fusion says. `importing` is for files of other frameworks,
    as in `load`. `computations`, of this one net on this device and so on, are used again: what
    they know is not computed anew. Raises a PaleoError with every mistake in settings and files.
    """
    mistakes = Mistakes()
    check = mistakes.check
    many = check(listed, "nets", nets, str | os.PathLike | NetSpec) or []
    specs = [check(load, net, importing) for net in many]
    plan_parts = (
        check(find_device, device),
        check(find_network, network),
        check(find_cost_model, cost_model),
    )
    batch_size = python_int(batch_size)
    check(_check_scalar, "batch_size", batch_size)
    check(checked_batch, batch_size)
    scalings = check(listed, "scaling", scaling, str) or []
    for each in scalings:
        check(check_choice, "scaling", each, SCALINGS)
    check(check_choice, "parallel", parallel, PARALLELISMS)
    counts = [python_int(k) for k in check(listed, "num_workers", workers, int | float) or []]
    for count in counts:
        check(checked_workers, count)
    hybrid_workers = python_int(hybrid_workers)
    check(_check_scalar, "hybrid_workers", hybrid_workers)
    check(checked_workers, hybrid_workers, "hybrid_workers")
    chosen = list(COLLECTIVES) if schemes is None else check(listed, "schemes", schemes, str)
    for scheme in chosen or []:
        check(COLLECTIVES.__getitem__, scheme)
    for name, value in (("ppp_comp", ppp_comp), ("ppp_comm", ppp_comm)):
        check(_check_scalar, name, value)
        check(checked_share, value, name)
    check(find_precision, dtype)
    check(convolution_choice, conv_library, workspace)
    mistakes.raise_as(PaleoError)

    found_device, found_network, found_model = plan_parts
    assert found_device is not None
    assert found_network is not None
    assert found_model is not None
    plan = Plan(
        found_device,
        found_network,
        found_model,
        dtype,
        use_pipeline=use_pipeline,
        ppp_comp=ppp_comp,
        ppp_comm=ppp_comm,
        schemes=tuple(chosen or ()),
        fuse=fuse,
        conv_library=conv_library,
        workspace=workspace,
        use_only_gemm=use_only_gemm,
    )
    runs: list[Run] = []
    for spec in specs:
        assert spec
        if computations and not computations.suit(spec, plan):
            raise SettingError("computations: they are of another net, or under another plan")
        case = _Case(spec, plan, batch_size, computations)
        if parallel == "data":
            for each in scalings:
                run = check(case.data, counts, each)
                runs += [run] if run else []
        else:
            run = check(case.model) if parallel == "model" else check(case.hybrid, hybrid_workers)
            runs += [run] if run else []
    mistakes.raise_as(PaleoError)
    return Simulation(tuple(runs))


def _check_scalar(name: str, value: Any) -> None:
    if is_array(value):
        raise SettingError(
            f"{name}: expected one number, got {shown(value)}; paleo.data_parallel takes arrays"
        )


@dataclass(frozen=True)
class _Case:
    """One net under a plan; each method makes a Run of it."""

    net: NetSpec
    plan: Plan
    batch_size: int
    computations: Computations | None = None

    @functools.cached_property
    def _data(self) -> DataParallel:
        return DataParallel(self.net, self.plan, self.computations)

    @functools.cached_property
    def _largest_batch(self) -> int | None:
        capacity = self.plan.device.memory_capacity
        if capacity is None:
            return None
        try:
            return largest_batch(self.net, capacity, dtype=self.plan.dtype)
        except PaleoError:  # a net that only the conventions of this cost model can take
            return None

    def data(self, workers: list[int], scaling: str) -> Run:
        check_together(self.batch_size, max(workers))
        batches = {divided(self.batch_size, count, scaling)[0] for count in workers}
        if scaling == "strong":
            on_curve = own_batches(self.batch_size)
            if len(on_curve) <= _FEW_BATCHES:  # `worth` will ask for them
                batches.update(on_curve)
        self._prepare(batches)
        steps = self._steps(workers, scaling)
        alone = self._data.step(self.batch_size, 1, scaling)
        rows = tuple(
            DataRow(
                workers=count,
                batch_size=int(step.batch_size),
                iterations=step.iterations,
                forward=float(step.forward),
                backward=float(step.backward),
                update=float(step.update),
                communication={name: float(s) for name, s in step.communication.items()},
                one_worker=float(alone.compute),
                one_worker_batch=self.batch_size,
                times=step.times,
            )
            for count, step in zip(workers, steps, strict=True)
        )
        notes = []
        if scaling == "strong" and max(workers) > self.batch_size:
            notes.append(
                f"up to {max(workers)} workers share {self.batch_size} samples: "
                "computed with one sample each where there are more workers than samples"
            )
        return self._run("data", scaling, rows, notes)

    def _prepare(self, own_batches: Iterable[int]) -> None:
        """Compute these batches of one worker at once, if that is sooner done."""
        computations, batches = self._data.computations, list(own_batches)
        missing = computations.missing(batches)
        if len(missing) > 1 and (has_arrays() or self._is_much(len(missing))):
            with contextlib.suppress(PaleoError):  # which is then said of each by itself
                computations.prepare(batches)

    def _is_much(self, batches: int) -> bool:
        """Tell whether so many batch sizes of this net are sooner computed by NumPy."""
        layers = {spec.layer for spec in self.net.layers}
        return len(layers) * batches >= _WORTH_ARRAYS

    def worth(self, scaling: str | None) -> Worth:
        """Return what is worth it; without scaling, only what fits."""
        curves: dict[str, Curve] = {}
        if scaling == "strong":
            self._prepare(own_batches(self.batch_size))
        if scaling is not None:
            for scheme in self.plan.schemes:
                curves[scheme] = curve(self._data, self.batch_size, scaling, scheme)
        return Worth(
            {scheme: knee(found) for scheme, found in curves.items()},
            {scheme: balance(found) for scheme, found in curves.items()},
            None if scaling is None and self.net.splits else self._largest_batch,
        )

    def _steps(self, workers: list[int], scaling: str) -> list[DataParallelStep]:
        """Return the step for each worker count.

        Many are evaluated at once as arrays; few are done sooner than NumPy is imported.
        The numbers are the same.
        """
        if len(workers) < _MANY_WORKERS:
            return [self._data.step(self.batch_size, count, scaling) for count in workers]
        import numpy as np

        counts = np.array(workers, np.int64)
        step = self._data.step(self.batch_size, counts, scaling)

        def spread(values: Quantity) -> list[Any]:
            filled: list[Any] = np.broadcast_to(values, counts.shape).tolist()
            return filled

        forward, backward, update = map(spread, (step.forward, step.backward, step.update))
        communication = {name: spread(values) for name, values in step.communication.items()}
        times = spread_times(step.times, spread)
        return [
            DataParallelStep(
                workers=count,
                batch_size=batch,
                forward=forward[i],
                backward=backward[i],
                update=update[i],
                communication={name: seconds[i] for name, seconds in communication.items()},
                times=times[i],
            )
            for i, (count, batch) in enumerate(zip(workers, spread(step.batch_size), strict=True))
        ]

    def model(self) -> Run:
        passes = model_parallel(self.net, self.plan, self.batch_size)
        rows = tuple(ModelRow(p.name, float(p.lower), float(p.upper)) for p in passes)
        notes = []
        if not self.net.splits:
            notes.append("the net has no split layers: bounds differ by parallel branches only")
        if self.plan.cost_model.conventions.model_fetches_from_memory:
            notes.append(
                "in this cost model, model parallelism fetches at the device's memory "
                "bandwidth: network and pipelining have no effect"
            )
        return self._run("model", None, rows, notes)

    def hybrid(self, workers: int) -> Run:
        parts = hybrid_parallel(self.net, self.plan, self.batch_size, workers)
        rows = tuple(
            HybridRow(
                part.name,
                workers,
                self.batch_size * workers,
                float(part.forward),
                float(part.backward),
                float(part.update),
                float(part.sync),
            )
            for part in parts
        )
        notes = []
        if not self.net.splits:
            notes.append("the net has no split layers: the model part is empty")
        elif self.net.splits != (workers,):
            ways = " and ".join(map(str, self.net.splits))
            notes.append(f"hybrid_workers is {workers}, the net's layers are split {ways} ways")
        if any(min(row.forward, row.backward) < 0 for row in rows):
            notes.append(
                f"a time below zero: {self.plan.cost_model.name} takes the fetch of all "
                f"workers' activations off every batch, which does not hold for {workers} workers"
            )
        alone = self._data.step(self.batch_size, 1)
        step = WholeStep(
            workers=workers,
            batch_size=self.batch_size * workers,
            seconds=sum(row.total for row in rows),
            one_worker=float(alone.compute),
            one_worker_batch=self.batch_size,
        )
        return self._run("hybrid", None, rows, notes, step)

    def _run(
        self,
        parallel: str,
        scaling: str | None,
        rows: tuple[DataRow | ModelRow | HybridRow, ...],
        notes: list[str],
        step: WholeStep | None = None,
    ) -> Run:
        plan = self.plan
        convolutions, by_default = plan.convolutions, plan.cost_model.convolution_algorithm
        said = convolutions.note(by_default)
        if said and any(isinstance(spec.layer, Filtered) for spec in self.net.layers):
            notes = [said, *notes]
        if plan.use_pipeline and not plan.cost_model.pipelines:
            notes.append(f"{plan.cost_model.name} overlaps by itself: use_pipeline has no effect")
        left_out = self._data.computations.left_out
        if left_out:
            notes.append(f"not counted by {plan.cost_model.name}: {', '.join(left_out)}")
        return Run(
            net=self.net.name,
            device=plan.device.name,
            network=plan.network.name,
            cost_model=plan.cost_model.name,
            dtype=plan.dtype,
            parallel=parallel,
            scaling=scaling,
            batch_size=self.batch_size,
            use_pipeline=plan.use_pipeline,
            fuse=plan.fuse,
            ppp_comp=float(plan.ppp_comp),
            ppp_comm=float(plan.ppp_comm),
            rows=rows,
            not_counted=left_out,
            notes=tuple(notes),
            step=step,
            memory_capacity=plan.device.memory_capacity,
            convolution_algorithm=convolutions.algorithm(by_default),
            convolutions=convolutions,
            band=net_band(plan.cost_model, plan.target, not (plan.fuse or plan.use_pipeline)),
            find_worth=functools.partial(self.worth, scaling),
        )
