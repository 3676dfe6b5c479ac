"""The process that reads an uploaded net: bytes in, a net-spec or what is wrong with it out.

It is started for each upload, with limits on processor time, memory and files, and is killed if it
takes too long: a file may be made to keep its reader busy. It only parses; it opens no file but
those of Python's packages, and can write none. It ends with the server, however that ends.

`main` reads a line of JSON with the settings of a `Job` and then the file from standard input, and
writes one JSON object to standard output: the keys of `read`, or "errors". Standard input stays
open until that is read: where it ends before, nobody waits for the answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from dataclasses import asdict
from typing import Any

from paleo.core.errors import NetSpecError, PaleoError, printable
from paleo.core.frozen import dataclass
from paleo.net.importers import IMPORTERS, importer_by_name, read_bytes
from paleo.net.importers.options import parse_options
from paleo.net.load import check_no_keras, loads
from paleo.net.spec import MAX_LAYERS, MAX_SPLITS, NetSpec
from paleo.net.writer import dumps

#: The importers that parse and do nothing else. The others have PyTorch's or TensorFlow's own
#: readers build something, which takes more time and memory than an upload is given.
PARSERS = ("caffe", "keras", "onnx")
#: The files that can be uploaded, by the end of the name.
ENDINGS = (".json", *(ending for importer in PARSERS for ending in IMPORTERS[importer]))
_LISTED = 100


@dataclass(frozen=True)
class Job:
    """A file to read, and the limits: bytes of memory, seconds, layers, characters of the net.

    `options` are those of a command that reads such a file, in one line; it has `size` bytes.
    """

    file: str
    options: str = ""
    size: int = 0
    memory: int = 3 << 30
    seconds: int = 20
    layers: int = 5000
    characters: int = 4 << 20

    def to_line(self) -> bytes:
        """Return the line that goes before the file."""
        return json.dumps(asdict(self)).encode() + b"\n"


def read(data: bytes, job: Job) -> dict[str, Any]:
    """Return the net of a file: name, file, options, net-spec, number of layers, notes.

    Raises NetSpecError with every mistake.
    """
    importer = importer_by_name(job.file)
    if importer is not None:
        net = read_bytes(importer, data, job.file, parse_options(job.options, importer))
    else:
        check_no_keras(data, job.file)
        _check_size(data, job)
        net = loads(data, job.file).with_dims(**parse_options(job.options, None).dims)
    _check_layers(len(net.layers), job)
    # As it will be read again: what the reader refuses, the server never sees.
    text = dumps(net)
    if len(text) > job.characters:
        raise NetSpecError(
            f"{job.file}: as a net file it has more than {job.characters} characters"
        )
    net = loads(text, job.file)
    return {
        "name": net.name,
        "file": job.file,
        "options": job.options,
        "text": text,
        "layers": len(net.layers),
        "notes": _notes(net, importer),
    }


def _check_layers(layers: int, job: Job) -> None:
    if layers > job.layers:
        raise NetSpecError(
            f"{job.file}: it has {layers:,} layers, and more than {job.layers:,} are for the "
            "command line"
        )


def _check_size(data: bytes, job: Job) -> None:
    """Raise NetSpecError if blocks make more layers than are read, before they are written out."""
    try:
        root = json.loads(data)
    except (ValueError, RecursionError):
        return  # for the reader to say
    found = 0
    waiting = [(root, 1)]
    while waiting:
        body, times = waiting.pop()
        layers = body.get("layers") if isinstance(body, dict) else None
        if not isinstance(layers, dict):
            found += times
            continue
        splits, repeat = body.get("splits"), body.get("repeat")
        if body.get("type") == "ModelParallel" and isinstance(splits, int) and splits > 1:
            times = min(times * splits, MAX_SPLITS)
        if body.get("type") == "Block" and isinstance(repeat, int) and repeat > 1:
            times = min(times * repeat, MAX_LAYERS)
        waiting += [(layer, times) for layer in layers.values()]
    _check_layers(found, job)


def _notes(net: NetSpec, importer: str | None) -> list[str]:
    """Return what a user should know of what was read."""
    notes = [*([f"imported from {importer}"] if importer else []), *net.notes]
    if net.splits:
        notes.append("its split layers stand beside each other: the demo shows data parallelism")
    return notes


def answer(data: bytes, job: Job) -> dict[str, Any]:
    """Return what `read` does, or what is wrong under "errors"."""
    try:
        return read(data, job)
    except PaleoError as error:
        lines = [str(each) for each in error.mistakes]
    except (MemoryError, RecursionError):
        lines = [f"{job.file}: too large or nested too deeply to be read here"]
    if len(lines) > _LISTED:
        lines = [*lines[:_LISTED], f"{job.file}: there are more mistakes, which are not listed"]
    return {"errors": [printable(line) for line in lines]}


def limits() -> Any:
    """Return the module that limits a process, None where the system has none (Windows)."""
    with contextlib.suppress(ImportError):
        import resource

        return resource
    return None


def _limit(job: Job) -> None:
    """Take away what reading a file does not need, where the system can."""
    resource = limits()
    if resource is None:  # the server's clock is what is left
        return
    seconds = job.seconds
    for limit, most in (
        ("RLIMIT_CPU", seconds),
        ("RLIMIT_AS", job.memory),
        ("RLIMIT_FSIZE", 0),
        ("RLIMIT_CORE", 0),
    ):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            kind = getattr(resource, limit)
            _, hard = resource.getrlimit(kind)
            allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (allowed, allowed))


def _end_with_the_server() -> None:
    # Not by sys.stdin, whose lock Python would wait for when it ends.
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    """Read one file."""
    job = Job(**json.loads(sys.stdin.buffer.readline()))
    _limit(job)
    data = sys.stdin.buffer.read(job.size)
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    found = answer(data, job)
    # What a library prints must not come between.
    sys.stdout.buffer.write(json.dumps(found).encode())
    sys.stdout.buffer.flush()
