"""Plan files written by hand: the fixture `read` reads one, `said` gives what is wrong with one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paleo.core.errors import PaleoError
from paleo.step.plans.merge import Planned, planned

Read = Callable[..., Planned]
Saying = Callable[..., list[str]]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Return what reads a text, or a mapping as JSON, as the file `plan`."""
    monkeypatch.chdir(tmp_path)

    def reading(content: Any, **given: Any) -> Planned:
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        Path("plan").write_bytes(text if isinstance(text, bytes) else text.encode())
        return planned("plan", given)

    return reading


@pytest.fixture
def said(read: Read) -> Saying:
    """Return what gives the lines of the error of a file."""

    def saying(content: Any, **given: Any) -> list[str]:
        with pytest.raises(PaleoError) as caught:
            read(content, **given)
        return [str(mistake) for mistake in caught.value.mistakes]

    return saying
