"""What is said of predictions beside measurements: profiles, whole passes, fits, validations."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from paleo.core.attributes import Ends
from paleo.measure.profile import FullPass, Profile
from paleo.measure.validate import Report
from paleo.views.answers.base import device_named, duration, durations, spread

if TYPE_CHECKING:  # what commands print without measuring is here, too
    from paleo.measure.calibrate import Calibration

#: A bias below this is none.
_EVEN = 0.005
#: The digits of a measured time.
_DIGITS = 3


def profile_answer(profiles: Sequence[Profile]) -> list[str]:
    """Return of each net what its layers were predicted to take, and what they took."""
    return [sentence for profile in profiles for sentence in _of_profile(profile)]


def _of_profile(profile: Profile) -> list[str]:
    plan = profile.setting.plan
    passes = ", ".join(name.replace("_", " ") for name in profile.passes)
    said = (
        f"The {passes} of {profile.case.spec.name} is predicted to take "
        f"{duration(profile.predicted, plan.digits)} on one {device_named(plan.device.name)}"
    )
    measured = []
    for name in profile.setting.executors:
        sums = profile.sums(name)
        if sums.ratio:
            took = duration(sums.measured, _DIGITS)
            which = "" if sums.rows == len(profile.rows) else f" for {sums.rows} of the rows"
            measured.append(f"{name} measured {took}{which}, {_times(sums.ratio)} as long")
    sentences = [f"{'; '.join([said, *measured])}."]
    if profile.rows:
        longest = max(profile.by_layer, key=lambda layer: layer.predicted)
        sentences.append(f"The longest layer is {longest.layer}.")
    return sentences


def fullpass_answer(passes: Sequence[FullPass]) -> list[str]:
    """Return of each net what a step was predicted to take, and what it took."""
    return [_of_pass(each) for each in passes if each.parts]


def _of_pass(run: FullPass) -> str:
    plan, whole = run.setting.plan, run.parts[-1]
    said = f"{run.case.spec.name}: a {whole.name}"
    if whole.predicted is not None:
        around: Ends[Any] = run.band.around(whole.predicted) if run.band else (None, None)
        ends = durations(around, plan.digits, whole.predicted)
        said += (
            f" is predicted to take {duration(whole.predicted, plan.digits)}"
            f"{spread(ends, run.band)} on one {device_named(plan.device.name)}"
        )
    measured = []
    for name in run.setting.executors:
        seconds = whole.seconds(name)
        if seconds is not None:
            factor = f", {_times(seconds / whole.predicted)} as long" if whole.predicted else ""
            measured.append(f"{name} measured {duration(seconds, _DIGITS)}{factor}")
    return f"{'; '.join([said, *measured])}."


def calibration_answer(result: Calibration, file: str) -> list[str]:
    """Return how well the fitted constants predict what they were not fitted to."""
    errors = [each.held_out for each in result.record.errors if each.held_out is not None]
    said = f"{result.device.name} is calibrated: {file} is its device file."
    if not errors:
        return [said]
    typical, worst = statistics.median(errors), max(errors)
    kinds = "in the median kind of operation"
    off = f"{100 * typical:.0f} % {kinds}, by {100 * worst:.0f} % in the worst"
    return [said, f"On shapes that nothing was fitted to, predictions are off by {off}."]


def validation_answer(report: Report) -> list[str]:
    """Return how far the predictions of each cost model are from what was measured."""
    sentences = []
    for group in report.totals:
        errors = group.statistics
        if errors.median is None or errors.bias is None or errors.p90 is None:
            continue
        side = "too long" if errors.bias > 0 else "too short"
        is_even = abs(errors.bias) < _EVEN
        bias = "on neither side" if is_even else f"{100 * abs(errors.bias):.0f} % {side}"
        most = f"by at most {100 * errors.p90:.0f} % in nine of ten"
        sentences.append(
            f"{group.cost_model} is off by {100 * errors.median:.0f} % in the median of "
            f"{errors.count:,} rows, {bias}, {most}."
        )
    return sentences or ["No row could be predicted."]


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times"
