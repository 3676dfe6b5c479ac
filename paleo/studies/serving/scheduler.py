"""A simulation of servers under a load: what waits, what each step has, when each token is there.

It is one of discrete events: requests come, steps end, caches arrive over a link. What is random is
in the load; the simulation itself has no chance in it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

from paleo.core.checks import whole_number
from paleo.core.errors import Mistakes, SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import np
from paleo.studies.serving.loads import Load
from paleo.studies.serving.served import Served
from paleo.studies.serving.server import Party, Requests, Server, Steps

# Events at the same time, in the order in which they are looked at.
_ARRIVES, _MOVED, _STEPS = range(3)


@dataclass(frozen=True)
class Link:
    """What takes caches of prompts from the servers that compute them to those that decode.

    `seconds` of a number of tokens; `lanes` caches are under way at once, and the others wait in
    turn. `shows_first`: the first token is shown when it is there, before the cache has moved
    (DistServe); else by the server that decodes (TensorRT-LLM, Dynamo, vLLM's connectors).
    """

    seconds: Callable[[int], float]
    lanes: int = 1
    shows_first: bool = False


def serve(
    load: Load,
    party: Party,
    prefill: Party | None = None,
    link: Link | None = None,
    *,
    exact: bool = False,
    log: bool = False,
    most_events: int | None = None,
) -> Served:
    """Return when each request of a load is served, and what the servers do meanwhile.

    A request goes to the server of a party that has the fewest. With a `prefill` party, prompts are
    computed there; then the cache moves over the `link`, and the `party` decodes. A server that
    preempts such a request computes its prompt itself.

    Steps that differ in the lengths of caches alone are taken together, unless `exact`. With `log`,
    the result has them.

    Raises SettingError, where a request is larger than the cache of a server, or where more than
    `most_events` happen.
    """
    _check(load, party, prefill)
    simulation = _Simulation(load, party, prefill, link, exact, log)
    simulation.run(most_events)
    return simulation.served()


def _check(load: Load, party: Party, prefill: Party | None) -> None:
    mistakes = Mistakes()
    for name, one in (("replicas", party), ("prefill replicas", prefill)):
        if one is not None:
            try:
                whole_number(one.replicas)
            except ValueError as error:
                mistakes.add(f"{name}: {error}")
    for one in filter(None, (party, prefill)):
        if prefill is not None and one.scheduling.is_static:
            mistakes.add("batching: prefill and decode on servers of their own are not static")
        tokens = load.prompt if one is prefill else load.prompt + load.output - 1
        block, capacity = one.scheduling.block, one.engine.capacity
        if capacity is not None and (large := -(-tokens // block) > capacity // block).any():
            first = int(np.argmax(large))
            others = int(large.sum()) - 1
            mistakes.add(
                f"a request of {load.prompt[first]} + {load.output[first]} tokens does not fit "
                f"into a cache of {capacity // block * block}"
                + f", nor do {others} others"
                * bool(others)
            )
    mistakes.say_once(0)
    mistakes.raise_as(SettingError)


class _Simulation:
    def __init__(
        self,
        load: Load,
        party: Party,
        prefill: Party | None,
        link: Link | None,
        exact: bool,
        log: bool,
    ) -> None:
        self.load, self.link = load, link or Link(lambda tokens: 0.0, math.inf)  # type: ignore[arg-type]
        self.requests = Requests(load.prompt.tolist(), load.output.tolist(), load.cached.tolist())
        self.log: list[Steps] | None = [] if log else None
        #: (seconds, what, in which order it was noted, number of a request or server, servers)
        self.events: list[tuple[float, int, int, int, tuple[Server, ...]]] = []
        self.noted = 0
        self.sent = 0
        #: When the next request comes, of an open load.
        self.coming = math.inf
        self.apart = prefill is None and load.arrival is not None
        #: When each lane of the link is free, of those that are used.
        self.lanes: list[float] = []
        counts = (prefill.replicas if prefill else 0, party.replicas)
        parties = [prefill] * counts[0] + [party] * counts[1]
        servers = [
            Server(
                number, one, self.requests, hands_over=number < counts[0], exact=exact,
                log=self.log,
            )
            for number, one in enumerate(parties) if one is not None
        ]  # fmt: skip
        self.servers = servers
        self.decoding = servers[counts[0] :]
        self.entry = servers[: counts[0]] or servers

    def run(self, most_events: int | None) -> None:
        arrival = self.load.arrival
        if arrival is None:
            for _ in range(min(len(self.load), self.load.concurrency or 1)):
                self._arrives(0.0)
        else:
            self._arrives(float(arrival[0]))
        left = math.inf if most_events is None else most_events
        while self.events:
            left -= 1
            if left < 0:
                raise SettingError(
                    f"requests: {len(self.load):,} of them take more than {most_events:,} events "
                    "to simulate, such as steps of a server: ask for fewer"
                )
            now, what, _, number, servers = heapq.heappop(self.events)
            if what == _STEPS:
                self._step(servers[0])
            elif what == _ARRIVES:
                server = self._least_busy(self.entry, now)
                server.expect()
                server.send(number)
                self._wake(server, now)
                self.coming = math.inf
                if arrival is not None and self.sent < len(self.load):
                    self._arrives(float(arrival[self.sent]))
            else:
                source, target = servers
                if not self.link.shows_first:
                    self.requests.first[number] = now
                source.release(number)
                self._wake(source, now)
                target.send(number, moved=True)
                self._wake(target, now)

    def served(self) -> Served:
        of = self.requests
        return Served(
            load=self.load,
            arrival=np.array(of.arrival),
            start=np.array(of.start),
            first=np.array(of.first),
            finish=np.array(of.finish),
            preemptions=of.preemptions,
            steps=sum(server.steps for server in self.servers),
            busy=sum(server.busy for server in self.servers),
            decode_seconds=sum(server.decode_seconds for server in self.servers),
            log=tuple(self.log or ()),
        )

    def _note(self, seconds: float, what: int, number: int, *servers: Server) -> None:
        self.noted += 1
        heapq.heappush(self.events, (seconds, what, self.noted, number, servers))

    def _arrives(self, seconds: float) -> None:
        """Have the next request of the load come."""
        self.requests.arrival[self.sent] = self.coming = seconds
        self._note(seconds, _ARRIVES, self.sent)
        self.sent += 1

    @staticmethod
    def _least_busy(servers: list[Server], now: float) -> Server:
        if len(servers) == 1:
            return servers[0]
        return min(servers, key=lambda server: server.requests_here(now))

    def _wake(self, server: Server, now: float) -> None:
        if not server.awake:
            server.awake = True
            server.clock = now
            self._note(now, _STEPS, server.number, server)

    def _step(self, server: Server) -> None:
        # Servers that do all by themselves, under an open load, have nothing to do with each other.
        horizon = self.coming if self.apart else self.events[0][0] if self.events else math.inf
        outcome = server.advance(horizon)
        if outcome is None:
            server.awake = False
            return
        now = server.clock
        for request in outcome[0]:
            self._move(request, server, now)
        if self.load.arrival is None:
            for _ in outcome[1]:
                if self.sent < len(self.load):
                    self._arrives(now)
        self._note(now, _STEPS, server.number, server)

    def _move(self, request: int, source: Server, now: float) -> None:
        target = self._least_busy(self.decoding, now)
        target.expect()
        if len(self.lanes) >= self.link.lanes:
            now = max(now, heapq.heappop(self.lanes))
        now += self.link.seconds(self.requests.prompt[request])
        heapq.heappush(self.lanes, now)
        self._note(now, _MOVED, request, source, target)
