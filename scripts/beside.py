"""Put what `paleo` answered beside published figures: `beside.py EXPERIMENT RESULTS`.

Reads published/EXPERIMENT.csv and .md beside this file and the JSON files of the folder
RESULTS/EXPERIMENT; prints tables; writes RESULTS/EXPERIMENT.csv and RESULTS/EXPERIMENT.md.

A row of the CSV is one figure: `table` is the heading in the prose that it stands under, `figure`
the formula (see formulas.py) by which it follows from the answers, `published` and `measured` are
figures as they were read or, after an equals sign, formulas. `standing` is "printed",
"recollected", or what else the published figure is.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

from formulas import Answers

from paleo.core.errors import PaleoError
from paleo.views.table import Column, Table, to_markdown, to_separated, to_text

PUBLISHED = Path(__file__).parent / "published"
#: Standings of figures that were read, as text, and not computed for this comparison.
READ = ("printed", "recollected")
#: Differences below this share are of floating-point arithmetic.
NOTHING = 1e-9
#: Significant digits of Paleo's figures.
DIGITS = 4
#: The most columns of a table with several quantities.
WIDEST = 10

Figure = float | str | None


def rounds_to(value: float, printed: str) -> bool:
    """Tell whether a value has the printed digits.

    Of a whole number, zeros at the end count up to the third digit.
    """
    mantissa, _, decimals = printed.partition(".")
    unit = 10.0 ** -len(decimals)
    if not decimals:
        digits = max(min(3, len(mantissa)), len(mantissa.rstrip("0")))
        unit = 10.0 ** (len(mantissa) - digits)
    return abs(value - float(printed)) <= unit / 2 * (1 + NOTHING)


@dataclass(frozen=True)
class Row:
    """One figure: what Paleo says, what is published, what was measured."""

    given: dict[str, str]
    answers: Answers

    @cached_property
    def paleo(self) -> Any:
        """What Paleo says; None where it says nothing."""
        return self.answers.evaluate(self.given["figure"]) if self.given["figure"] else None

    def other(self, kind: str) -> Figure:
        """Return the figure of the column "published" or "measured"."""
        text = self.given[kind]
        if text.startswith("="):
            return float(self.answers.evaluate(text[1:]))
        try:
            return float(text)
        except ValueError:
            return text or None

    def against(self, kind: str) -> float | None:
        """Return by which share Paleo's figure differs from another."""
        other = self.other(kind)
        if not isinstance(other, float) or not isinstance(self.paleo, int | float) or not other:
            return None
        difference = self.paleo / other - 1
        return difference if abs(difference) > NOTHING else 0.0

    @property
    def agrees(self) -> bool | None:
        """Tell whether Paleo's figure has the digits, or is the text, that was read.

        None if there is none.
        """
        text = self.given["published"]
        if self.given["standing"] not in READ or self.paleo is None or text.startswith("="):
            return None
        return self.paleo == text if isinstance(self.paleo, str) else rounds_to(self.paleo, text)

    def shown(self, kind: str) -> Figure:
        """Return a figure as it is to stand in the table: with its own digits if they are few."""
        text = self.given[kind]
        recollected = kind == "published" and self.given["standing"] == "recollected"
        if not text.startswith("="):
            few = len(text.replace(".", "").strip("-0")) <= DIGITS
            known = kind != "published" or self.given["standing"] in READ or few
            found: Figure = (text or None) if known else self.other(kind)
        else:
            found = self.other(kind)
            if recollected and isinstance(found, float):
                found = f"{found:.{DIGITS}g}"
        return f"{found} (r)" if recollected and found else found

    @property
    def sources(self) -> tuple[str, ...]:
        """What the figures were read from."""
        given = self.given
        published = f"{given['standing']}: {given['source']}" if given["published"] else ""
        measured = f"measured: {given['measured_source']}" if given["measured"] else ""
        return tuple(filter(None, (published, measured)))

    def to_dict(self) -> dict[str, Any]:
        """Return the values of the row's cells."""
        return {
            **self.given,
            "paleo": self.paleo,
            "published_shown": self.shown("published"),
            "published": self.other("published"),
            "against_published": self.against("published"),
            "agrees": self.agrees,
            "measured_shown": self.shown("measured"),
            "measured": self.other("measured"),
            "against_measured": self.against("measured"),
        }


#: The columns of the CSV file: a row of the published figures, and what follows from it.
_SEPARATED = (
    "table",
    "quantity",
    "unit",
    "configuration",
    "paleo",
    "published",
    "standing",
    "against_published",
    "agrees",
    "measured",
    "against_measured",
    "source",
    "measured_source",
)
_NOT_ROUNDED = "* does not round to the published digits"


def tables_under(quantities: dict[str, list[Row]]) -> list[Table]:
    """Return the tables under one heading: one for each quantity, or one for all if it is narrow.

    All can share a table that are of the same configurations and the same measured figures.
    """
    every = list(quantities.values())
    shared = {
        tuple((row.given["configuration"], row.given["measured"]) for row in rows) for rows in every
    }
    if len(every) > 1 and len(shared) == 1:
        table = _together(every)
        if len(table.columns) <= WIDEST:
            return [table]
    tables = [replace(_together([rows]), title=quantity) for quantity, rows in quantities.items()]
    return [
        replace(table, footnotes=()) if follows and follows.footnotes == table.footnotes else table
        for table, follows in zip_longest(tables, tables[1:])
    ]


def _together(every: list[list[Row]]) -> Table:
    """Return one table of quantities, each with what is published of it; then what was measured.

    The header of a single quantity is Paleo's name, of several, theirs.
    """
    columns = [Column("configuration", "configuration")]
    cells: list[dict[str, Any]] = [
        {"configuration": row.given["configuration"], "measured": row.shown("measured")}
        for row in every[0]
    ]
    measured = Column("measured", _headed("measured", every[0]), digits=DIGITS, right=True)
    for number, rows in enumerate(every):
        keys = [f"{key}_{number}" for key in ("paleo", "published", "against", "against_measured")]
        for cell, row in zip(cells, rows, strict=True):
            values = row.paleo, row.shown("published"), *map(row.against, ("published", "measured"))
            cell |= dict(zip(keys, values, strict=True))
        name = rows[0].given["quantity"] if len(every) > 1 else "Paleo"
        columns += [
            Column(keys[0], _headed(name, rows), digits=DIGITS),
            Column(keys[1], _headed("published", rows), digits=DIGITS, right=True),
            Column(keys[2], "difference", "percent"),
            *([measured] if len(every) == 1 else []),
            Column(keys[3], "difference", "percent"),
        ]
    if len(every) > 1:
        columns.append(measured)
    columns = [c for c in columns if any(cell[c.key] is not None for cell in cells)]
    marked = frozenset(
        (i, f"paleo_{number}")
        for number, rows in enumerate(every)
        for i, row in enumerate(rows)
        if row.agrees is False
    )
    sources = _cite(cells, [*zip(*every, strict=True)])
    if "cited" in cells[0]:
        columns.append(Column("cited", "sources"))
    footnotes = [*([_NOT_ROUNDED] if marked else []), *sources]
    return Table("", columns, cells, footnotes=footnotes, marked=marked)


def _headed(title: str, rows: list[Row]) -> str:
    unit = rows[0].given["unit"]
    return f"{title}\n({unit})" if unit else title


def _cite(cells: list[dict[str, Any]], together: list[tuple[Row, ...]]) -> list[str]:
    """Return the sources of the rows of each cell, numbered in `cells` if they differ."""
    own = [[source for row in rows for source in row.sources] for rows in together]
    sources = list(dict.fromkeys(source for each in own for source in each))
    if len({source.partition(":")[0] == "measured" for source in sources}) == len(sources):
        return sources
    for cell, each in zip(cells, own, strict=True):
        cell["cited"] = " ".join(f"[{sources.index(s) + 1}]" for s in dict.fromkeys(each))
    return [f"[{number}] {source}" for number, source in enumerate(sources, 1)]


def rows_of(experiment: str, answers: Answers) -> dict[str, dict[str, list[Row]]]:
    """Return the rows of each quantity under each heading of an experiment."""
    grouped: dict[str, dict[str, list[Row]]] = {}
    with (PUBLISHED / f"{experiment}.csv").open(encoding="utf-8", newline="") as file:
        for given in csv.DictReader(file):
            quantities = grouped.setdefault(given["table"], {})
            quantities.setdefault(given["quantity"], []).append(Row(given, answers))
    return grouped


def page(experiment: str, tables: dict[str, list[Table]], commands: str) -> str:
    """Return the prose of an experiment with its tables under their headings."""
    prose = (PUBLISHED / f"{experiment}.md").read_text("utf-8")
    first, *sections = re.split(r"^(?=### )", prose, flags=re.MULTILINE)
    headings = [section.partition("\n")[0].removeprefix("### ") for section in sections]
    if headings != list(tables):
        raise PaleoError(f"{experiment}: headings {headings}, but tables {list(tables)}")
    text = f"{first.rstrip()}\n\n```console\n{commands}```\n"
    for section, heading in zip(sections, headings, strict=True):
        text += f"\n{section.rstrip()}\n\n{to_markdown(tables[heading])}"
    return text


def main(experiment: str, results: Path) -> None:
    """Print the tables of an experiment, and write its page and its figures."""
    answers = Answers(results / experiment)
    grouped = rows_of(experiment, answers)
    tables = {heading: tables_under(quantities) for heading, quantities in grouped.items()}
    commands = (answers.folder / "commands").read_text("utf-8")
    cells = [
        row.to_dict()
        for quantities in grouped.values()
        for rows in quantities.values()
        for row in rows
    ]
    separated = to_separated([Table("", [*map(Column, _SEPARATED)], cells)], ",")
    (results / f"{experiment}.md").write_text(page(experiment, tables, commands), "utf-8")
    (results / f"{experiment}.csv").write_text(separated, "utf-8")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for heading, several in tables.items():
        sys.stdout.write(f"{heading}\n{'=' * len(heading)}\n\n{to_text(several, width)}\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1], Path(sys.argv[2]))
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read this has stopped reading
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (Python flushes it at exit)
        sys.exit(1)
    except (PaleoError, OSError) as error:
        sys.exit(f"beside.py: {error}")
