"""Files of measurements that are wrong: every mistake is said, with file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest
from validation import HEADER, call

import paleo
from paleo.measure.validate import read_measurements

GOOD = 'op_ms,1,op:gemm,"{""M"":1,""N"":1,""K"":1}",,T4'


def said(folder: Path, text: str | bytes) -> list[str]:
    """Return the mistakes of a file, without its name."""
    path = folder / "mine.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(paleo.PaleoError) as caught:
        read_measurements(path)
    return [str(mistake).removeprefix(f"{path}: ") for mistake in caught.value.mistakes]


def of_row(folder: Path, row: str, header: str = HEADER) -> str:
    """Return the one mistake of a row that stands below a good one."""
    (mistake,) = said(folder, f"{header}\n{GOOD}{',' * header.count(',unit')}\n{row}\n")
    assert mistake.startswith("line 3")
    return mistake.removeprefix("line 3").lstrip(",: ")


def shape(text: str, operator: str = "gemm") -> str:
    quoted = text.replace('"', '""')
    return f'op_ms,1,op:{operator},"{quoted}",,T4'


@pytest.mark.parametrize(
    ("row", "mistake"),
    [
        (",1,vgg16,,8,T4", "quantity: missing: what was measured, such as step_ms"),
        ("step_ms,,vgg16,,8,T4", "value: missing"),
        ("step_ms,fast,vgg16,,8,T4", 'value: expected a number, got "fast"'),
        ("step_ms,-1,vgg16,,8,T4", "value: expected a number above 0, got -1"),
        ("step_ms,0,vgg16,,8,T4", "value: expected a number above 0, got 0"),
        ("step_ms,nan,vgg16,,8,T4", "value: expected a number above 0, got nan"),
        ("step_ms,inf,vgg16,,8,T4", "value: expected a number above 0, got inf"),
        ("step_ms,1e300,vgg16,,8,T4", "value: 1e300 is too large to mean anything"),
        ("step_ms,1e-300,vgg16,,8,T4", "value: 1e-300 is too small to mean anything"),
        ("step_ms,1_0,vgg16,,8,T4", 'value: expected a number, got "1_0"'),
        ("step_ms,1,,,8,T4", "network: missing"),
        ("step_ms,1,vgg16,,8,", "device: missing"),
        ("step_ms,1,vgg16,,-8,T4", "batch_per_device: expected a number above 0, got -8"),
        ("step_ms,1,vgg16,,many,T4", 'batch_per_device: expected a number, got "many"'),
        (shape("[1,2]"), 'op_shape: expected a JSON object, got "[1,2]"'),
        (shape("M=1"), 'op_shape: expected a JSON object, got "M=1"'),
        (
            'step_ms,1,vgg16,"{""image"":0}",8,T4',
            "op_shape: image: expected a whole number",
        ),
        (
            'step_ms,1,vgg16,"{""image"":1.5}",8,T4',
            "op_shape: image: expected a whole number above",
        ),
        ('step_ms,1,vgg16,"{""image"":""L""}",8,T4', "op_shape: image: expected a whole number"),
        ('step_ms,1,vgg16,"{""params_m"":-1}",8,T4', "op_shape: params_m: expected a number above"),
        ('step_ms,1,vgg16,"[224]",8,T4', 'op_shape: expected a JSON object, got "[224]"'),
        (shape('{"M":1,"N":2}'), "op_shape: missing: K (expected M, N, K)"),
        (shape(""), "op_shape: missing: M, N, K (expected M, N, K)"),
        (shape('{"M":0,"N":2,"K":3}'), "op_shape: M: expected a whole number from 1 to"),
        (shape('{"M":-4,"N":2,"K":3}'), "op_shape: M: expected a whole number from 1 to"),
        (shape('{"M":1.5,"N":2,"K":3}'), "op_shape: M: expected a whole number, got 1.5"),
        (shape('{"M":"1","N":2,"K":3}'), 'op_shape: M: expected a whole number, got "1"'),
        (shape('{"M":true,"N":2,"K":3}'), "op_shape: M: expected a whole number, got true"),
        (shape('{"M":NaN,"N":2,"K":3}'), "op_shape: M: expected a whole number from 1 to"),
        (shape('{"M":1e99,"N":2,"K":3}'), "op_shape: M: expected a whole number from 1 to"),
        (shape('{"M":2e9,"N":2e9,"K":2e9}'), "op_shape: too large to mean anything"),
        (shape('{"M":1,"N":2,"k":3}'), "op_shape: unknown letter 'k' (did you mean 'K'?)"),
        (
            shape('{"N":1,"C":1,"H":4,"W":4,"K":1,"R":7,"S":3,"pad":1}', "conv2d"),
            "op_shape: the filter spans 7 elements (R), more than the 6 of the padded input (H)",
        ),
        (
            shape('{"N":1,"C":3,"H":4,"W":4,"K":4,"R":1,"S":1,"groups":2}', "conv2d"),
            "op_shape: C = 3 does not divide into 2 groups",
        ),
        (
            shape('{"N":1,"C":3,"H":4,"W":4,"K":4,"R":1,"S":1,"pad":-1}', "conv2d"),
            "op_shape: pad: expected a whole number from 0 to",
        ),
        (
            shape('{"batch":1,"heads":6,"kv_heads":4,"queries":1,"head_dim":8}', "attention"),
            "op_shape: 6 heads do not share 4 of keys and values",
        ),
        (
            shape('{"batch":1,"heads":1,"queries":9,"keys":8,"head_dim":8}', "attention"),
            "op_shape: 9 causal queries need as many keys, not 8",
        ),
        ("step_ms,1,vgg16,,8", "5 cells, the header has 6"),
        ('step_ms,1,vgg16,"{"x",8,T4', "not a CSV file: "),
    ],
)
def test_a_mistake_in_a_row_says_line_and_column(row: str, mistake: str, tmp_path: Path) -> None:
    assert of_row(tmp_path, row).removeprefix("column ").startswith(mistake)


def test_a_memory_format_is_one_of_two(tmp_path: Path) -> None:
    (mistake,) = said(tmp_path, f"{HEADER},memory_format\nstep_ms,1,vgg16,,8,T4,NWHC\n")
    assert mistake == (
        'line 2, column memory_format: expected contiguous or channels_last, got "NWHC"'
    )


@pytest.mark.parametrize(
    ("quantity", "unit", "belongs"),
    [
        ("step_ms", "ms", True),
        ("step_ms", "milliseconds", True),
        ("step_ms", "s", False),
        ("step_ms", "images/s", False),
        ("step_s", "s", True),
        ("images_per_s", "img/sec", True),
        ("images_per_s", "samples/s", True),
        ("images_per_s", "images", False),
        ("images_per_s", "ms", False),
        ("images_per_s", "tokens/s", False),
        ("samples_per_s", "sequences per second", True),
        ("tokens_per_s", "tokens/s", True),
        ("allreduce_busbw", "GB/s", True),
    ],
)
def test_a_unit_has_to_belong_to_its_quantity(
    quantity: str, unit: str, belongs: bool, tmp_path: Path
) -> None:
    text = f"quantity,value,unit,network,device,batch_per_device\n{quantity},1,{unit},vgg16,T4,1\n"
    if not belongs:
        (mistake,) = said(tmp_path, text)
        assert mistake.startswith(f"line 2, column unit: the unit '{unit}' does not belong to")
        return
    path = tmp_path / "mine.csv"
    path.write_text(text)
    assert len(read_measurements(path)) == 1


def test_all_mistakes_are_said_and_many_are_counted(tmp_path: Path) -> None:
    three = said(tmp_path, f"{HEADER}\n,0,,,,T4\n")
    assert [mistake.partition(":")[0] for mistake in three] == [
        "line 2, column quantity",
        "line 2, column value",
        "line 2, column network",
    ]
    many = said(tmp_path, HEADER + "\nstep_ms,0,vgg16,,8,T4" * 31)
    assert len(many) == 21
    assert many[-1] == "and 11 other mistakes"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", "no header; a file needs the columns quantity, value, network, device"),
        ("\n", "no header; a file needs the columns quantity, value, network, device"),
        (HEADER + "\n", "there are no rows"),
        ("quantity,value,device\nstep_ms,1,T4\n", "line 1: no column network"),
        (
            "quantity,valeu,network,device\n",
            "line 1: no column value (did you mean 'valeu'?)",
        ),
        (HEADER + ",value\n", "line 1: the column value is there twice"),
        (b"quantity,value\n\xff\n", "not text in UTF-8"),
    ],
)
def test_a_file_without_rows_or_header_is_wrong(
    text: str | bytes, mistake: str, tmp_path: Path
) -> None:
    assert said(tmp_path, text) == [mistake]


def test_files_may_have_a_mark_other_ends_blank_lines_and_more_columns(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    row = GOOD.replace('{""M""', '{""M"" ')
    path.write_bytes(f"\ufeff{HEADER},mine\r\n{row},x\r\n\r\n{row},y\r\n".encode())
    rows = read_measurements(path)
    assert [each.line for each in rows] == [2, 4]
    assert rows[0].shape == {
        "M": 1,
        "N": 1,
        "K": 1,
        "quantized": 0,
        "kernels": 0,
        "backend": 0,
        "blocks": 0,
    }


def test_whole_numbers_may_have_a_point(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f"{HEADER},n_devices\n{GOOD.replace('1,', '1.0,', 1)},1.0\n")
    (row,) = read_measurements(path)
    assert (row.value, row.n_devices) == (1.0, 1)


def test_the_mistakes_of_several_files_are_said_together(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(f"{HEADER}\nstep_ms,0,vgg16,,8,T4\n")
    result = call(tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.csv", status=1)
    assert result.stdout == ""
    lines = [line.removeprefix(f"paleo: {tmp_path}/") for line in result.stderr.splitlines()]
    assert lines == [
        "a.csv: line 2, column value: expected a number above 0, got 0",
        "b.csv: line 2, column value: expected a number above 0, got 0",
        "c.csv: No such file or directory",
    ]


def test_a_device_file_of_ones_own_that_is_wrong_is_listed(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[peak.fp32]\n")
    path = tmp_path / "mine.csv"
    path.write_text(f"{HEADER}\n{GOOD.replace('T4', str(tmp_path / 'bad.toml'))}\n")
    result = call(path, status=1)
    assert "figures.memory_bandwidth" in result.stdout
    assert result.stderr == "paleo: no row could be predicted\n"
