"""What several tables share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from paleo.cluster import Device, Figure, Network
from paleo.core.attributes import attributes


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


def cite(
    rows: Sequence[dict[str, Any]], sources: Sequence[Sequence[str]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows, each with the numbers of its sources as "cited", and the sources."""
    numbers: dict[str, int] = {}
    cited = []
    for row, texts in zip(rows, sources, strict=True):
        marks = [numbers.setdefault(text, len(numbers) + 1) for text in texts]
        cited.append({**row, "cited": " ".join(f"[{number}]" for number in sorted(marks))})
    return cited, [f"[{number}] {text}" for text, number in numbers.items()]


def figures_json(figures: Mapping[str, Figure]) -> dict[str, Any]:
    """Return figures with value, unit, source and note."""
    return {
        name: {"value": figure.value, "unit": figure.unit, "source": figure.source}
        | ({"note": figure.note} if figure.note else {})
        for name, figure in figures.items()
    }


def described(hardware: Device | Network) -> dict[str, Any]:
    """Return what the JSON of a device and of a network have in common; figures are SI."""
    return {
        **attributes(hardware, "name", "title", "aliases"),
        "figures": figures_json(hardware.figures),
    }
