"""Pictures: charts as figures of Matplotlib, which is imported on use.

Nothing is computed here: whatever is drawn stands in a chart, and comes from the Python API.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paleo.measure.calibrate import Calibration
from paleo.measure.profile import FullPass, FullPasses, Profile, Profiles
from paleo.measure.validate.report import Report
from paleo.step.memory import Fit
from paleo.step.results import Simulation
from paleo.studies.collectives import CollectiveTime
from paleo.studies.compare import Comparison
from paleo.studies.metrics import Metrics
from paleo.studies.summary import NetSummary
from paleo.views.charts import measuring, results
from paleo.views.charts.validation import validation_chart
from paleo.views.plots.figure import MOST_CHARTS, check_number, draw, image
from paleo.views.plots.formats import IMAGES, image_format
from paleo.views.plots.scatter import scatter
from paleo.views.plots.style import Figure

__all__ = [
    "IMAGES",
    "MOST_CHARTS",
    "Figure",
    "calibration",
    "check_number",
    "collectives",
    "difference",
    "draw",
    "fullpass",
    "image",
    "image_format",
    "layers",
    "memory",
    "profile",
    "scaling",
    "training",
    "validation",
]


def scaling(simulation: Simulation) -> Figure:
    """Return speedup, step and efficiency by scheme against workers, for each run.

    Of model parallelism the bounds of the passes, of hybrid parallelism the parts of a step. Raises
    as `draw`.
    """
    return draw(results.of_simulation(simulation))


def layers(summaries: NetSummary | Iterable[NetSummary]) -> Figure:
    """Return time and memory by layer and the roofline; without a device, memory and FLOPs.

    Raises as `draw`, and SettingError for an array of batch sizes.
    """
    several = [summaries] if isinstance(summaries, NetSummary) else summaries
    return draw(results.of_summaries(several))


def difference(comparison: Comparison) -> Figure:
    """Return the totals over the reference's, and what differs by layer; raises as `draw`."""
    return draw(results.of_comparison(comparison))


def collectives(found: Sequence[CollectiveTime]) -> Figure:
    """Return time and bus bandwidth of collectives against bytes; raises as `draw`."""
    return draw(results.of_collectives(found))


def memory(fits: Fit | Sequence[Fit]) -> Figure:
    """Return the memory of nets beside each other and by layer; raises as `draw`."""
    return draw(results.of_fits([fits] if isinstance(fits, Fit) else fits))


def training(metrics: Sequence[Metrics]) -> Figure:
    """Return the step, and time and cost of a training against workers; raises as `draw`."""
    return draw(results.of_metrics(metrics))


def validation(report: Report) -> Figure:
    """Return predicted against measured times; raises as `draw`."""
    return scatter(validation_chart(report))


def profile(profiles: Profile | Profiles) -> Figure:
    """Return the time of layers, and predicted against measured times; raises as `draw`."""
    return draw(
        measuring.of_profiles([profiles] if isinstance(profiles, Profile) else profiles.runs)
    )


def fullpass(passes: FullPass | FullPasses) -> Figure:
    """Return steps and their parts, predicted and measured; raises as `draw`."""
    runs = [passes] if isinstance(passes, FullPass) else passes.runs
    return draw(measuring.of_fullpasses(runs))


def calibration(found: Calibration) -> Figure:
    """Return the points of a calibration, predicted against measured; raises as `draw`."""
    return draw(measuring.of_calibration(found))
