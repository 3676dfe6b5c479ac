"""What several tables share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from paleo.costs.convolutions import DEFAULT

__all__ = ["CONVOLUTION_KEYS", "common_notes"]

#: The columns that say how convolutions were computed, for programs.
CONVOLUTION_KEYS = (*DEFAULT.to_dict(), "convolution_algorithm")


def common_notes(notes: Sequence[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """Return the notes of several, each once; those that are not of all say of whom they are.

    Notes come with the name of whom they are of, "" where that need not be said.
    """
    counts = Counter(note for _, own in notes for note in dict.fromkeys(own))
    return tuple(
        dict.fromkeys(
            f"{name}: {note}" if name and counts[note] < len(notes) else note
            for name, own in notes
            for note in own
        )
    )
