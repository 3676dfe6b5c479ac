"""Pipelines: in which order the stages of a net take micro-batches, and what that leaves idle.

Kinds are in the files of this folder, each imported when it is asked for.
"""

from __future__ import annotations

from paleo.step.pipelines.base import PIPELINES, Pipeline, Work

__all__ = ["PIPELINES", "Pipeline", "Work"]

PIPELINES.discover(
    __name__,
    {
        "1f1b": "one_forward_one_backward",
        "gpipe": "gpipe",
        "zero_bubble": "zero_bubble",
        "dualpipe": "dualpipe",
        "dualpipev": "dualpipev",
    },
    others="base",
)
