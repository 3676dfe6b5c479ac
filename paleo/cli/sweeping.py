"""What `paleo sweep` does with a grid: has its parts written, and says what came out."""

from __future__ import annotations

import contextlib
from typing import Any

from paleo.cli.options import Output
from paleo.cli.progress import progress
from paleo.cli.sweep_parts import Job, went_on
from paleo.core.errors import PaleoError
from paleo.step.pieces import WholeStep
from paleo.step.plan import Plan
from paleo.studies.sweeps.result import step_of
from paleo.studies.sweeps.tally import Tally
from paleo.views.answers.sweeps import sweep_answer
from paleo.views.tables.sweeps import sweep_table, sweep_values


def run(job: Job, dask: str | None) -> None:
    """Have the parts written that are not there; raises PaleoError, with what is kept."""
    missing = job.missing()
    failed: list[tuple[int, str]] = []
    with progress("sweep", len(missing)) as advance:
        try:
            if dask is not None and missing:
                from paleo.cli import sweep_dask  # here: it imports Dask

                failed = sweep_dask.run(job, missing, dask, advance)
            else:
                for index in missing:
                    advance(job.part(index).name)
                    job.write(index)
        except PaleoError as error:
            raise went_on(job, error) from None
    if failed:
        index, why = failed[0]
        said = f"{job.part(index).name}: {why} ({len(failed):,} such)"
        raise went_on(job, PaleoError(said))


def say_what_was_found(job: Job, tally: Tally, output: Output, target: str) -> None:
    """Print what there is to say; raises PaleoError if no point can be."""
    asked = tally.points - tally.left_out
    if not tally.valid:
        reasons = "; ".join(f"{count:,} x {text}" for text, count in tally.most_frequent())
        said = (
            f"none of its {asked:,} points can be: {reasons}" if asked else "where leaves nothing"
        )
        raise PaleoError(f"{job.path}: {said}; {target} has all of them")
    best: WholeStep | None = None
    plan: Plan | None = None
    labels: dict[str, Any] = {}
    if tally.best is not None:
        labels = job.grid.labels(tally.best)
        with contextlib.suppress(PaleoError):
            best, plan = step_of(job.grid, tally.best)
    output.write(
        [sweep_table(tally)] if tally.reasons or not output.for_people else [],
        lambda: sweep_values(tally, labels, best, target),
        lambda: sweep_answer(tally, labels, best, plan),
    )
