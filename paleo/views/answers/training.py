"""What a whole training says: how long it takes, and what it costs."""

from __future__ import annotations

from paleo.core.attributes import Ends, at_ends
from paleo.step.results import Predicted
from paleo.studies.training import Training
from paleo.views.answers.base import amounts, duration, durations, rounded, samples_of, spread


def training_said(
    on: Predicted, training: Training, ends: Ends[Training], *, net: str = "", who: str = ""
) -> str:
    """Return how long a training whose length is known takes and what it costs.

    `ends` are the training at both ends of its error band. The `net` and `who` trains it are said
    where they were not said before; so is what the band means.
    """
    schedule, plan = training.schedule, on.plan
    digits, like = plan.digits, training.seconds or 0.0
    times = durations(at_ends(ends, lambda end: end.seconds or 0.0), digits, like)
    if schedule.tokens is not None:
        length = f"{_counted(schedule.tokens)} tokens"
    else:
        what = schedule.dataset or f"{schedule.size:,} {samples_of(on.scenario.net)}"
        length = f"{schedule.epochs:g} epoch{'s' * (schedule.epochs != 1)} of {what}"
    named, where = f" {net}" if net else "", f" on {who}" if who else ""
    subject = f"Training{named} for {length}{where}"
    about = "about " if plan.band else ""
    taken = f"{about}{duration(like, digits)}{spread(times, plan.band if net else None)}"
    has_hours = schedule.tokens is not None and training.device_hours is not None
    if has_hours:
        taken += f", {about}{rounded(training.device_hours or 0.0, digits)} device-hours"
    if training.cost is not None and training.price is not None:
        costs = spread(amounts(at_ends(ends, lambda end: end.cost or 0.0), digits))
        cost = f"{about}{rounded(training.cost, digits)} {training.price.currency}{costs}"
        taken += f"{',' * has_hours} and costs {cost}"
    return f"{subject} takes {taken}."


def _counted(count: float) -> str:
    """Return a large number in words: "15 trillion"."""
    scales = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
    factor, word = next((scale for scale in scales if count >= scale[0]), (1.0, ""))
    return f"{count / factor:,.10g} {word}".rstrip()
