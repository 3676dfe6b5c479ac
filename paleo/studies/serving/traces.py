"""Traces of requests: files that say when they came and how long they were.

Three formats, told apart by what is in the file:

- CSV with a header, whose columns are named as many do: when a request came (seconds, or a date
  and time), tokens of its prompt, tokens of its output, and, if it is there, how many of the prompt
  were cached. Azure's traces of LLM inference are such (TIMESTAMP,ContextTokens,GeneratedTokens;
  Splitwise, ISCA 2024, and DynamoLLM, HPCA 2025: Azure/AzurePublicDataset), and BurstGPT's.
- Mooncake's JSON lines (FAST 2025; kvcache-ai/Mooncake): timestamp in milliseconds, input_length,
  output_length, hash_ids. Each of hash_ids names 512 tokens of the prompt with all that stands
  before them, so that those which an earlier request had are in a prefix cache that forgets none.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from paleo.core.checks import MAX_SIZE, is_number, is_whole, number, shown
from paleo.core.errors import Mistakes, TraceError, near
from paleo.core.files import read_text
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import np
from paleo.studies.serving.loads import Load

#: Tokens of a block of Mooncake's traces.
MOONCAKE_BLOCK = 512
#: Names of columns, without case and what is no letter or digit, and what a second is in them.
_ARRIVAL = {
    **dict.fromkeys(
        ("arrival", "arrivals", "arrivaltime", "arrivaltimes", "arrivedat", "time",
         "timestamp", "timestamps", "seconds"),
        1.0,
    ),
    **dict.fromkeys(("arrivalms", "arrivaltimems", "timems", "timestampms"), 1e-3),
}  # fmt: skip
_PROMPT = (
    "prompt", "prompttokens", "promptlength", "input", "inputtokens", "inputlength", "isl",
    "contexttokens", "requesttokens", "numprefilltokens",
)  # fmt: skip
_OUTPUT = (
    "output", "outputtokens", "outputlength", "osl", "generatedtokens", "responsetokens",
    "completiontokens", "numdecodetokens",
)  # fmt: skip
_CACHED = ("cached", "cachedtokens", "cachedprompttokens")
#: So many mistakes of a file are shown.
_SHOWN = 20


class _Row(NamedTuple):
    """A request: seconds, tokens of prompt and output, those cached, and hashes of its blocks."""

    arrival: float
    prompt: int
    output: int
    cached: int = 0
    hashes: tuple[int, ...] = ()


def read_trace(path: str | os.PathLike[str]) -> Load:
    """Return the load that a file has: requests in the order in which they came, from 0 s on.

    Raises TraceError with every mistake in it (the first 20 and how many there are besides), each
    with its line.
    """
    file = os.fspath(path)
    text = read_text(file, TraceError)
    mistakes = Mistakes(file)
    is_lines = text.lstrip().startswith("{")
    rows = list(_of_lines(text, mistakes) if is_lines else _of_csv(text, mistakes))
    mistakes.raise_as(TraceError, _SHOWN)
    if not rows:
        raise TraceError(f"{file}: there are no requests")
    rows.sort(key=lambda row: row.arrival)  # those of one time stay in their order
    arrival = np.array([row.arrival for row in rows], np.float64)
    prompt = np.array([row.prompt for row in rows], np.int64)
    cached = np.array(_prefixes(rows) if is_lines else [row.cached for row in rows], np.int64)
    return Load(
        prompt,
        np.array([row.output for row in rows], np.int64),
        np.minimum(cached, prompt - 1),  # one is computed, for its output
        arrival - arrival[0],
    )


def _of_csv(text: str, mistakes: Mistakes) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        if not any(header):
            mistakes.add("no header; a trace needs columns of arrival, prompt and output tokens")
            return
        columns = _columns(header, mistakes)
        if mistakes:
            return
        for cells in reader:
            line = reader.line_num
            if not any(map(str.strip, cells)):
                continue
            if len(cells) != len(header):
                mistakes.add(f"line {line}: {len(cells)} cells, the header has {len(header)}")
                continue
            texts = {name: cells[place].strip() for name, (place, _) in columns.items()}
            values: dict[str, Any] = {}
            for name, cell in texts.items():
                column = header[columns[name][0]]
                try:
                    read: Callable[[Any], Any] = _seconds if name == "arrival" else _tokens
                    if name == "cached":
                        read = _cached
                    values[name] = read(_value(cell, name)) * columns[name][1]
                except ValueError as error:
                    mistakes.add(f"line {line}, column {column}: {error}")
            if len(values) == len(columns):
                yield _Row(**values)
    except csv.Error as error:
        mistakes.add(f"line {reader.line_num}: not a CSV file: {error}")


def _columns(header: list[str], mistakes: Mistakes) -> dict[str, tuple[int, Any]]:
    """Return the place of each column that is read, and what its values are times."""
    plain = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in header]
    wanted: dict[str, dict[str, Any]] = {
        "arrival": _ARRIVAL,
        "prompt": dict.fromkeys(_PROMPT, 1),
        "output": dict.fromkeys(_OUTPUT, 1),
        "cached": dict.fromkeys(_CACHED, 1),
    }
    examples = {
        "arrival": 'when requests came, such as "arrival_s" or "TIMESTAMP"',
        "prompt": 'tokens of prompts, such as "prompt_tokens" or "ContextTokens"',
        "output": 'tokens of outputs, such as "output_tokens" or "GeneratedTokens"',
    }
    columns = {}
    for name, known in wanted.items():
        places = [place for place, column in enumerate(plain) if column in known]
        if len(places) > 1:
            both = " and ".join(header[place] for place in places)
            mistakes.add(f"line 1: {both} are columns of the same")
        elif places:
            columns[name] = (places[0], known[plain[places[0]]])
        elif name in examples:
            mistakes.add(f"line 1: no column of {examples[name]}{_near(known, header)}")
    return columns


def _near(known: Any, header: list[str]) -> str:
    """Return a hint, if a column is nearly named so."""
    for name in header:
        if near(re.sub(r"[^a-z0-9]", "", name.lower()), known):
            return f" (is it {name!r}?)"
    return ""


def _of_lines(text: str, mistakes: Mistakes) -> Iterator[_Row]:
    keys = {"timestamp": _seconds, "input_length": _tokens, "output_length": _tokens}
    for line, entry in enumerate(text.split("\n"), 1):
        if not entry.strip():
            continue
        try:
            found = json.loads(entry)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            mistakes.add(f"line {line}: expected a JSON object, got {shown(entry)}")
            continue
        values: list[Any] = []
        for key, read in keys.items():
            try:
                if key not in found:
                    raise ValueError("missing")
                values.append(read(found[key]))
            except ValueError as error:
                mistakes.add(f"line {line}, {key}: {error}")
        hashes = found.get("hash_ids", [])
        if not (isinstance(hashes, list) and all(map(is_whole, hashes))):
            mistakes.add(f"line {line}, hash_ids: expected whole numbers, got {shown(hashes)}")
        elif len(values) == len(keys):
            yield _Row(values[0] * 1e-3, values[1], values[2], 0, tuple(hashes))


def _prefixes(rows: list[_Row]) -> list[int]:
    """Return how many tokens of each request's prompt earlier ones had, by whole blocks."""
    seen: set[int] = set()
    cached = []
    for row in rows:
        count = 0
        for block in row.hashes:
            if block not in seen:
                break
            count += 1
        seen.update(row.hashes)
        cached.append(min(count * MOONCAKE_BLOCK, row.prompt))
    return cached


def _value(cell: str, name: str) -> Any:
    """Return a cell as a number; as a time of arrival, also of a date and a time."""
    value = number(cell)
    if name != "arrival" or not isinstance(value, str):
        return value
    try:
        moment = datetime.fromisoformat(cell)
    except ValueError:
        return value
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _seconds(value: Any) -> float:
    if not (is_number(value) and 0 <= value <= MAX_SIZE * 1000):
        raise ValueError(f"expected a time of at least 0, got {shown(value)}")
    return float(value)


def _tokens(value: Any) -> int:
    if not (is_whole(value) and 1 <= value <= MAX_SIZE):
        raise ValueError(f"expected a number of tokens, at least 1, got {shown(value)}")
    return value


def _cached(value: Any) -> int:
    return value if value == 0 and is_whole(value) else _tokens(value)
