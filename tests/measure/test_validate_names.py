"""What sources mean by names, and what their rows leave out."""

from __future__ import annotations

from pathlib import Path

import pytest

from paleo.measure.validate import cases_of, read_measurements
from paleo.measure.validate.cases import Cases
from paleo.measure.validate.names import net_of


def rows(folder: Path, text: str) -> Cases:
    file = folder / "rows.csv"
    file.write_text(text)
    return cases_of(read_measurements(file))


@pytest.mark.parametrize(
    ("source", "name", "length", "net"),
    [
        ("nvidia_dle", "transformer-xl:base", None, "transformer_xl_base"),
        ("nvidia_dle", "transformer-xl:base", 64, "transformer_xl_base_eval"),
        ("nvidia_dle", "transformer-xl:large", 128, "transformer_xl_large_eval"),
        ("neusight_e2e", "gpt3_xl", 2048, "gpt3_xl_3072"),
        ("", "gpt3_xl", 2048, "gpt3_xl"),
        ("neusight_e2e", "opt_13", 2048, "opt_1_3b"),
    ],
)
def test_which_net_a_source_means(source: str, name: str, length: int | None, net: str) -> None:
    assert net_of(name, source, sequence=length).name == net


def test_tokens_are_those_of_the_nets_own_length(tmp_path: Path) -> None:
    found = rows(
        tmp_path,
        "quantity,value,network,device,batch_per_device\ntokens_per_s,1000,lstm_lm,K80,16\n",
    )
    assert found.measured == pytest.approx([16 * 35 / 1000])


def test_batches_that_a_source_leaves_to_its_scripts(tmp_path: Path) -> None:
    head = "source_id,source,quantity,value,network,device,precision,framework,direction\n"
    row = "nvidia_dle,{},images_per_s,100,resnet50-v1.5,{},{},{},train\n"
    pytorch = "PyTorch/Classification/ConvNets/resnet50v1.5/README.md"
    mxnet = "MxNet/Classification/RN50v1.5/README.md"
    asked = [
        (pytorch, "V100-SXM-16GB", "fp32", "PyTorch"),
        (pytorch, "V100-SXM-32GB", "mixed(fp16)", "PyTorch"),
        (mxnet, "V100-SXM-16GB", "mixed(fp16)", "MxNet"),
        (mxnet, "V100-SXM-32GB", "fp32", "MxNet"),
        (mxnet, "T4", "fp32", "MxNet"),
    ]
    found = rows(tmp_path, head + "".join(row.format(*each) for each in asked))
    assert found.measured * 100 == pytest.approx([112, 256, 192, 128])
    assert [each.reason for each in found.unpredicted] == ["no batch size"]
