"""The timeline of one simulated step: what each worker does when, and why it takes that long."""

from __future__ import annotations

import os
from typing import Any

from paleo.costs import DEFAULT_COST_MODEL, CostModel, find_cost_model
from paleo.errors import PaleoError, SettingError
from paleo.estimate import DeviceLike, NetworkLike
from paleo.hardware import find_device, find_network
from paleo.importers import ImportOptions
from paleo.load import load
from paleo.netspec import NetSpec
from paleo.parallelism import Plan, divided
from paleo.rows import DataRow, HybridRow, ModelRow, Run
from paleo.simulate import NetLike, simulate
from paleo.timeline.drawing import MAX_EVENTS, check_room
from paleo.timeline.hybrid import draw_hybrid, hybrid_workers_of
from paleo.timeline.steps import draw_data, draw_model, model_devices
from paleo.timeline.values import WAIT, Event, Flow, Part, Timeline
from paleo.values import python_int, shown

__all__ = ["MAX_EVENTS", "WAIT", "Event", "Flow", "Part", "Timeline", "timeline"]


def timeline(
    net: NetLike,
    *,
    device: DeviceLike = "TITAN_X",
    network: NetworkLike = "ethernet",
    batch_size: int = 128,
    workers: int = 1,
    scaling: str = "weak",
    scheme: str | None = None,
    parallel: str = "data",
    hybrid_workers: int = 1,
    use_pipeline: bool = False,
    use_only_gemm: bool = False,
    ppp_comp: float = 1.0,
    ppp_comm: float = 1.0,
    cost_model: str | CostModel = DEFAULT_COST_MODEL,
    importing: ImportOptions | None = None,
    dtype: str = "fp32",
    fuse: bool = False,
    conv_library: str | None = None,
    workspace: int | str | None = None,
) -> Timeline:
    """Return the timeline of one step of a net, as `paleo.simulate` predicts it.

    The settings are those of `simulate`, of one net, one worker count and one scaling. `scheme` is
    one of paleo.COLLECTIVES; None is the best one. Raises a PaleoError with every mistake in the
    settings and files, and SettingError where there is nothing to draw: no layer takes any time,
    there would be more than MAX_EVENTS events, or `paleo2017` predicts a time below zero.
    """
    if not isinstance(net, str | os.PathLike | NetSpec):
        raise SettingError(f"net: a timeline is of one net, got {shown(net)}")
    for name, value in (("scaling", scaling), ("scheme", scheme)):
        if not isinstance(value, str) and not (name == "scheme" and value is None):
            raise SettingError(f"{name}: a timeline is of one, got {shown(value)}")
    workers = python_int(workers)
    if not isinstance(workers, int | float):
        raise SettingError(f"num_workers: a timeline is of one worker count, got {shown(workers)}")
    settings: dict[str, Any] = {
        "use_pipeline": use_pipeline,
        "use_only_gemm": use_only_gemm,
        "ppp_comp": ppp_comp,
        "ppp_comm": ppp_comm,
        "dtype": dtype,
        "fuse": fuse,
        "conv_library": conv_library,
        "workspace": workspace,
    }
    spec: NetLike
    try:
        spec = load(net, importing)
    except PaleoError:
        spec = net  # what is wrong with it is said together with what is wrong with the settings
    (run,) = simulate(
        spec,
        device=device,
        network=network,
        batch_size=batch_size,
        workers=workers,
        scaling=scaling,
        schemes=scheme,
        parallel=parallel,
        hybrid_workers=hybrid_workers,
        cost_model=cost_model,
        importing=importing,
        **settings,
    ).runs
    assert isinstance(spec, NetSpec)
    plan = Plan(find_device(device), find_network(network), find_cost_model(cost_model), **settings)
    return _drawn(spec, plan, run, scheme)


def _drawn(net: NetSpec, plan: Plan, run: Run, scheme: str | None) -> Timeline:
    first = run.rows[0]
    if not isinstance(first, ModelRow):
        check_room(first.workers, first.workers)  # each has an event at least
    own_batch = run.batch_size
    if isinstance(first, DataRow):
        own_batch = divided(run.batch_size, first.workers, str(run.scaling))[0]
    graph = plan.graph(net, own_batch)
    settings = {key: value for key, value in run.settings().items() if value not in (None, "")}
    if isinstance(first, DataRow):
        scheme = scheme or first.best_scheme
        names = tuple(f"worker {i}" for i in range(first.workers))
        drawing = draw_data(graph, plan, first, scheme, names)
        settings |= {"workers": first.workers, "scheme": scheme}
    elif isinstance(first, HybridRow):
        names = hybrid_workers_of(graph, first.workers)
        data, model = (row for row in run.rows if isinstance(row, HybridRow))
        drawing = draw_hybrid(graph, plan, data, model, names)
        settings |= {"workers": first.workers}
    else:
        names = model_devices(graph, plan)
        rows = tuple(row for row in run.rows if isinstance(row, ModelRow))
        drawing = draw_model(graph, plan, rows, names)
    events = drawing.finish()
    return Timeline(
        net.name,
        settings,
        drawing.seconds,
        names,
        tuple(drawing.parts),
        events,
        tuple(drawing.flows),
        run.notes,
    )
