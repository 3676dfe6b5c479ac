"""The parts of a sweep in a folder: written whole or not at all, and never twice.

A part is `part-000012.parquet` (or .csv, .jsonl) with what there is to say of it beside it,
`_part-000012.json`; `_grid.json` says of which grid the folder is. What is there is not computed
again, so that a sweep goes on where it was stopped, however that was.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from paleo.cli.files import check_file, write_file
from paleo.core.errors import PaleoError
from paleo.core.frozen import dataclass
from paleo.core.texts import json_text
from paleo.studies.sweeps.evaluate import Evaluator
from paleo.studies.sweeps.grid import Grid
from paleo.studies.sweeps.grid_file import grid_of_content
from paleo.studies.sweeps.tally import Tally
from paleo.views.sweep_files import FORMATS

_GRID = "_grid.json"
#: A process evaluates one part at a time: what is priced is kept for the next.
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Job:
    """A sweep that is written in parts: what its file says, and where to; it may be pickled."""

    content: str
    path: str
    folder: str
    ending: str
    points: int | None
    identity: str

    @property
    def grid(self) -> Grid:
        """The grid, which a process makes once."""
        return _grid(self.content, self.path)

    @property
    def count(self) -> int:
        """How many parts there are."""
        return self.grid.parts(self.points)

    def part(self, index: int) -> Path:
        """Return the file of a part."""
        return Path(self.folder) / f"part-{index:06d}{self.ending}"

    def said(self, index: int) -> Path:
        """Return the file with what there is to say of a part."""
        return Path(self.folder) / f"_part-{index:06d}.json"

    def prepare(self) -> None:
        """Make the folder, or check that the one there is of this grid; raises PaleoError."""
        folder = Path(self.folder)
        FORMATS[self.ending].needs()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            names = [path.name for path in folder.iterdir()]
        except OSError as error:
            raise PaleoError(
                f"{folder}: cannot be made a folder: {error.strerror or error}"
            ) from None
        if _GRID in names:
            self._check_same(folder / _GRID)
        elif others := [name for name in names if not name.startswith(".")]:
            raise PaleoError(
                f"{folder}: there is something else in it, such as {min(others)}: name a folder "
                "of its own"
            )
        check_file(folder / _GRID)
        if _GRID not in names:
            said = {"identity": self.identity, "format": self.ending, "points": self.points}
            write_file(folder / _GRID, json_text({**said, "grid": self.grid.described}) + "\n")

    def _check_same(self, path: Path) -> None:
        """Raise PaleoError if a folder is of another grid, or in other parts."""
        try:
            found = json.loads(path.read_text("utf-8"))
            same = [found["identity"], found["format"], found["points"]]
        except (OSError, ValueError, KeyError, TypeError):
            raise PaleoError(f"{path}: cannot be read: name another folder") from None
        if same[0] != self.identity:
            version = found.get("grid", {}).get("paleo")
            raise PaleoError(
                f"{self.folder}: it has the results of another grid, or of a changed net or device "
                f"(by Paleo {version}): name another folder, or remove it"
            )
        if same[1:] != [self.ending, self.points]:
            raise PaleoError(
                f"{self.folder}: its parts are {same[1]} of {same[2] or 'the usual'} points: ask "
                "for the same, or name another folder"
            )

    def missing(self) -> list[int]:
        """Return the numbers of the parts that are not there."""
        there = {path.name for path in Path(self.folder).iterdir()}
        return [
            index
            for index in range(self.count)
            if self.part(index).name not in there or self.said(index).name not in there
        ]

    def write(self, index: int) -> dict[str, Any]:
        """Evaluate a part and write it; return what there is to say of it. Raises PaleoError."""
        with _LOCK:
            grid = self.grid
            if grid.identity != self.identity:
                raise PaleoError(
                    f"{self.path}: here it is another grid: the nets, devices or the version of "
                    "Paleo differ from those where the sweep was started"
                )
            part = _evaluator(self.content, self.path).part(grid.part(index, self.points))
            data = FORMATS[self.ending].encode(grid, part)
            tally = Tally.of(part).to_dict()
        # What is said comes first: a part that is there is whole.
        write_file(self.said(index), json_text(tally) + "\n")
        write_file(self.part(index), data)
        return tally

    def tallies(self) -> Iterator[Tally]:
        """Yield what there is to say of each part that is there."""
        for index in range(self.count):
            with suppress(OSError, ValueError, KeyError):
                yield Tally.of_dict(json.loads(self.said(index).read_text("utf-8")))

    def clean(self) -> None:
        """Remove what processes left that were killed while they wrote."""
        for path in Path(self.folder).glob(".paleo-*.tmp"):
            path.unlink(missing_ok=True)

    def join(self, output: str) -> None:
        """Put all parts into one file, and remove them; raises PaleoError."""
        target = Path(output)
        temporary = target.with_name(f".paleo-{os.urandom(8).hex()}.tmp")
        try:
            with _of_disk(output), open(temporary, "xb") as file:
                FORMATS[self.ending].join([str(self.part(i)) for i in range(self.count)], file)
                file.flush()
                os.fsync(file.fileno())
            with _of_disk(output):
                temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        for index in range(self.count):
            self.part(index).unlink(missing_ok=True)
            self.said(index).unlink(missing_ok=True)
        (Path(self.folder) / _GRID).unlink(missing_ok=True)
        with suppress(OSError):  # somebody else's files are in it
            Path(self.folder).rmdir()


@contextmanager
def _of_disk(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or os.strerror(error.errno or errno.EIO)
        raise PaleoError(f"{name}: cannot be written: {why}") from None


@functools.lru_cache(maxsize=4)
def _grid(content: str, path: str) -> Grid:
    return grid_of_content(json.loads(content), path)


@functools.lru_cache(maxsize=2)
def _evaluator(content: str, path: str) -> Evaluator:
    return Evaluator(_grid(content, path))


def went_on(job: Job, error: PaleoError) -> PaleoError:
    """Return an error with what is kept, and how to go on."""
    kept = job.count - len(job.missing())
    first, *others = error.mistakes
    if not kept:
        return error
    said = f"{first}; {kept:,} of {job.count:,} parts are kept, and the same command goes on"
    return PaleoError([type(first)(said), *others])
