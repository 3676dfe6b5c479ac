from __future__ import annotations

import pytest

from paleo.core.errors import SettingError
from paleo.step.serving.scheduling import Scheduling


def test_all_mistakes_are_said_together() -> None:
    with pytest.raises(SettingError) as raised:
        Scheduling(batching="dynamic", token_budget=0, watermark=1.5, preempt="swap", block=16)
    assert [mistake.message for mistake in raised.value.mistakes] == [
        "batching: expected continuous or static, got 'dynamic'",
        "preempt: expected recompute, got 'swap'",
        "token_budget: expected 1 or more, got 0",
        "watermark: expected a share from 0 to 1, got 1.5",
    ]


def test_a_step_has_a_token_for_each_request_where_decodes_count() -> None:
    with pytest.raises(SettingError, match="token_budget: 8 tokens of a step are not enough for 9"):
        Scheduling(token_budget=8, max_requests=9)
    for free in ({"mixed": False}, {"decode_first": False}, {"batching": "static"}):
        scheduling = Scheduling(token_budget=8, max_requests=9, **free)
        assert not scheduling.shared_budget


def test_static_batches_mix_no_prompts_and_decodes() -> None:
    assert Scheduling().is_mixed
    assert not Scheduling(batching="static").is_mixed


def test_blocks_are_whole() -> None:
    assert [Scheduling(block=16).blocks(tokens) for tokens in (1, 16, 17)] == [1, 1, 2]
