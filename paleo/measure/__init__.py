"""Measured times beside predicted ones: executors, profiles, calibration, validation.

In come frameworks, published measurements and predictions; out go errors, error bands and
calibrated device files. Frameworks are imported on use.
"""
