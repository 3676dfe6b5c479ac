"""Sweeps: steps at every combination of values of settings, as arrays, piece by piece.

In come nets, axes (a setting and its values) and settings that are the same everywhere; out go
columns of what each point takes, and why points that cannot be are none.
"""
