from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paleo.core.errors import TraceError
from paleo.studies.serving.loads import Load
from paleo.studies.serving.traces import read_trace

PROMPTS = 'tokens of prompts, such as "prompt_tokens" or "ContextTokens"'
OUTPUTS = 'tokens of outputs, such as "output_tokens" or "GeneratedTokens"'


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def columns(load: Load) -> tuple[list[float], list[int], list[int], list[int]]:
    assert load.arrival is not None
    return (
        [round(second, 6) for second in load.arrival.tolist()],
        load.prompt.tolist(),
        load.output.tolist(),
        load.cached.tolist(),
    )


def test_azure_has_dates_of_seven_digits(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:16:47.1805900,396,109\n",
    )
    assert columns(read_trace(path)) == ([0, 60.5], [374, 396], [44, 109], [0, 0])


@pytest.mark.parametrize(
    ("header", "rows", "seconds"),
    [
        ("arrival_s,prompt_tokens,output_tokens", "1.5,10,2\n2,20,3", [0, 0.5]),
        ("Timestamp,Model,Request tokens,Response tokens", "5,GPT-4,10,2\n45,GPT-4,20,3", [0, 40]),
        ("arrived_at,num_prefill_tokens,num_decode_tokens", "0,10,2\n0.25,20,3", [0, 0.25]),
        ("timestamp_ms,input_length,output_length", "500,10,2\n750,20,3", [0, 0.25]),
        ("Arrival,Input,Output", "2024-05-10 00:00:00+00:00,10,2\n2024-05-10T00:00Z,20,3", [0, 0]),
    ],
)  # fmt: skip
def test_columns_are_named_as_many_do(
    tmp_path: Path, header: str, rows: str, seconds: list[float]
) -> None:
    path = written(tmp_path, f"{header}\n{rows}\n")
    assert columns(read_trace(path)) == (seconds, [10, 20], [2, 3], [0, 0])


def test_requests_are_put_in_order_and_those_of_one_time_stay_so(tmp_path: Path) -> None:
    path = written(tmp_path, "time,prompt,output,cached\n3,30,1,7\n1,10,1,0\n\n3,31,1,31\n")
    # Of 31 tokens that are all cached, one is computed.
    assert columns(read_trace(path)) == ([0, 2, 2], [10, 30, 31], [1, 1, 1], [0, 7, 30])


def line(timestamp: Any, prompt: Any, output: Any, hashes: Any) -> str:
    return json.dumps(
        {
            "timestamp": timestamp,
            "input_length": prompt,
            "output_length": output,
            "hash_ids": hashes,
        }
    )


def test_mooncake_has_milliseconds_and_hits_of_prefixes(tmp_path: Path) -> None:
    lines = [
        line(0, 1200, 10, [0, 1, 2]),
        line(3000, 1400, 20, [0, 1, 3]),  # two blocks of 512
        line(4000, 1000, 30, [5, 1]),  # a block that follows another one is not a prefix
        line(5000, 1200, 40, [0, 1, 2]),  # all: 1200, of which one is computed
        line(6000, 300, 50, []),
    ]
    load = read_trace(written(tmp_path, "\n".join(lines), "trace.jsonl"))
    assert columns(load) == (
        [0, 3, 4, 5, 6],
        [1200, 1400, 1000, 1200, 300],
        [10, 20, 30, 40, 50],
        [0, 1024, 0, 1199, 0],
    )


def test_prefixes_are_of_earlier_requests_by_time(tmp_path: Path) -> None:
    lines = [line(2000, 600, 1, [4, 5]), line(1000, 600, 1, [4, 6])]
    load = read_trace(written(tmp_path, "\n".join(lines), "trace.jsonl"))
    assert load.cached.tolist() == [0, 512]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("", ["no header; a trace needs columns of arrival, prompt and output tokens"]),
        ("time,prompt,output\n", ["there are no requests"]),
        (
            "time,prompts,output_token\n1,2,3\n",
            [
                f"line 1: no column of {PROMPTS} (is it 'prompts'?)",
                f"line 1: no column of {OUTPUTS} (is it 'output_token'?)",
            ],
        ),
        ("time,arrival,prompt,output\n", ["line 1: time and arrival are columns of the same"]),
        (
            "time,prompt,output\n-1,10,2\nsoon,10,2\n3,0,2\n4,10,many\n5,10,0\n6,1.5,1\n",
            [
                "line 2, column time: expected a time of at least 0, got -1",
                'line 3, column time: expected a time of at least 0, got "soon"',
                "line 4, column prompt: expected a number of tokens, at least 1, got 0",
                'line 5, column output: expected a number of tokens, at least 1, got "many"',
                "line 6, column output: expected a number of tokens, at least 1, got 0",
                "line 7, column prompt: expected a number of tokens, at least 1, got 1.5",
            ],
        ),
        ("time,prompt,output\n1,2\n", ["line 2: 2 cells, the header has 3"]),
        ('time,prompt,output\n"1,2,3\n', ["line 2: not a CSV file: unexpected end of data"]),
        (
            line(0, 1, 1, []) + "\n[1]\n" + line(-1, 0, 1, []) + '\n{"timestamp": 1}',
            [
                'line 2: expected a JSON object, got "[1]"',
                "line 3, timestamp: expected a time of at least 0, got -1",
                "line 3, input_length: expected a number of tokens, at least 1, got 0",
                "line 4, input_length: missing",
                "line 4, output_length: missing",
            ],
        ),
        (
            line(0, 1, 1, ["a"]),
            ['line 1, hash_ids: expected whole numbers, got ["a"]'],
        ),
    ],
)
def test_each_mistake_is_a_line_that_names_its_row(
    tmp_path: Path, text: str, messages: list[str]
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    assert str(raised.value).split("\n") == [f"{path}: {message}" for message in messages]


def test_of_many_mistakes_twenty_are_shown(tmp_path: Path) -> None:
    path = written(tmp_path, "time,prompt,output\n" + "x,1,1\n" * 30)
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    assert len(raised.value.mistakes) == 21
    assert raised.value.mistakes[-1].message == "and 10 other mistakes"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="not text in UTF-8"):
        read_trace(tmp_path / "bytes.csv")
