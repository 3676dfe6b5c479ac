"""What became of the requests of a load: their times, percentiles of these, rates and goodput."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

from paleo.core.attributes import attributes
from paleo.core.frozen import dataclass
from paleo.core.quantity import Array, np
from paleo.studies.serving.loads import Load
from paleo.studies.serving.server import Steps


@dataclass(frozen=True)
class Percentiles:
    """A mean and percentiles, in seconds. NumPy's: linear between the two nearest of them."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float

    @classmethod
    def of(cls, seconds: Array) -> Percentiles | None:
        """Return those of an array, None if it is empty."""
        if not len(seconds):
            return None
        # As np.percentile has them, which takes a while to be there.
        places = (len(seconds) - 1) * np.array([0.5, 0.9, 0.95, 0.99])
        points = np.interp(places, np.arange(len(seconds)), np.sort(seconds)).tolist()
        return cls(float(seconds.mean()), *points)

    def to_dict(self) -> dict[str, float]:
        """Return them as JSON has them, in seconds."""
        return attributes(self, "mean", "p50", "p90", "p95", "p99")


@dataclass(frozen=True, eq=False)
class Served:
    """When each request of a load came, and when it had its first token and its last.

    Arrays are in seconds from the first request on, in the load's order: `arrival`; `start`, when
    the server let it in; `first` and `finish`. `steps` were computed in `busy` seconds, of all
    servers together; `decode_seconds` are those of each step times the requests that it decodes.
    `log` has the steps if it was asked for. Behind a `frontend` a client has each token so many
    seconds later.
    """

    load: Load
    arrival: Array
    start: Array
    first: Array
    finish: Array
    preemptions: int
    steps: int
    busy: float
    decode_seconds: float
    log: tuple[Steps, ...] = ()
    frontend: float = 0.0

    def behind(self, seconds: float) -> Served:
        """Return the same where every token comes so much later to its client."""
        return replace(self, frontend=seconds)

    @cached_property
    def ttft(self) -> Array:
        """Seconds from each request's coming to its first token."""
        return self.first + self.frontend - self.arrival

    @cached_property
    def tpot(self) -> Array:
        """Mean seconds between the tokens of each request that has more than one."""
        several = self.load.output > 1
        seconds: Array = (self.finish - self.first)[several] / (self.load.output[several] - 1)
        return seconds

    @cached_property
    def latency(self) -> Array:
        """Seconds from each request's coming to its last token."""
        return self.finish + self.frontend - self.arrival

    @property
    def seconds(self) -> float:
        """Seconds from the first request's coming to the last token of all."""
        return float(self.finish.max() - self.arrival.min())

    @property
    def requests_per_s(self) -> float:
        """Requests a second that were served."""
        return len(self.load) / self.seconds

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second that were made."""
        return int(self.load.output.sum()) / self.seconds

    @property
    def mean_batch(self) -> float:
        """Requests that decode in a step, on average over the time in which a server computes."""
        return self.decode_seconds / self.busy

    @property
    def mean_queue(self) -> float:
        """Requests that wait to be let in, on average over time: the waiting of all, by Little."""
        return float((self.start - self.arrival).sum()) / self.seconds

    @property
    def mean_running(self) -> float:
        """Requests that were let in and are not done, on average over time."""
        return float((self.finish - self.start).sum()) / self.seconds

    def keeps(self, ttft: float | None = None, tpot: float | None = None) -> Array:
        """Return which requests keep limits on their first token and on the time of others."""
        kept = np.ones(len(self.load), bool)
        if ttft is not None:
            kept &= self.ttft <= ttft
        if tpot is not None:
            kept[self.load.output > 1] &= self.tpot <= tpot
        return kept

    def goodput(self, ttft: float | None = None, tpot: float | None = None) -> float:
        """Return the requests a second that keep limits."""
        return float(self.keeps(ttft, tpot).sum()) / self.seconds

    def to_dict(self, ttft: float | None = None, tpot: float | None = None) -> dict[str, Any]:
        """Return what there is to say of all of them, in seconds, under such limits if any."""
        named = {"ttft_s": self.ttft, "tpot_s": self.tpot, "latency_s": self.latency}
        spread = {key: Percentiles.of(array) for key, array in named.items()}
        answer: dict[str, Any] = {
            "requests": len(self.load),
            "seconds": self.seconds,
            **{key: points and points.to_dict() for key, points in spread.items()},
            "requests_per_s": self.requests_per_s,
            "tokens_per_s": self.tokens_per_s,
            "mean_batch": self.mean_batch,
            "mean_queue": self.mean_queue,
            "preemptions": self.preemptions,
        }
        if ttft is not None or tpot is not None:
            answer["goodput_share"] = float(self.keeps(ttft, tpot).mean())
            answer["goodput_requests_per_s"] = self.goodput(ttft, tpot)
        return answer
