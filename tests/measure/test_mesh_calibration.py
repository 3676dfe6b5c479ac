"""Constants of a device and of its links, fitted to steps on several devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import pytest

import paleo
from paleo.cli import cli
from paleo.cluster.collectives import COLLECTIVES, Operation
from paleo.measure.calibrate.file import network_toml
from paleo.measure.validate import cases_of, predict, read_measurements
from paleo.measure.validate.link_constants import (
    LINK_CONSTANTS,
    calibrated,
    known_links,
    link_of,
    linked,
)

HEADER = (
    "row_id,source_id,quantity,value,unit,network,op_shape,global_batch,micro_batch,seq_len,device,"
    "n_devices,interconnect,precision,framework,parallelism,direction,notes"
)


def steps(path: Path, seconds: Any = None) -> Path:
    """Write rows of Megatron-LM's small GPTs on 2 to 8 devices, of so many seconds each."""
    kinds = [
        (hidden, tp, micro) for hidden in (1024, 4096) for tp, micro in ((2, 8), (4, 8), (8, 1))
    ]
    lines = [HEADER]
    for row, (hidden, tp, micro) in enumerate(kinds):
        sizes = json.dumps({"layers": 1, "hidden": hidden, "heads": 8, "vocab": 1024})
        value = 1e3 * float(seconds[row]) if seconds is not None else 100.0
        cells = (
            row, "megatron_a100", "step_ms", value, "ms", f"gpt {hidden}", sizes, 8, micro, 1024,
            "A100-SXM-80GB", tp, "dgx_a100", "fp16", "megatron", f"tp{tp} pp1 dp1", "train", "",
        )  # fmt: skip
        lines.append(",".join('"{}"'.format(str(cell).replace('"', '""')) for cell in cells))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def test_constants_of_links_change_collectives_inside_a_node_alone() -> None:
    cluster = paleo.find_cluster("dgx_a100")
    assert known_links(cluster).keys() == LINK_CONSTANTS.keys()
    half = linked(cluster, {"link_share": 0.5, "link_launch": 2e-5, "matrix_share": 0.3})
    was, now = cluster.tiers[0].network, half.tiers[0].network
    assert now.bandwidth == was.bandwidth / 2
    assert was.nccl
    assert now.nccl
    assert now.nccl.bandwidth == was.nccl.bandwidth / 2
    assert (now.nccl.value("launch"), now.nccl.value("hop")) == (2e-5, was.nccl.value("hop"))
    assert half.tiers[1:] == cluster.tiers[1:]
    # Long messages take twice as long, or less where something else than links bounds them.
    collective = COLLECTIVES["auto"]
    long, longer = (
        collective.seconds_on(one.group(8), 2**32, Operation.ALL_REDUCE) for one in (cluster, half)
    )
    assert 1.5 * long < longer < 2.1 * long
    # Where nothing was measured of links there are none.
    flat = paleo.find_cluster("tpu_v4_pod")
    assert (link_of(flat), known_links(flat), linked(flat, {"link_share": 0.5})) == (None, {}, flat)


def test_calibrated_links_are_read_from_their_file(tmp_path: Path) -> None:
    was = link_of(paleo.find_cluster("dgx_a100"))
    assert was
    found = calibrated(was, {"link_share": 0.8, "link_hop": 1.5e-6}, "a fit to steps.csv")
    path = tmp_path / "link.toml"
    path.write_text(network_toml(found), "utf-8")
    read = paleo.find_network(str(path))
    assert read.nccl
    assert was.nccl
    assert read.bandwidth == pytest.approx(0.8 * was.bandwidth)
    assert read.nccl.bandwidth == pytest.approx(0.8 * was.nccl.bandwidth)
    assert read.nccl.value("hop") == pytest.approx(1.5e-6)
    assert read.nccl.value("launch") == pytest.approx(was.nccl.value("launch"))
    assert read.nccl.figures["hop"].source == "a fit to steps.csv"
    assert (read.nccl.kind, read.nccl.ll128) == (was.nccl.kind, was.nccl.ll128)


def test_cases_keep_what_constants_do_not_change(tmp_path: Path) -> None:
    cases = cases_of(read_measurements(steps(tmp_path / "steps.csv")))
    assert len(cases) == 6
    kept = cases.keeping()
    # The host of a server that runs Megatron-LM takes 60 us an operation; links are NVLink's.
    assert cases.known("host") == pytest.approx(60e-6)
    assert cases.known("link_share") == 1.0
    for constants in ({"host": 2e-5}, {"host": 2e-5, "link_share": 0.5}):
        expected = predict(cases, "tiled", constants)
        np.testing.assert_allclose(predict(kept, "tiled", constants), expected, rtol=1e-12)
    slower, quicker = (predict(kept, "tiled", {"link_share": share}) for share in (0.5, 1.0))
    assert (slower > quicker).all()


@pytest.mark.slow
def test_a_device_and_links_are_fitted_to_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of a host and of links that are slower: six rows tell two constants, these first."""
    pytest.importorskip("scipy", reason="needs SciPy")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("paleo.measure.calibrate.rows.STEPS", 6)
    true = {"host": 8e-5, "link_share": 0.6}
    cases = cases_of(read_measurements(steps(tmp_path / "any.csv")))
    steps(tmp_path / "steps.csv", predict(cases, "tiled", true))
    words = [
        "calibrate",
        "--from=steps.csv",
        "-o",
        "gpu.toml",
        "--links=link.toml",
        "--format=json",
    ]
    result = click.testing.CliRunner().invoke(cli, words, prog_name="paleo")
    assert result.exit_code == 0, result.output + result.stderr
    fitted = json.loads(result.stdout)["constants"]
    assert fitted["host"]["value"] == pytest.approx(8e-5, rel=0.1)
    assert fitted["link_share"]["value"] == pytest.approx(0.6, rel=0.2)
    device = paleo.find_device("gpu.toml")
    assert device.constants["host"].value == pytest.approx(fitted["host"]["value"], rel=1e-5)
    assert not device.constants.keys() & LINK_CONSTANTS.keys()
    share = fitted["link_share"]["value"]
    assert paleo.find_network("link.toml").bandwidth == pytest.approx(300e9 * share, rel=1e-5)
    (tmp_path / "own.toml").write_text(
        'device = "gpu.toml"\n[[tiers]]\nname = "node"\nnetwork = "link.toml"\nsize = 8\n', "utf-8"
    )
    assert paleo.find_cluster("own.toml").device.name == "gpu"


def test_links_need_rows_that_have_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["calibrate", "-o", "gpu.toml", "--links=link.toml"]
    result = click.testing.CliRunner().invoke(cli, words, prog_name="paleo")
    assert result.exit_code == 2
    assert "--links goes with --from" in result.stderr
