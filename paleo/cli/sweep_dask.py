"""The parts of a sweep on a Dask cluster: a future each, whose worker writes the part."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from paleo.cli.sweep_parts import Job
from paleo.core.errors import PaleoError
from paleo.core.optional import extra
from paleo.core.units import GIB

#: Seconds in which a scheduler has to answer.
PATIENCE = 10
#: An address as Dask takes it, or a number of processes.
_ADDRESS = r"[1-9][0-9]{0,3}|([a-z]+://)?[^\s/:]+:[0-9]{1,5}|([a-z]+://)\[[0-9a-f:]+\]:[0-9]{1,5}"
#: So many parts for each thread of workers wait at a time: a scheduler has few futures.
_AHEAD = 4

#: How processes are that are started here. Dask looks a hundred times a second at what they do, and
#: has the allocator of glibc give back all free memory, so that each array needs new pages: with
#: both, a part takes twice as long. How they are it looks at ten to fifty times a second.
_PROCESSES = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.nanny.pre-spawn-environ": {
        "MALLOC_ARENA_MAX": 1,
        "MALLOC_MMAP_THRESHOLD_": GIB // 16,
        "MALLOC_TRIM_THRESHOLD_": GIB // 4,
    },
}


def write_part(job: Job, index: int) -> dict[str, Any]:
    """Evaluate and write a part, on a worker."""
    return job.write(index)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's own messages off the terminal: what matters of them is said in one line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def run(
    job: Job, missing: Sequence[int], address: str, advance: Callable[[str], object]
) -> list[tuple[int, str]]:
    """Have the workers of a scheduler write these parts; return those that failed, and why.

    `address` is a scheduler's, or a number of processes to start here. Raises PaleoError for a
    scheduler that cannot be reached or goes away, and for what would befall every part, such as a
    full disk.
    """
    distributed = extra("distributed", "a sweep on Dask", "Dask", "dask")
    with _quiet(), _client(distributed, address) as client:
        try:
            return _written(distributed, client, job, list(missing), advance)
        except (OSError, TimeoutError, distributed.client.FutureCancelledError):
            raise PaleoError(f"{address}: the Dask scheduler is gone") from None


@contextlib.contextmanager
def _client(distributed: Any, address: str) -> Iterator[Any]:
    """Give a client of a scheduler, or of processes that live as long as it does."""
    with contextlib.ExitStack() as stack:
        where: Any = address
        if not re.fullmatch(_ADDRESS, address):
            raise PaleoError(
                "--dask: expected the address of a scheduler, such as tcp://127.0.0.1:8786, or a "
                f"number of processes, got {address!r}"
            )
        if address.isdecimal():
            dask = extra("dask", "a sweep on Dask", "Dask", "dask")
            stack.enter_context(dask.config.set(_PROCESSES))
            where = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=int(address),
                    threads_per_worker=2,  # one evaluates while the other waits for the disk
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL + 1,
                )
            )
        try:
            client = distributed.Client(where, timeout=PATIENCE, set_as_default=False)
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            raise PaleoError(f"{address}: no Dask scheduler answers: {_line(error)}") from None
        yield stack.enter_context(client)


def _written(
    distributed: Any, client: Any, job: Job, missing: list[int], advance: Callable[[str], object]
) -> list[tuple[int, str]]:
    """Have parts written, some ahead of those that are done."""
    most = _AHEAD * max(1, sum(client.nthreads().values()))
    waiting = missing[::-1]
    places: dict[str, int] = {}

    def submitted() -> Any:
        index = waiting.pop()
        future = client.submit(write_part, job, index, pure=False)
        places[future.key] = index
        return future

    first = [submitted() for _ in range(min(most, len(waiting)))]
    running = distributed.as_completed(first, loop=client.loop)
    failed = []
    for future in running:
        index = places.pop(future.key)
        advance(job.part(index).name)
        error = future.exception() if future.status != "cancelled" else TimeoutError("cancelled")
        if isinstance(error, PaleoError | TimeoutError):
            raise error
        if error is not None:
            failed.append((index, _why(distributed, error)))
        if waiting:
            running.add(submitted())
    return failed


def _why(distributed: Any, error: BaseException) -> str:
    """Return in a line why a part failed."""
    if isinstance(error, distributed.scheduler.KilledWorker):
        return "every worker that had it died: it may need more memory than one has"
    return _line(error)


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
