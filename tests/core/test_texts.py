"""Texts of files in JSON and in separated values."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paleo.core.errors import printable
from paleo.core.texts import json_text, of_cell, to_cell

#: Escape, delete, C1 codes, bidirectional overrides and isolates, separators of lines, soft hyphen.
ODD = "\0\r\n\t\x1b\x7f\x80\x9b\x9f\u061c\u200e\u2028\u202e\u2066\ufeff\xad"


@given(st.text())
def test_json_says_the_same_and_shows_no_terminal_anything(text: str) -> None:
    found = json_text({text: [text]}, indent=1)
    assert json.loads(found) == {text: [text]}
    left = [c for c in found if c <= "\ud7ff" and c != "\n"]
    assert "".join(left).isprintable()


def test_json_leaves_what_can_be_seen() -> None:
    assert json_text("größe 日本 😀") == '"größe 日本 😀"'
    assert json.loads(json_text(ODD)) == ODD
    assert json_text(ODD).isascii()


@given(st.text())
def test_a_cell_is_one_line_and_no_formula(text: str) -> None:
    cell = to_cell(text)
    assert cell.isprintable()
    assert len(cell) < 2 or cell[0] not in "=+-@\uff1d\uff0b\uff0d\uff20"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-conv", "@SUM(A1)", "\uff1d1", "'quoted", "", "-"])
def test_a_cell_gives_its_text_back(text: str) -> None:
    assert of_cell(to_cell(text)) == text
    assert (to_cell(text) == text) == (text in ("'quoted", "", "-"))


@given(st.text())
def test_a_cell_gives_any_printable_text_back(text: str) -> None:
    text = printable(text)
    if not text.startswith("'"):  # of which it cannot be told whose it is
        assert of_cell(to_cell(text)) == text
