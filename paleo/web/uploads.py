"""Uploaded nets: read in a process of their own, a few at once, and remembered by what they are.

Nothing of an upload is written to a file, and nothing of it is run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import subprocess
import sys
import threading
from dataclasses import field, replace
from typing import Any

from paleo.core.checks import shown
from paleo.core.errors import NetSpecError, PaleoError, SettingError
from paleo.core.frozen import dataclass
from paleo.net.importers import CODE, hint, importer_by_name
from paleo.net.importers.options import option_words, parse_options
from paleo.net.load import loads
from paleo.net.spec import NetSpec
from paleo.web.cache import Cache
from paleo.web.parsing import ENDINGS, Job, limits

_MOST_CHARACTERS = 200
_MOST_OPTIONS = 1000
#: What a process may answer besides the text of the net.
_MORE = 1 << 20
#: Starts the reader with the server's own packages, and nothing of the user's environment.
_START = "import sys; sys.path[:] = {path!r}; from paleo.web.parsing import main; main()"
_ENVIRONMENT = ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class BusyError(PaleoError):
    """As many uploads are being read as are read at once."""


class UnlimitedError(PaleoError):
    """The system cannot limit the process that would read an upload."""


@dataclass(frozen=True)
class Uploaded:
    """A net that was uploaded: its file's name, and what identifies it.

    `options` are those that a command needs to read the file, in one line.
    """

    file: str
    options: str
    key: str
    net: NetSpec = field(compare=False, repr=False)


def checked_file(name: Any) -> str:
    """Return the name of a file without a folder; raises NetSpecError.

    It is a label in messages and command lines: no file is looked for.
    """
    if not isinstance(name, str) or not name:
        raise NetSpecError(f"file: expected the name of the net's file, got {shown(name)}")
    if len(name) > _MOST_CHARACTERS:
        raise NetSpecError(f"file: a name of more than {_MOST_CHARACTERS} characters")
    if "/" in name or "\\" in name or not name.isprintable() or not _is_text(name):
        raise NetSpecError(f"file: expected a name without a folder, got {shown(name)}")
    if name.startswith(CODE) or not name.lower().endswith(ENDINGS):
        raise NetSpecError(f"{name}: {_instead(name)}")
    return name


def _instead(name: str) -> str:
    """Return what to do about a file that cannot be uploaded."""
    if not name.startswith(CODE) and importer_by_name(name):
        return "only commands read it: `paleo convert` makes a net file of it"
    ends = f"expected a file that ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
    return hint(name) or ends


def checked_options(line: Any, file: str) -> str:
    """Return the options of a command that reads such a file, each written out.

    Raises SettingError with every mistake.
    """
    if not isinstance(line, str) or not line.isprintable() or not _is_text(line):
        raise SettingError(f"options: expected those of a command in one line, got {shown(line)}")
    if len(line) > _MOST_OPTIONS:
        raise SettingError(f"options: more than {_MOST_OPTIONS} characters")
    importer = importer_by_name(file)
    return shlex.join(option_words(parse_options(line, importer), importer))


def _is_text(text: str) -> bool:
    """Tell whether a text can be written in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Uploads:
    """Reads uploads. `at_once` of them; what was read is kept within `most` characters.

    Where the system cannot limit a process it reads none, unless it may do so `unlimited`.
    """

    def __init__(self, *, at_once: int = 2, most: int = 16 << 20, unlimited: bool = False) -> None:
        self._unlimited = unlimited
        self._places = threading.BoundedSemaphore(at_once)
        self._answers: Cache[dict[str, Any]] = Cache(most)
        #: Nets that a process of ours has read and found right, by the hash of their text.
        self._nets: Cache[NetSpec] = Cache(most)

    def read(self, data: bytes, name: Any, options: Any = "") -> dict[str, Any]:
        """Return the net of a file's bytes: name, file, options, text (a net-spec), layers, notes.

        `options` are those of a command that reads such a file, in one line. Raises NetSpecError
        with every mistake, SettingError with those in options, BusyError if too many are being
        read, UnlimitedError if none may be.
        """
        if not (self._unlimited or limits()):
            raise UnlimitedError(
                "uploads are off: this system cannot limit the memory of what reads them; "
                "paleo serve --unlimited_uploads allows them nevertheless"
            )
        file = checked_file(name)
        job = replace(Job(file, checked_options(options, file)), size=len(data))
        if not data:
            raise NetSpecError(f"{job.file}: the file is empty")
        key = _hash(job.file.encode(), job.options.encode(), data)
        found = self._answers.find(key)
        if found is None:
            found = self._run(data, job)
            self._answers.keep(key, found, len(found["text"]))
            self._net(found["text"], job.file)
        return found

    def net(self, text: Any, name: Any, options: Any = "") -> Uploaded:
        """Return the net of a net-spec's text, as `read` gave it; raises as `read`.

        Any other text is read by `read` first: the server itself parses none that was not found
        right.
        """
        file = checked_file(name)
        said = checked_options(options, file)
        if not isinstance(text, str) or not text or not _is_text(text):
            raise NetSpecError(f"net: expected the text of a net file, got {shown(text)}")
        key = _hash(text.encode())
        net = self._nets.find(key)
        if net is None:
            # What was a file of another framework is a net-spec by now.
            name = f"{file}.net.json" if importer_by_name(file) else file
            text = self.read(text.encode(), name)["text"]
            net = self._nets.keep(key, self._net(text, file), len(text))
        return Uploaded(file, said, key, net)

    def _net(self, text: str, file: str) -> NetSpec:
        return self._nets.get(_hash(text.encode()), lambda: loads(text, file), lambda _: len(text))

    def _run(self, data: bytes, job: Job) -> dict[str, Any]:
        """Return what the process says."""
        if not self._places.acquire(blocking=False):
            raise BusyError("other files are being read: try again in a moment")
        try:
            output = _output(data, job)
        finally:
            self._places.release()
        if output is None:
            raise NetSpecError(
                f"{job.file}: reading it takes more than {job.seconds} seconds or "
                f"{job.memory >> 30} GiB: too much to be read here"
            )
        found: dict[str, Any] = json.loads(output)
        if "errors" in found:
            mistakes = [NetSpecError(line).mistakes[0] for line in found["errors"]]
            raise NetSpecError(mistakes)
        return found


def _hash(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _output(data: bytes, job: Job) -> bytes | None:
    """Return what a process writes that reads the file; None if it was stopped or has crashed."""
    path = [entry for entry in sys.path if entry] or [os.getcwd()]  # noqa: PTH109
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    process = subprocess.Popen(  # noqa: S603 (Python, and a program of ours)
        [sys.executable, "-I", "-B", "-c", _START.format(path=path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # One thread: each would take room from what may be used.
        env=environment | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stop = threading.Timer(job.seconds, process.kill)
    stop.daemon = True
    stop.start()
    # Beside the reading: a process that answers before it has read all must not wait for us.
    writer = threading.Thread(target=_feed, args=(process.stdin, (job.to_line(), data)))
    writer.start()
    most = 2 * job.characters + _MORE
    try:
        output = process.stdout.read(most + 1)
    finally:
        process.kill()
        stop.cancel()
        writer.join()
        with contextlib.suppress(OSError):  # of what it did not read
            process.stdin.close()
        process.stdout.close()
        process.wait()
    return output if output.endswith(b"}") and len(output) <= most else None


def _feed(pipe: Any, parts: tuple[bytes, ...]) -> None:
    try:
        for part in parts:
            pipe.write(part)
        pipe.flush()
    except OSError:  # the process has ended
        pass
