"""A device file for this machine, or for timings of one's own: constants of `tiled`, fitted."""

from __future__ import annotations

from paleo.measure.calibrate.calibration import Calibration, calibrate, calibrate_from
from paleo.measure.calibrate.points import Point, points
from paleo.measure.calibrate.problem import Fitted

__all__ = ["Calibration", "Fitted", "Point", "calibrate", "calibrate_from", "points"]
