"""Plan files of other frameworks: how devices share a net, as the settings of Paleo.

Formats are in the files of this folder, each imported when it is asked for, with a table (TOML)
of the keys that it reads or passes over.
"""

from __future__ import annotations

from paleo.step.plans.base import PLAN_FORMATS, PlanFormat

__all__ = ["PLAN_FORMATS", "PlanFormat"]

PLAN_FORMATS.discover(
    __name__,
    {name: name for name in ("megatron", "deepspeed", "torchtitan", "nemo")},
    others="base content entries low_precision merge shell",
)
