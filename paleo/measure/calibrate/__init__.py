"""A device file for this machine, or for timings of one's own: constants of `tiled`, fitted."""

from __future__ import annotations

from paleo.calibrate.calibration import Calibration, calibrate, calibrate_from
from paleo.calibrate.points import Point, points
from paleo.calibrate.problem import Fitted

__all__ = ["Calibration", "Fitted", "Point", "calibrate", "calibrate_from", "points"]
