"""What `paleo infer` prints of nets that are no language models: the time of a batch."""

from __future__ import annotations

from typing import Any

from paleo.cli.options import Output
from paleo.cli.plotting import Plot
from paleo.core.errors import SettingError
from paleo.net.spec import NetSpec
from paleo.studies.serving.settings import DEFAULT_DEVICE, OF_OTHERS

#: Settings that language models have as well.
_BOTH = ("cluster", "device", "network", "cost_model", "dtype", "price", "prices", "power")


def show_batches(edited: list[NetSpec], output: Output, plot: Plot, given: dict[str, Any]) -> None:
    """Print what batches of other nets take.

    Raises SettingError for settings that are `given` and of language models alone.
    """
    from paleo.studies.metrics import metrics
    from paleo.views.answers.metrics import INFERENCE, metrics_answer
    from paleo.views.tables.ranking import ranking_table

    for name in given:
        if name not in (*_BOTH, *OF_OTHERS, "importing"):
            option = {"workers": "num_workers"}.get(name, name)
            raise SettingError(f"{option}: is for language models alone")
    if "cluster" not in given:
        given.setdefault("device", DEFAULT_DEVICE)
    found = metrics(edited, **given)
    plot.write(
        output,
        [ranking_table(found, INFERENCE)],
        lambda: {"rows": [each.to_dict() for each in found]},
        lambda charts: charts.of_metrics(found),
        answer=lambda: metrics_answer(found, INFERENCE),
    )
