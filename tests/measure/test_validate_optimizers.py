"""Which net and which optimizer a row means by its source, and what a step of it takes: by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import paleo
from paleo.core.errors import MeasurementError
from paleo.measure.validate import cases_of, read_measurements
from paleo.measure.validate.cases import Cases, predict
from paleo.measure.validate.names import NETS, meant
from paleo.measure.validate.nets import NetCase, Remembering
from paleo.measure.validate.protocols import PROTOCOLS, protocol_of
from paleo.measure.validate.spellings import is_compiled
from paleo.net.graph import build

HEADER = "quantity,value,unit,network,batch_per_device,device,framework,direction,source_id"


def read(tmp_path: Path, *rows: str, more: str = "") -> Cases:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([HEADER + more, *rows]) + "\n", "utf-8")
    return cases_of(read_measurements(path))


def case(cases: Cases) -> Any:
    (part,) = cases.parts
    return part.case  # type: ignore[attr-defined]


def test_every_optimizer_of_a_source_is_one() -> None:
    for protocol in PROTOCOLS.values():
        said = {script.says.get("optimizer", "sgd") for script in protocol.scripts}
        assert {protocol.optimizer, *said} <= set(paleo.OPTIMIZERS)


@pytest.mark.parametrize(
    ("source", "framework", "network", "optimizer", "clips"),
    [
        ("dlperf", "NVIDIA DLE PyTorch", "bert-base (pretrain)", "fused_adam", False),
        ("dlperf", "TensorFlow2", "bert-base (pretrain)", "adamw", True),
        ("dlperf", "NVIDIA DLE TensorFlow", "bert-base (pretrain)", "bert_adam", True),
        ("dlperf", "MindSpore", "resnet50-v1.5", "momentum", False),
        ("dlperf", "TensorFlow2", "resnet50-v1.5", "momentum", False),
        ("nvidia_dle", "TensorFlow", "bert-large pretrain", "lamb", False),
        ("nvidia_dle", "PyTorch", "bert-large pretrain", "lamb", False),
        ("nvidia_dle", "PyTorch", "bert-large fine-tune", "fused_adam", False),
        ("nvidia_dle", "PyTorch", "ssd300-resnet50", "momentum", False),
        ("my rows", "PyTorch", "bert-large", "sgd", False),
    ],
)
def test_a_source_says_who_updated_what(
    source: str, framework: str, network: str, optimizer: str, clips: bool, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(
        f"{HEADER}\nimages_per_s,800,images/s,{network},8,V100-SXM2-16GB,{framework},train,{source}\n"
    )
    (row,) = read_measurements(file)
    _, protocol = protocol_of(source).of(row)
    assert (protocol.optimizer, protocol.clips) == (optimizer, clips)


def test_who_scales_the_loss_looks_for_infinities(tmp_path: Path) -> None:
    row = "images_per_s,800,images/s,resnet50-v1.5,256,V100-SXM2-16GB,PyTorch,train,dlperf,{}"
    notes = (
        "AMP & `dynamic loss scale`",
        "AMP & `static loss scale`",
        "without dynamic_loss_scaling",
    )
    found = [case(read(tmp_path, row.format(note), more=",notes")) for note in notes]
    assert [each.scales_loss for each in found] == [True, False, False]


def test_a_row_says_its_optimizer(tmp_path: Path) -> None:
    row = "step_ms,10,ms,resnet50,32,V100-SXM2-16GB,PyTorch 2.1,,mine"
    plain, adam = (read(tmp_path, f"{row},{name}", more=",optimizer") for name in ("", "adam"))
    assert (case(plain).optimizer, case(adam).optimizer) == ("sgd", "adam")
    # The rest of the step is the same: what differs is the update.
    graph = build(paleo.load("resnet50"))
    updates = [
        paleo.estimate_update(
            graph.num_params, "V100_SXM2_16GB", tensors=graph.num_tensors, optimizer=name,
            framework="pytorch",
        )
        for name in ("sgd", "adam")
    ]  # fmt: skip
    (before,), (after,) = (predict(each, "tiled") for each in (plain, adam))
    assert after - before == pytest.approx(updates[1] - updates[0])


def test_an_unknown_optimizer_of_a_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="expected one of sgd, momentum"):
        read(tmp_path, "step_ms,1,ms,vgg16,8,T4,,,x,adan", more=",optimizer")


@pytest.mark.parametrize(
    ("name", "source", "framework", "trains", "net"),
    [
        ("bert-base (pretrain, seq 128)", "dlperf", "NVIDIA DLE PyTorch", True,
         "bert_base_pretraining_all"),
        ("bert_large", "neusight_e2e", "PyTorch 2.1", True, "bert_large_pretraining_all"),
        ("bert_large", "neusight_e2e", "PyTorch 2.1", False, "bert_large"),
        ("bert-large", "my rows", "PyTorch 2.1", True, "bert-large"),
    ],
)  # fmt: skip
def test_a_net_by_its_framework_or_in_training(
    name: str, source: str, framework: str, trains: bool, net: str
) -> None:
    assert meant(name, source, framework, trains) == net


def test_pretraining_has_its_heads(tmp_path: Path) -> None:
    rows = (
        "sequences_per_s,100,samples/s,bert-large pretrain,8,V100-SXM-32GB,TensorFlow2,train,"
        f"nvidia_dle,{length}"
        for length in (128, 512)
    )
    found = [case(read(tmp_path, row, more=",seq_len")) for row in rows]
    assert [each.net for each in found] == ["bert-large pretrain"] * 2
    assert NETS["nvidia_dle: bert-large pretrain"] == "bert_large_pretraining"
    assert NETS["nvidia_dle: bert-large pretrain on 512"] == "bert_large_pretraining_512"


def test_passes_of_a_step_are_those_of_training(tmp_path: Path) -> None:
    row = "forward_ms,100,ms,bert_large,2,V100-PCIe-32GB,PyTorch 2.1,{},{}"
    for direction, source, trains in (
        ("forward", "neusight_e2e", True),
        ("inference", "neusight_e2e", False),
        ("forward", "mine", False),
    ):
        assert case(read(tmp_path, row.format(direction, source))).trains is trains


def test_lengths_are_those_of_scripts_and_binned_ones_are_not_predicted(tmp_path: Path) -> None:
    row = "sequences_per_s,10,samples/s,{},8,V100-SXM-32GB,PyTorch,train,nvidia_dle,{}"
    assert (
        case(read(tmp_path, row.format("bert-large fine-tune", ""), more=",seq_len")).sequence
        == 384
    )
    binned = read(tmp_path, row.format("bert-large pretrain", 512), more=",seq_len")
    assert len(binned) == 0
    assert "other lengths" in binned.unpredicted[0].reason
    assert len(read(tmp_path, row.format("bert-large pretrain", 128), more=",seq_len")) == 1


def test_notes_may_say_that_a_net_was_compiled() -> None:
    assert is_compiled("PyTorch 2.1", "fp32; torch.compile fused")
    assert not is_compiled("PyTorch 2.1", "eager")


@pytest.mark.parametrize("optimizer", ["muon", "adafactor", "adam_8bit", "adamw"])
def test_an_update_by_matrices_is_that_of_a_step(optimizer: str) -> None:
    case = NetCase("gpt2", "", None, 8, ("update",), framework="pytorch", optimizer=optimizer)
    device, model = paleo.find_device("H100_SXM"), paleo.find_cost_model("tiled")
    found = case.seconds(device, "bf16", Remembering(model), {})
    how: Any = {"device": "H100_SXM", "dtype": "bf16", "framework": "pytorch"}
    (run,) = paleo.simulate("gpt2", workers=1, batch_size=8, optimizer=optimizer, **how).runs
    assert found == pytest.approx(run.rows[0]["update"])
