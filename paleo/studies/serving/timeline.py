"""Some seconds of serving: the steps of each server, and the requests that come meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paleo.core.checks import is_number, shown
from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.studies.serving.answers import Serving
from paleo.studies.serving.served import Served
from paleo.studies.serving.server import Steps

#: No timeline has more steps and requests together.
MOST_EVENTS = 500_000


@dataclass(frozen=True)
class ServerLane:
    """A server of a timeline: what it is called, and for how many tokens its cache has blocks.

    One that `hands_over` computes prompts, whose caches it keeps until they have moved.
    """

    name: str
    capacity: int
    hands_over: bool = False


@dataclass(frozen=True, eq=False)
class ServingTimeline:
    """What servers do in the first `seconds` of a load.

    `steps` are those that begin before that, by server and in order: such as differ in the lengths
    of caches alone are one. `requests` are the numbers of those that come before that, in `served`.
    `settings` are those of the prediction, under the keys of its JSON output.
    """

    net: str
    settings: Mapping[str, Any]
    seconds: float
    servers: tuple[ServerLane, ...]
    steps: tuple[Steps, ...]
    requests: tuple[int, ...]
    served: Served


def serving_timeline(found: Serving, seconds: float = 10.0) -> ServingTimeline:
    """Return the first seconds of a load, which is simulated again, step by step the same.

    Raises SettingError where nothing is served, or too much to look at.
    """
    if not (is_number(seconds) and seconds > 0):
        raise SettingError(f"trace_seconds: expected a number above 0, got {shown(seconds)}")
    if found.simulate is None:
        raise SettingError(f"a trace shows what is served: {found.asked.net.name} does not fit")
    served = found.simulate(log=True)
    steps = sorted(
        (step for step in served.log if step.start < seconds),
        key=lambda step: (step.server, step.start),
    )
    came = (served.arrival < seconds).nonzero()[0].tolist()
    if len(steps) + len(came) > MOST_EVENTS:
        raise SettingError(
            f"trace_seconds: {seconds:g} s have {len(steps):,} steps and {len(came):,} requests, "
            f"and a trace has at most {MOST_EVENTS:,}: ask for fewer seconds"
        )
    load = {"concurrency": found.concurrency, "rate": found.rate}
    settings = {
        key: value
        for key, value in {**found.asked.settings, **load}.items()
        if value not in (None, "")
    }
    return ServingTimeline(
        found.asked.net.name, settings, float(seconds), tuple(_servers(found)), tuple(steps),
        tuple(came), served,
    )  # fmt: skip


def _servers(found: Serving) -> list[ServerLane]:
    """Return the servers in the order of their numbers: those of prompts come first."""
    asked = found.asked
    prompts = asked.prefill.capacity if asked.prefill else 0
    return [
        *(
            ServerLane(f"prompts {number}", prompts or 0, hands_over=True)
            for number in range(1, asked.prefill_copies + 1)
        ),
        *(
            ServerLane(
                f"{'decoding' if asked.prefill else 'server'} {number}",
                asked.deployment.capacity or 0,
            )
            for number in range(1, asked.copies + 1)
        ),
    ]
