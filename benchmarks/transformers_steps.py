"""Training steps of transformers' own models on one GPU: predicted beside measured.

    python benchmarks/transformers_steps.py             print the table
    python benchmarks/transformers_steps.py --write     and write it into docs/accuracy.md
    python benchmarks/transformers_steps.py --check     exit with 1 if a bound is missed
    python benchmarks/transformers_steps.py --measure DEVICE    measure on this machine's GPU

What was measured is in benchmarks/measured/transformers_steps.csv: eager and compiled PyTorch 2.11
(CUDA 13.0) with transformers 5.17 on an H100 SXM and an H200, models of random weights without
dropout. A step is the mean of ten that follow each other; memory is the peak of allocated bytes.
Nothing was fitted to a step. Those of the H100 were looked at while layers were written as the
library composes them; those of the H200 were looked at once, when that was done.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paleo

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "benchmarks" / "measured" / "transformers_steps.csv"
PAGE = ROOT / "docs" / "accuracy.md"
MARKS = "<!-- transformers steps -->\n", "<!-- end of transformers steps -->\n"
#: What --check asks for: medians of the errors of steps and of memory, in all.
BOUND_OF_STEPS, BOUND_OF_MEMORY = 0.25, 0.06


def _gpt2(layers: int, features: int, heads: int, positions: int = 1024) -> dict[str, Any]:
    return {
        "model_type": "gpt2", "n_layer": layers, "n_embd": features, "n_head": heads,
        "n_positions": positions, "vocab_size": 50257,
        "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0,
    }  # fmt: skip


def _sized(
    model_type: str, layers: int, features: int, heads: int, inner: int, words: int, **other: Any
) -> dict[str, Any]:
    return {
        "model_type": model_type, "num_hidden_layers": layers, "hidden_size": features,
        "num_attention_heads": heads, "intermediate_size": inner, "vocab_size": words, **other,
    }  # fmt: skip


_NO_DROPOUT = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
#: The configuration of each model.
MODELS = {
    "gpt2": _gpt2(12, 768, 12),
    "gpt2_medium": _gpt2(24, 1024, 16),
    "gpt2_xl": _gpt2(48, 1600, 25),
    "gpt3_xl_2048": _gpt2(24, 2048, 16, 2048),
    "llama3_2_1b": _sized(
        "llama", 16, 2048, 32, 8192, 128256, num_key_value_heads=8, tie_word_embeddings=True
    ),
    "llama_0_5b": _sized("llama", 24, 1024, 16, 2816, 32000, tie_word_embeddings=True),
    "qwen2_5_0_5b": _sized(
        "qwen2", 24, 896, 14, 4864, 151936, num_key_value_heads=2, tie_word_embeddings=True
    ),
    "mistral_1b": _sized("mistral", 16, 2048, 16, 7168, 32000, num_key_value_heads=4),
    "pythia_410m": _sized("gpt_neox", 24, 1024, 16, 4096, 50432),
    "pythia_1_4b": _sized("gpt_neox", 24, 2048, 16, 8192, 50432),
    "opt_1_3b": _sized(
        "opt",
        24,
        2048,
        32,
        8192,
        50272,
        ffn_dim=8192,
        word_embed_proj_dim=2048,
        dropout=0,
        attention_dropout=0,
        max_position_embeddings=2048,
    ),
    "phi_1_5": _sized("phi", 24, 2048, 32, 8192, 51200),
    "bert_large": _sized("bert", 24, 1024, 16, 4096, 30522, **_NO_DROPOUT),
    "roberta_base": _sized(
        "roberta", 12, 768, 12, 3072, 50265, max_position_embeddings=514, **_NO_DROPOUT
    ),
}
#: Those whose head fills in words that are masked.
_MASKED = ("bert", "roberta")


@dataclass(frozen=True)
class Case:
    """A step that was measured, and what is predicted: seconds and bytes."""

    device: str
    what: str
    compiled: bool
    mixed: bool
    step: tuple[float, float]
    memory: tuple[float, float]
    #: What the allocator held beyond tensors, as a share of these.
    slack: float

    @property
    def errors(self) -> tuple[float, float]:
        """How far off the predictions are, as shares."""
        return tuple(predicted / measured - 1 for measured, predicted in (self.step, self.memory))  # type: ignore[return-value]


def config(name: str) -> dict[str, Any]:
    """Return what a config.json of a model says."""
    body = MODELS[name]
    names = {"gpt2": "GPT2LMHeadModel", "gpt_neox": "GPTNeoXForCausalLM"}
    names["opt"] = "OPTForCausalLM"
    kind = str(body["model_type"])
    ending = "ForMaskedLM" if kind in _MASKED else "ForCausalLM"
    return {"architectures": [names.get(kind, kind.capitalize() + ending)], **body}


def cases(framework: str = "transformers") -> Iterator[Case]:
    """Yield the steps that were measured, with their predictions for a framework."""
    with tempfile.TemporaryDirectory() as folder, MEASURED.open(newline="") as file:
        for row in csv.DictReader(file):
            path = Path(folder, row["model"], "config.json")
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(config(row["model"])))
            run = paleo.simulate(
                paleo.load(path, dims={"seq": int(row["tokens"])}),
                batch_size=int(row["batch"]),
                device=row["device"],
                dtype=row["dtype"],
                optimizer=row["optimizer"],
                optimizer_kernels=row["kernels_of_update"],
                framework=framework,
                compile=row["compiled"] == "1",
                recompute="full" if row["recomputed"] == "1" else "none",
                loss="cross_entropy",
            ).runs[0]
            step = run.rows[0]
            footprint = run.footprint(step)
            assert footprint is not None
            how = [row["dtype"], row["optimizer"]]
            how += ["recomputed"] * (row["recomputed"] == "1")
            how += ["compiled"] * (row["compiled"] == "1")
            yield Case(
                row["device"],
                f"{row['model']}, {row['batch']} x {row['tokens']}, {', '.join(how)}",
                row["compiled"] == "1",
                row["dtype"].startswith("mixed"),
                (float(row["step_s"]), float(step.to_dict()["compute_s"])),
                (float(row["allocated_bytes"]), float(footprint.peak)),
                float(row["reserved_bytes"]) / float(row["allocated_bytes"]) - 1,
            )


def slices(found: Iterable[Case]) -> dict[str, list[Case]]:
    """Return the cases by kind."""
    every = list(found)
    plain = [each for each in every if "recomputed" not in each.what]
    return {
        "H100, looked at": [each for each in every if each.device == "H100_SXM"],
        "H200, held out": [each for each in every if each.device != "H100_SXM"],
        "eager, one type": [each for each in every if not (each.compiled or each.mixed)],
        "eager, mixed": [each for each in every if each.mixed],
        "compiled": [each for each in every if each.compiled],
        "eager, recomputed": [each for each in every if each not in plain],
        "eager, not recomputed": [each for each in plain if not each.compiled],
        "all": every,
    }


def medians(found: Iterable[Case]) -> tuple[float, float]:
    """Return the median absolute errors of steps and of memory."""
    steps, memory = zip(*(each.errors for each in found), strict=True)
    return statistics.median(map(abs, steps)), statistics.median(map(abs, memory))


def table(found: list[Case]) -> str:
    """Return the errors by kind, then case by case."""
    lines = ["| steps | count | median error of time | of memory | held beyond tensors |"]
    lines.append("|---|--:|--:|--:|--:|")
    as_pytorch = {"all, by --framework=pytorch": list(cases("pytorch"))}
    for name, some in (slices(found) | as_pytorch).items():
        time_error, memory_error = medians(some)
        slack = statistics.median(each.slack for each in some)
        lines.append(
            f"| {name} | {len(some)} | {time_error:.1%} | {memory_error:.1%} | {slack:.1%} |"
        )
    lines += ["", "| device | step | measured (ms) | predicted | memory (GB) | predicted |"]
    lines.append("|---|---|--:|--:|--:|--:|")
    for each in found:
        time_error, memory_error = each.errors
        lines.append(
            f"| {each.device} | {each.what} | {1e3 * each.step[0]:.1f} | {time_error:+.0%} "
            f"| {each.memory[0] / 1e9:.2f} | {memory_error:+.0%} |"
        )
    return "\n".join(lines) + "\n"


def measured(device: str) -> None:
    """Measure every model that the table has for a device, and print its rows."""
    import torch
    import transformers

    with MEASURED.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["device"] == device]
    out = csv.DictWriter(sys.stdout, rows[0])
    out.writeheader()
    for row in rows:
        body = config(row["model"])
        (architecture,) = body.pop("architectures")
        how = transformers.AutoConfig.for_model(**body, use_cache=False)
        mixed, dtype = row["dtype"].startswith("mixed"), row["dtype"]
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        with torch.device("cuda"):
            model = getattr(transformers, architecture)(how)
        model = model.to(torch.bfloat16 if dtype == "bf16" else torch.float32).train()
        if row["recomputed"] == "1":
            model.gradient_checkpointing_enable({"use_reentrant": False})
        net = torch.compile(model) if row["compiled"] == "1" else model
        if row["optimizer"] == "sgd":
            optimizer = torch.optim.SGD(model.parameters(), 1e-4)
        else:
            fused = row["kernels_of_update"] == "fused"
            optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=fused)
        shape = (int(row["batch"]), int(row["tokens"]))
        words = torch.randint(0, how.vocab_size, shape, device="cuda")
        for count in (5, 10):  # those before to warm up
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            begun = time.perf_counter()
            for _ in range(count):
                with torch.autocast("cuda", torch.bfloat16, enabled=mixed):
                    loss = net(input_ids=words, labels=words).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            seconds = (time.perf_counter() - begun) / count
        row = dict.fromkeys(row, "") | row | {"step_s": f"{seconds:.5g}"}
        row["allocated_bytes"] = str(torch.cuda.max_memory_allocated())
        row["reserved_bytes"] = str(torch.cuda.max_memory_reserved())
        out.writerow(row)
        del model, net, optimizer, loss
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--measure", metavar="DEVICE")
    arguments = parser.parse_args()
    if arguments.measure:
        measured(arguments.measure)
        return
    found = list(cases())
    text = table(found)
    print(text)
    if arguments.write:
        begin, end = MARKS
        page = re.sub(f"(?s){begin}.*{end}", begin + text + end, PAGE.read_text("utf-8"))
        PAGE.write_text(page, "utf-8")
    steps, memory = medians(found)
    if arguments.check and (steps > BOUND_OF_STEPS or memory > BOUND_OF_MEMORY):
        sys.exit(f"median errors {steps:.1%} and {memory:.1%}: a bound is missed")


if __name__ == "__main__":
    main()
