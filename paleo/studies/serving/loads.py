"""Loads of a server: how many requests there are, when they come, and how long they are.

A load is closed (so many clients, each of which sends a request when its last one is done) or open
(requests come when they come). Whatever is random comes from a seed: the same seed, the same load.
Lengths do not depend on the rate: of one seed, loads of different rates have the same requests.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Protocol

from paleo.core.checks import MAX_SIZE, is_number, shown, whole_number
from paleo.core.errors import Mistakes, SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Array, np

#: No simulation has more requests.
MOST_REQUESTS = 10_000_000


class Lengths(Protocol):
    """How many tokens prompts, or outputs, have."""

    @property
    def mean(self) -> float:
        """Return the mean, in tokens."""

    def draw(self, generator: Any, count: int) -> Array:
        """Return so many lengths of at least 1, as int64, from a NumPy generator."""


#: Requests at a time where nobody says, and how many are sent in all for each of them.
CONCURRENCY, FOR_EACH = (1, 8, 32, 128), 10


@dataclass(frozen=True)
class Fixed:
    """All have as many tokens."""

    tokens: int

    @property
    def mean(self) -> float:
        """Return the mean, in tokens."""
        return self.tokens

    def draw(self, generator: Any, count: int) -> Array:
        """Return so many lengths."""
        return np.full(count, self.tokens, np.int64)


@dataclass(frozen=True)
class Uniform:
    """Every number of tokens from `low` to `high` is as likely."""

    low: int
    high: int

    def __post_init__(self) -> None:
        """Raise SettingError where there is no such range."""
        if not 1 <= self.low <= self.high:
            raise SettingError(
                f"lengths: expected a range from 1 up, got {self.low} to {self.high}"
            )

    @property
    def mean(self) -> float:
        """Return the mean, in tokens."""
        return (self.low + self.high) / 2

    def draw(self, generator: Any, count: int) -> Array:
        """Return so many lengths."""
        drawn: Array = generator.integers(self.low, self.high, count, endpoint=True)
        return drawn


@dataclass(frozen=True)
class Lognormal:
    """Most are short and some are long: the logarithm is normal, as of chats about.

    `mean` tokens, and a coefficient of variation `cv`: what is drawn is rounded, to 1 and `most`.
    """

    mean: float
    cv: float
    most: int = MAX_SIZE

    def __post_init__(self) -> None:
        """Raise SettingError where there is no such distribution."""
        if not (self.mean >= 1 and 0 <= self.cv < math.inf and self.most >= 1):
            raise SettingError(
                f"lengths: expected a mean of at least 1 and a variation of at least 0, got "
                f"{shown(self.mean)} and {shown(self.cv)}"
            )

    def draw(self, generator: Any, count: int) -> Array:
        """Return so many lengths."""
        variance = math.log1p(self.cv**2)
        drawn = generator.lognormal(math.log(self.mean) - variance / 2, math.sqrt(variance), count)
        whole: Array = np.clip(np.rint(drawn), 1, self.most).astype(np.int64)
        return whole


def as_lengths(lengths: int | Lengths, name: str) -> Lengths:
    """Return lengths, also of a number of tokens; raises SettingError in the name of a setting."""
    if not isinstance(lengths, int):
        return lengths
    try:
        return Fixed(whole_number(lengths))
    except ValueError as error:
        raise SettingError(f"{name}: {error}") from None


@dataclass(frozen=True, eq=False)
class Load:
    """Requests in the order in which they come: arrays of as many elements.

    `prompt` and `output` are tokens of each, `cached` those at the beginning of its prompt that
    the server has in its cache already. `arrival` are seconds, in order; None under a closed load,
    which has `concurrency` clients instead: the first requests come at once.
    """

    prompt: Array
    output: Array
    cached: Array
    arrival: Array | None = None
    concurrency: int | None = None

    def __len__(self) -> int:
        return len(self.prompt)

    @property
    def rate(self) -> float | None:
        """Requests a second, None under a closed load: of n arrivals, n - 1 intervals."""
        if self.arrival is None:
            return None
        seconds = float(self.arrival[-1] - self.arrival[0])
        return (len(self) - 1) / seconds if seconds else math.inf

    def behind(self, tokens: int) -> Load:
        """Return the same requests with so many more tokens before each prompt."""
        return replace(self, prompt=self.prompt + tokens)

    def at_rate(self, rate: float) -> Load:
        """Return the same requests, so much closer together, or further apart, that this is it."""
        _check_rate(rate)
        own = self.rate
        if self.arrival is None or own is None or own == math.inf:
            raise SettingError("rate: the load has no rate of its own that could be changed")
        return Load(self.prompt, self.output, self.cached, self.arrival * (own / rate))


def closed_load(
    concurrency: int,
    requests: int,
    prompt: int | Lengths,
    output: int | Lengths,
    *,
    hit_rate: float = 0.0,
    seed: int = 0,
) -> Load:
    """Return a load of `concurrency` clients that send `requests` in all, one after the other.

    `hit_rate` is the share of each prompt that the server's prefix cache has. Raises SettingError.
    """
    _check_count("concurrency", concurrency)
    lengths = _lengths(requests, prompt, output, hit_rate, seed)
    return Load(*lengths, concurrency=concurrency)


def open_load(
    rate: float,
    requests: int,
    prompt: int | Lengths,
    output: int | Lengths,
    *,
    cv: float = 1.0,
    hit_rate: float = 0.0,
    seed: int = 0,
) -> Load:
    """Return a load of `requests` that come at a `rate` of so many a second.

    `cv` is the coefficient of variation of the times between them: 1 is a Poisson process, 0 a
    clock, and above 1 they come in bursts (times are of a gamma distribution of shape 1 / cv^2, as
    in BurstGPT and in benchmarks' "burstiness"). Raises SettingError.
    """
    _check_rate(rate)
    if not (is_number(cv) and 0 <= cv < math.inf):
        raise SettingError(f"cv: expected a number of at least 0, got {shown(cv)}")
    lengths = _lengths(requests, prompt, output, hit_rate, seed)
    if cv:
        shape = 1 / cv**2
        between = _generator(seed, 2).gamma(shape, 1 / (rate * shape), requests)
    else:
        between = np.full(requests, 1 / rate)
    arrival = np.cumsum(between)
    return Load(*lengths, arrival=arrival - arrival[0])


def cached_share(prompt: Array, hit_rate: float) -> Array:
    """Return the tokens of prompts that are cached: one at least is computed, for its output."""
    if not (is_number(hit_rate) and 0 <= hit_rate <= 1):
        raise SettingError(f"hit_rate: expected a share from 0 to 1, got {shown(hit_rate)}")
    cached: Array = np.minimum(np.floor(prompt * hit_rate).astype(np.int64), prompt - 1)
    return cached


def _lengths(
    requests: int, prompt: int | Lengths, output: int | Lengths, hit_rate: float, seed: int
) -> tuple[Array, Array, Array]:
    mistakes = Mistakes()
    mistakes.check(_check_count, "requests", requests)
    prompts = mistakes.check(as_lengths, prompt, "prompt")
    outputs = mistakes.check(as_lengths, output, "output")
    mistakes.raise_as(SettingError)
    assert prompts is not None
    assert outputs is not None
    drawn = prompts.draw(_generator(seed, 0), requests)
    return drawn, outputs.draw(_generator(seed, 1), requests), cached_share(drawn, hit_rate)


def _generator(seed: int, stream: int) -> Any:
    """Return a generator of numbers: prompts, outputs and arrivals have streams of their own."""
    return np.random.default_rng([seed, stream])


def _check_count(name: str, count: int) -> None:
    try:
        whole_number(count)
        if count > MOST_REQUESTS:
            raise ValueError(f"at most {MOST_REQUESTS} can be simulated, got {count}")
    except ValueError as error:
        raise SettingError(f"{name}: {error}") from None


def _check_rate(rate: float) -> None:
    if not (is_number(rate) and 0 < rate < math.inf):
        raise SettingError(f"rate: expected requests a second, above 0, got {shown(rate)}")
