"""How quickly the demo answers: alone, and many at once on one core.

    python benchmarks/demo.py                    all three (8 minutes)
    python benchmarks/demo.py --answers          what one change takes, over all predefined nets
    python benchmarks/demo.py --load             50 clients for 30 seconds on one core
    python benchmarks/demo.py --load --seconds=180 --think=2
    python benchmarks/demo.py --memory           whether memory stays level under load
    python benchmarks/demo.py --check            all three, of part of the nets; exit with 1 if a
                                                 bound is missed

Answers are timed in one process, from the request's arrival to its body, once it has read what
`paleo serve` reads beside its first requests. Under load the server is
`paleo serve`, pinned to one core, and the clients are on the others. A client is a reader of the
page: it has a connection of its own, changes one control of those of the page, any of them to
anything, asks what the page then asks (steps, then memory, and one in three the layers), and looks
at it for a while before the next change: a time drawn from an exponential distribution.

Memory is looked at once all that the server keeps is full, under clients that do not stop to look:
it is level if its mean in the last quarter of that time is not above the one in the quarter before.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.client
import itertools
import json
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import paleo
from paleo.cluster.frameworks import SOFTWARE
from paleo.web.answers import Answers
from paleo.web.app import create_app
from paleo.web.settings import PageSettings
from paleo.web.warmup import collect_seldom, pieces

#: Every change of a predefined net answers within this, and so much of the answers have to.
ANSWER, SHARE = 0.1, 0.98
#: How often --check looks at a bound that is missed.
LOOKS = 3
#: 95 of 100 answers under load come within so many times the time in which they come to one client
#: that is alone.
UNDER_LOAD = 8.0
#: The bytes that a server takes however long it runs: what it keeps is bounded.
MEMORY = 500e6
#: By so much of itself memory may grow from a quarter to the next. What is in use stays the same,
#: but now and then more of it comes together than ever before. A leak of 5 kB an answer is more.
GROWTH = 0.05
#: After so many answers all that is kept is full; then the quarters, in seconds, and the clients.
FULL, QUARTER, BUSY_CLIENTS = 6000, 20.0, 8
#: Seconds before the load is counted, which are more than the server takes to read what answers
#: need; seconds of one client alone; and how often memory is looked at under load.
WARM, ALONE, PARTS = 20.0, 10.0, 6
#: The load: so many clients for so many seconds ask for this share of what one client is answered.
CLIENTS, SECONDS, ASKED = 50, 30.0, 0.5
#: Mean seconds between changes while the server gets warm.
THINK = 2.0
DEVICES = ("TITAN_X", "A100_SXM_80GB", "XEON_8280")
#: A few nets of every size.
SOME = ("lenet5", "alex_v2", "vgg16", "inception_v3", "resnet50", "densenet121", "bert_base")


# Answers


def timed(client: Any, kind: str, settings: dict[str, Any]) -> float:
    """Return the seconds of an answer."""
    path = f"/api/{kind}?{urlencode(settings)}"
    begun = time.perf_counter()
    response = client.get(path)
    seconds = time.perf_counter() - begun
    assert response.status_code == 200, response.get_data(as_text=True)
    return seconds


def answers(nets: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return the seconds of each change for each net, device and scaling."""
    found: dict[str, dict[str, float]] = {}

    def note(change: str, case: str, seconds: float) -> None:
        found.setdefault(change, {})[case] = seconds

    # As `paleo serve` does.
    kept = Answers()
    for piece in pieces(kept):
        piece()
    collect_seldom()
    client = create_app(answers=kept).test_client()
    known = set(paleo.device_names())
    for device in (device for device in DEVICES if device in known):
        for net in nets:
            for scaling in ("weak", "strong"):
                case = f"{net} on {device}, {scaling}"
                asked = {"net": net, "device": device, "scaling": scaling, "batch_size": 32}
                note("another net or device", case, timed(client, "scaling", asked))
                note("its memory", case, timed(client, "memory", asked))
                note("its layers", case, timed(client, "layers", asked))
                other = asked | {"network": "infiniband"}
                note("another network", case, timed(client, "scaling", other))
                note(
                    "another scheme", case, timed(client, "scaling", other | {"scheme": "OneToAll"})
                )
                priced = other | {"price": "1", "epochs": 9}
                note("another training", case, timed(client, "scaling", priced))
                note("another batch", case, timed(client, "scaling", asked | {"batch_size": 48}))
    for net in nets:  # on devices of the page's cluster
        asked = {"net": net, "batch_size": 32, "workers": 16, "zero": 1, "micro_batch": 4}
        note("a mesh", net, timed(client, "scaling", asked))
        note("another micro-batch", net, timed(client, "scaling", asked | {"micro_batch": 8}))
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """Return the least value that so many are not above."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def print_answers(found: dict[str, dict[str, float]]) -> bool:
    """Print the table; tell whether the bound holds."""
    print(f"{'answer':24}{'median':>9}{'95 %':>9}{'worst':>9}{'< 100 ms':>10}   the slowest")
    every = [seconds for cases in found.values() for seconds in cases.values()]
    rows = {**found, "all": {}}
    for change, cases in rows.items():
        values = list(cases.values()) or every
        share = sum(value < ANSWER for value in values) / len(values)
        slowest = max(cases, key=cases.__getitem__) if cases else ""
        print(
            f"{change:24}{1e3 * statistics.median(values):6.1f} ms"
            f"{1e3 * percentile(values, 0.95):6.0f} ms{1e3 * max(values):6.0f} ms"
            f"{100 * share:8.1f} %   {slowest}"
        )
    share = sum(value < ANSWER for value in every) / len(every)
    return share >= SHARE


# Load


def values_of() -> dict[str, list[Any]]:
    """Return what each control of the page may say."""
    return {
        "net": paleo.net_names(),
        "device": paleo.device_names(),
        "network": paleo.network_names(),
        "cost_model": list(paleo.COST_MODELS),
        "dtype": ["fp32", "fp16", "mixed_fp16"],
        "batch_size": [1, 2, 4, 8, 16, 32, 64, 128, 256],
        "workers": [1, 2, 4, 8, 16, 32, 64, 128],
        "scaling": ["weak", "strong"],
        "scheme": ["", *paleo.COLLECTIVES],
        "software": ["", *SOFTWARE],
        "use_pipeline": ["true", "false"],
        "fuse": ["true", "false"],
        "dataset": list(paleo.DATASETS),
        "epochs": list(range(1, 100)),
        "price": ["", "0.9", "2.5 EUR/h", "12"],
        "optimizer": list(paleo.OPTIMIZERS),
    }


@dataclass
class Tally:
    """What all clients together have seen."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    errors: list[str] = field(default_factory=list)


class Client(threading.Thread):
    """One reader of the page."""

    def __init__(self, port: int, seed: int, think: float, until: float, tally: Tally) -> None:
        super().__init__(daemon=True)
        self.random = random.Random(seed)
        self.port, self.think, self.until, self.tally = port, think, until, tally
        self.kinds = self.kinds_of(seed)
        self.values = values_of()
        self.settings: dict[str, Any] = {}

    @staticmethod
    def kinds_of(seed: int) -> list[str]:
        """Return what a client asks after each change."""
        return ["scaling", "memory", *(["layers"] if seed % 3 == 0 else [])]

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        # Not all at once.
        time.sleep(self.random.random() * self.think)
        while time.monotonic() < self.until:
            before = dict(self.settings)
            key = self.random.choice(list(self.values))
            self.settings[key] = self.random.choice(self.values[key])
            if not self.ask_all(connection):
                self.settings = before  # as a reader would take back what does not go
            if self.think:
                pause = self.random.expovariate(1 / self.think)
                time.sleep(max(0.0, min(pause, self.until - time.monotonic())))
        connection.close()

    def ask_all(self, connection: http.client.HTTPConnection) -> bool:
        """Ask what the page asks; tell whether it was answered."""
        for kind in self.kinds:
            begun = time.perf_counter()
            try:
                connection.request("GET", f"/api/{kind}?{urlencode(self.settings)}")
                response = connection.getresponse()
                body = response.read()
            except OSError as error:
                self.tally.errors.append(repr(error))
                connection.close()
                return False
            self.tally.seconds.append(time.perf_counter() - begun)
            if response.status == 400:  # what no device computes, such as fp16 on a CPU of old
                self.tally.refused += 1
                assert json.loads(body)["errors"]
                return False
            if response.status != 200:
                self.tally.errors.append(f"{response.status}: {body[:200]!r}")
                return False
        return True


def resident(pid: int) -> int:
    """Return the bytes of memory that a process has."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@contextlib.contextmanager
def served() -> Iterator[tuple[int, int]]:
    """Give the process and the port of a server on one core; what asks it is on the others."""
    cores = sorted(os.sched_getaffinity(0))
    server = subprocess.Popen(
        [sys.executable, "-m", "paleo", "serve", "--port=0"],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {cores[0]}),
    )
    assert server.stdout
    port = int(re.findall(r":(\d+)/", server.stdout.readline())[0])
    if len(cores) > 1:
        os.sched_setaffinity(0, set(cores[1:]))
    try:
        yield server.pid, port
    finally:
        os.sched_setaffinity(0, set(cores))
        server.terminate()
        server.wait()


def load(clients: int, seconds: float, think: float | None) -> bool:
    """Print how a server does with so many clients; tell whether the bounds hold."""
    with served() as (pid, port):
        memory = [resident(pid)]
        # A while for what is read and imported once; it is not counted.
        run(port, clients, WARM, THINK, seed=1000)
        memory.append(resident(pid))
        alone = run(port, 1, ALONE, 0.0, seed=3000)
        if think is None:
            changes = clients * ALONE / (ASKED * len(alone.seconds))
            think = changes * statistics.mean(len(Client.kinds_of(seed)) for seed in range(3))
        tally, found = watched(pid, port, clients, seconds, think, seed=0)
        memory += found
    one = percentile(alone.seconds, 0.95)
    ms = [1e3 * percentile(tally.seconds, share) for share in (0.5, 0.95, 0.99)]
    ratio = ms[1] / 1e3 / one
    print(
        f"1 client for {ALONE:g} s: {len(alone.seconds) / ALONE:.0f} answers a second, "
        f"95 % within {1e3 * one:.0f} ms\n"
        f"{clients} clients for {seconds:g} s, {think:.2g} s between answers and the next change, "
        f"on one core:\n"
        f"  {len(tally.seconds):,} answers, {len(tally.seconds) / seconds:.0f} a second, "
        f"{len(tally.errors)} errors, {tally.refused} refused settings\n"
        f"  50 % within {ms[0]:.1f} ms, 95 % within {ms[1]:.0f} ms, 99 % within {ms[2]:.0f} ms, "
        f"all within {1e3 * max(tally.seconds):.0f} ms\n"
        f"  95 % within {ratio:.1f} times what one client waits, at most {UNDER_LOAD:g}\n"
        f"  memory in MB, at the start, after {WARM:g} s, and then {PARTS} times: "
        f"{', '.join(f'{each / 1e6:.0f}' for each in memory)}"
    )
    return no_errors(tally) and ratio < UNDER_LOAD and max(memory) < MEMORY


def level() -> bool:
    """Print the memory of a server that is asked without a pause; tell whether it stays level."""
    quarters, count, seeds = [], 0, itertools.count(0, 1000)
    tally = Tally()
    with served() as (pid, port):
        while count < FULL and not tally.errors:
            tally = run(port, BUSY_CLIENTS, QUARTER / 2, 0.0, next(seeds))
            count += len(tally.seconds)
        for _ in range(4):
            if not tally.errors:
                tally, found = watched(pid, port, BUSY_CLIENTS, QUARTER, 0.0, next(seeds))
                quarters.append((len(tally.seconds), statistics.mean(found)))
    if not no_errors(tally):
        return False
    grown = quarters[3][1] / quarters[2][1] - 1
    print(
        f"memory in MB after {count:,} answers, in four times {QUARTER:g} s: "
        f"{', '.join(f'{mean / 1e6:.0f} ({answers:,} answers)' for answers, mean in quarters)}\n"
        f"  {100 * grown:+.1f} % in the last"
    )
    return grown < GROWTH and quarters[3][1] < MEMORY


def no_errors(tally: Tally) -> bool:
    """Print a few errors; tell whether there are none."""
    for error in tally.errors[:5]:
        print(f"  {error}")
    return not tally.errors


def watched(
    pid: int, port: int, clients: int, seconds: float, think: float, seed: int
) -> tuple[Tally, list[int]]:
    """Return what so many clients see, and the server's memory a few times meanwhile."""
    found: list[int] = []

    def watch() -> None:
        for _ in range(PARTS):
            time.sleep(seconds / PARTS)
            found.append(resident(pid))

    watching = threading.Thread(target=watch)
    watching.start()
    tally = run(port, clients, seconds, think, seed)
    watching.join()
    return tally, found


def run(port: int, clients: int, seconds: float, think: float, seed: int) -> Tally:
    """Return what so many clients see."""
    tally = Tally()
    until = time.monotonic() + seconds
    every = [Client(port, seed + i, think, until, tally) for i in range(clients)]
    for client in every:
        client.start()
    for client in every:
        client.join()
    return tally


def main() -> int:
    """Measure and print; return 1 if a bound is missed and --check is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", action="store_true", help="only what one change takes")
    parser.add_argument("--load", action="store_true", help="only the load")
    parser.add_argument("--memory", action="store_true", help="only whether memory stays level")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the load")
    parser.add_argument("--think", type=float, help="mean seconds between changes")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound is missed")
    options = parser.parse_args()
    parts: list[Callable[[], bool]] = []
    nets = SOME if options.check else paleo.net_names()
    # A bound that is missed is looked at again, and of each answer the quickest counts: what else
    # the machine does can only make it slower.
    looks = LOOKS if options.check else 1
    every = not (options.answers or options.load or options.memory)
    if options.answers or every:
        quickest: dict[str, dict[str, float]] = {}

        def answered() -> bool:
            for change, cases in answers(nets).items():
                known = quickest.setdefault(change, {})
                for case, seconds in cases.items():
                    known[case] = min(seconds, known.get(case, seconds))
            return print_answers(quickest)

        parts.append(lambda: any(answered() for _ in range(looks)))
    if options.load or every:
        loaded = functools.partial(load, options.clients, options.seconds, options.think)
        parts.append(lambda: any(loaded() for _ in range(looks)))
    if options.memory or every:
        parts.append(level)
    held = [part() for part in parts]
    if not all(held):
        print("MISSED")
    return int(options.check and not all(held))


if __name__ == "__main__":
    assert PageSettings().to_dict().keys() >= values_of().keys()
    sys.exit(main())
