"""Answers are computed one after the other, and none waits long for another."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from paleo.web.answers import KINDS, Answers
from paleo.web.fair_lock import Turns
from paleo.web.settings import read_settings


def test_one_thread_computes_at_a_time() -> None:
    turns = Turns(patience=60)
    inside: list[int] = []
    most: list[int] = []

    def compute(i: int) -> None:
        with turns.turn():
            inside.append(i)
            most.append(len(inside))
            time.sleep(0.001)
            inside.remove(i)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(compute, range(40)))
    assert most == [1] * 40


def test_the_next_one_has_its_turn_after_a_mistake() -> None:
    turns = Turns(patience=60)
    with pytest.raises(RuntimeError), turns.turn():
        raise RuntimeError
    with turns.turn():
        pass


def test_a_long_answer_does_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, released = threading.Event(), threading.Event()
    make = KINDS["scaling"]

    def long(overview: Any) -> dict[str, Any]:
        entered.set()
        assert released.wait(30)
        return make(overview)

    monkeypatch.setitem(KINDS, "scaling", long)
    answers = Answers()
    answers._turns.patience = 0.01
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(answers.text, "scaling", read_settings({"net": "nin"}))
        assert entered.wait(30)
        asked = read_settings({"net": "lenet5"})
        others = [pool.submit(answers.text, "memory", asked).result(30) for _ in range(2)]
        assert not first.done()
        released.set()
        assert first.result(30)
    assert others == [Answers().text("memory", asked)] * 2
    # Whose turn it was gave it back, and the impatient did not.
    assert not answers._turns._lock.locked()
