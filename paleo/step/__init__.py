"""A training step or a pass: what runs where, after what, and how long that takes.

In come a graph, devices with what connects them, and a plan; out go the seconds and the memory of
passes and steps, with their parts and their timeline.
"""
