"""What is said of the length of sequences, which a configuration of a model leaves open."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: The dimension that --seq_len sets.
SEQ = "seq"
#: That of what a decoder reads, where an encoder has the other.
DECODER_SEQ = "decoder_seq"
_WITHOUT = "without --seq_len a sequence has"
_POSITIONS = r"the model has positions for ([\d,]+)"


def length_note(length: int, positions: int | None) -> str:
    """Return what a net file says where its length is one that an importer chose."""
    is_less = positions is not None and positions > length
    more = f"; the model has positions for {positions:,}" if is_less else ""
    return f"{_WITHOUT} {length:,} tokens{more}"


def positions_of(notes: Sequence[str]) -> int | None:
    """Return how many positions a model has by the notes of its file; None where none says so."""
    known = next(filter(None, (re.search(_POSITIONS, note) for note in notes)), None)
    return int(known[1].replace(",", "")) if known else None


def notes_at(notes: Sequence[str], length: int) -> list[str]:
    """Return the notes of a file where a length is given: of the chosen one there is none.

    It is said where a sequence is longer than the positions that the model has.
    """
    found = [note for note in notes if not note.startswith(_WITHOUT)]
    for note in notes:
        known = re.search(_POSITIONS, note) if note.startswith(_WITHOUT) else None
        if known and length > int(known[1].replace(",", "")):
            found.append(f"a sequence has {length:,} tokens; {known[0]}")
    return found
