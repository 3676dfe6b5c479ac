"""Predictions beside published measurements: how far the cost models are from the truth.

    python benchmarks/accuracy.py                  print the tables (some minutes)
    python benchmarks/accuracy.py --write          write docs/accuracy.md and the error bands
    python benchmarks/accuracy.py --bands          print and write the error bands alone
    python benchmarks/accuracy.py --check          exit with 1 if a bound is missed: of what takes
                                                   long, by some thousand rows or not at all

The measurements are the files of a folder (`--measured`, ../shared/measured unless told) and the
operator tables of the package aiconfigurator-core 0.12.0 (`--operators`; the installed package
unless told): pip install -e ".[validate]". Either may be missing; --write and --bands need both.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import collectives as exchanged
import fit_kernels
import language_operators as language_tables
import numpy as np
from error_bands import COVERAGE, TABLE_ROWS, by_makers, figures, make_bands
from firecaffe import speedups

from paleo.core.errors import PaleoError
from paleo.costs.tiled.error_bands import known_bands
from paleo.measure.validate import (
    Cases,
    Selection,
    Statistics,
    cases_of,
    join,
    operator_cases,
    predict,
    read_measurements,
    statistics,
)
from paleo.measure.validate.crossvalidate import fit, fitted
from paleo.measure.validate.kernel_fits import sample
from paleo.measure.validate.measured import Measurement
from paleo.measure.validate.scaling import Scaled, same_submission, scaled

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "accuracy.md"
BANDS = ROOT / "paleo" / "costs" / "tiled" / "errors.toml"
MEASURED = ROOT.parent / "shared" / "measured"

#: The constants of products on matrix units.
PRODUCT = ("launch", "matrix_share", "energy", "operand_share", "load_share", "latency")
#: The values that the two constants of a device and a library generation may have.
GRID = {
    "convolution_share": (0.25, 0.4, 0.55, 0.7, 0.9, 1.15),
    "host": (0.0, 2.5e-5, 6e-5),
}
MODELS = ("tiled", "paleo2017", "roofline")


@dataclass(frozen=True)
class Table:
    """A table of the page: texts, with what is said above and below it."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    before: str = ""
    after: str = ""

    def markdown(self) -> str:
        lines = [f"### {self.title}", ""]
        if self.before:
            lines += [self.before, ""]
        lines.append("| " + " | ".join(self.columns) + " |")
        lines.append("|" + "|".join(" --- " for _ in self.columns) + "|")
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        if self.after:
            lines += ["", self.after]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Bound:
    """A figure to reach: what is said of it on the page, and whether it is reached."""

    name: str
    reached: str
    wanted: str
    is_met: bool


ERRORS = ("rows", "median", "mean", "90th", "bias")


def errors(found: Statistics | None) -> tuple[str, ...]:
    """Return count, and errors in percent, as texts."""
    if found is None or found.median is None:
        return (str(found.count if found else 0), "", "", "", "")
    assert found.mean is not None
    assert found.p90 is not None
    assert found.bias is not None
    values = (found.median, found.mean, found.p90)
    return (
        f"{found.count:,}",
        *(f"{100 * value:.1f} %" for value in values),
        f"{100 * found.bias:+.1f} %",
    )


def error(
    cases: Cases, model: str = "tiled", constants: dict[str, float] | None = None
) -> Statistics:
    return statistics(predict(cases, model, constants or {}), cases.measured)


class Data:
    """The cases, read once; `sample` rows, if not 0, of a table or of what takes long."""

    def __init__(self, measured: Path, operators: str | None, sample: int = 0) -> None:
        self.measured = measured
        self.operators = operators
        self.sample = sample
        self._read: dict[str, Cases] = {}

    def file(self, name: str) -> Cases:
        if name not in self._read:
            self._read[name] = cases_of(read_measurements(self.measured / f"{name}.csv"))
        return self._read[name]

    def rows(self, name: str) -> tuple[Measurement, ...]:
        """Return the rows of a file as they are."""
        return read_measurements(self.measured / f"{name}.csv")

    def table(self, system: str, operator: str, dtype: str, framework: str = "sglang") -> Cases:
        return operator_cases(
            self.operators or "aiconfigurator_core",
            Selection(
                systems=(system,), operators=(operator,), frameworks=(framework,), dtypes=(dtype,)
            ),
        )


def tenth(cases: Cases) -> tuple[Cases, Cases]:
    """Return a tenth of the cases at random, always the same, and the others."""
    order = np.random.default_rng(0).permutation(len(cases))
    count = len(cases) // 10
    return cases.select(np.sort(order[:count])), cases.select(np.sort(order[count:]))


# Operator tables


def products(data: Data) -> Iterator[Table | Bound]:
    """Products in bf16: fitted on a tenth of A100 and H100, carried to other devices."""
    rows = []
    for system, device in (("a100_sxm", "A100 SXM"), ("h100_sxm", "H100 SXM")):
        cases = data.table(system, "gemm", "bf16")
        few, others = tenth(cases)
        constants = fitted(few, PRODUCT)
        rows.append((device, "this tenth", *errors(error(few, constants=constants))))
        found = error(others, constants=constants)
        rows.append((device, "fitted on a tenth, the other nine", *errors(found)))
        rows.append((device, "as shipped, the other nine", *errors(error(others))))
        rows += [(device, f"{model}", *errors(error(others, model))) for model in ("roofline",)]
        yield _bound(f"bf16 products, {device}, nine tenths", found, (5, 9, 20))
    transferred = (
        ("h200_sxm", "H200 SXM", "Hopper: nothing fitted here", (7, 11, 20)),
        ("b200_sxm", "B200 SXM", "Blackwell: nothing fitted here", (7, 11, 20)),
        ("gb300", "GB300", "Blackwell: nothing fitted here", None),
        ("l40s", "L40S", "Ada: nothing fitted on any, splits of K looked at", (9, 11, 20)),
        ("gb200", "GB200", "Blackwell: fitted here", None),
        ("b300_sxm", "B300 SXM", "Blackwell: fitted here", None),
        ("rtx_pro_6000_server", "RTX PRO 6000", "Blackwell RTX: fitted here", None),
    )
    for system, device, how, wanted in transferred:
        found = error(data.table(system, "gemm", "bf16"))
        rows.append((device, how, *errors(found)))
        if wanted:
            yield _bound(f"bf16 products, {device}", found, wanted)
    yield Table(
        "Products in bf16",
        ("device", "constants", *ERRORS),
        rows,
        "`aiconfigurator-core` 0.12.0, SGLang's tables, 35,742 shapes a device.",
        "Beside it: a prototype with five constants, fitted on the same device, 7.1 % (H100) and "
        "6.4 % (A100), carried to the H200 8.1 %, the B200 13.2 %, the L40S 47 %; interpolation "
        "of the table itself, leaving one out, 4.9 % (both as their authors report).",
    )


#: Systems of the operator tables, and whether constants of their attention were fitted there.
SYSTEMS = {
    "a100_sxm": "a tenth of it", "h100_sxm": "a tenth of it", "h200_sxm": "no",
    "b200_sxm": "no", "gb200": "a tenth of it", "b300_sxm": "a tenth of it", "gb300": "no",
    "l40s": "a tenth of it", "rtx_pro_6000_server": "a tenth of it",
}  # fmt: skip
#: Systems on which products in fp8 were not looked at while their kernels were written down.
UNSEEN = ("b300_sxm", "gb300")


def serving(data: Data) -> Iterator[Table | Bound]:
    """Products in fp8, and attention, of three serving backends."""
    rows = []
    what = (
        ("gemm", "fp8", "products in fp8", 14),
        ("gemm", "fp8_block", "products in fp8, scales of blocks", 14),
        ("context_attention", "bf16", "attention, prefill", 16),
        ("generation_attention", "bf16", "attention, decode", 16),
    )
    for operator, dtype, title, wanted in what:
        for framework in ("trtllm", "sglang", "vllm"):
            for system, fitted_there in SYSTEMS.items():
                try:
                    cases = data.table(system, operator, dtype, framework)
                except PaleoError:
                    continue
                if not len(cases):
                    continue
                found = error(cases)
                device = str(cases.labels["device"][0])
                if operator == "gemm":
                    fitted_there = "no" if system in UNSEEN else "looked at"
                rows.append((title, framework, device, fitted_there, *errors(found)))
                yield _bound(f"{title}, {device} ({framework})", found, (wanted, None, None))
    yield Table(
        "Products in fp8 and fused attention",
        ("operator", "framework", "device", "fitted there", *ERRORS),
        rows,
        "`aiconfigurator-core` 0.12.0, with the constants as shipped, each operator by the kernels "
        "that its backend runs. Constants of kernels of attention are in "
        "`paleo/costs/tiled/kernels/`, each fitted on a tenth of the rows of the systems that say "
        "so; of the others, nothing. Tiles are those of public code. Of kernels around products in "
        "fp8 a few constants were read off tables of the systems that say so.",
    )


def language(data: Data) -> Iterator[Table | Bound]:
    """Layers of experts, latent attention, encoders and quantization, of serving backends."""
    rows, types = [], []
    for title, tables in language_tables.TABLES.items():
        parts: list[tuple[str, str, Any, Any, Any]] = []
        for system, framework, cases in language_tables.cases_by_system(
            data.operators or language_tables.PACKAGE, tables, sample=data.sample
        ):
            predicted = predict(cases, "tiled", {})
            found = statistics(predicted, cases.measured)
            fitted_there = language_tables.SYSTEMS[system]
            rows.append((title, framework, system, fitted_there, *errors(found)))
            parts.append((system, framework, predicted, cases.measured, cases.labels["precision"]))
        for system in language_tables.SYSTEMS:
            own = [part for part in parts if part[0] == system]
            if own:
                name = f"{title}, {system}"
                yield _bound(name, _of_parts(own), (language_tables.WANTED, None, None))
        if not data.sample:  # in which tables do not weigh as much as they have rows
            yield _bound(f"{title}, all", _of_parts(parts), (language_tables.WANTED, None, None))
        words = np.concatenate([part[4] for part in parts])
        predicted = np.concatenate([part[2] for part in parts])
        measured = np.concatenate([part[3] for part in parts])
        for word in sorted(set(words.tolist())):
            mask = words == word
            types.append((title, word, *errors(statistics(predicted[mask], measured[mask]))))
        types.append((title, "all", *errors(_of_parts(parts))))
    yield Table(
        "Operators of language models",
        ("operator", "framework", "system", "fitted there", *ERRORS),
        rows,
        "`aiconfigurator-core` 0.12.0, as shipped, by the kernels that each framework names. "
        "`benchmarks/fit_kernels.py` fits constants of a kernel to up to 900 rows of the H100, of "
        "the GB200 on Blackwell, and of the L40S for the few that neither runs "
        "(`paleo/costs/tiled/expert_constants/`, `paleo/costs/tiled/kernels/`); those of scans and "
        "selections (`scan_constants/`, `selection_constants/` beside them) are of the H100 and "
        "the GB200; nothing is fitted to the other systems. Where an architecture has none, those "
        "of Hopper hold. Most kernels of encoders' attention are those of the table before. "
        "Constants of kernels that quantize, and of graphs that a host replays, are of the H100. "
        "Modules are composed of their operations: those of latent attention with no constant of "
        "their own, those of sparse attention with the kernels of scores, selections and "
        "attention, to whose starts the small kernels of a module count.",
    )
    yield Table(
        "Operators of language models by element type",
        ("operator", "element type in the table", *ERRORS),
        types,
        "The same rows, of all systems and frameworks.",
    )


def kernel_fits(data: Data) -> Iterator[Table | Bound]:
    """Return what constants of kernels are worth: on rows fitted, on others, on other systems."""
    worth = []
    for title, architecture, kernels, constants, errors_of in fit_kernels.worth(
        data.operators or language_tables.PACKAGE
    ):
        texts = [
            f"{len(each):,}: {100 * np.median(each):.1f} %" if len(each) else ""
            for each in errors_of
        ]
        worth.append((title, architecture, str(kernels), str(constants), *texts))
    yield Table(
        "What constants of kernels are fitted to",
        (
            "kernels",
            "architecture",
            "kernels with constants",
            "constants",
            "rows fitted: median",
            "others of that system",
            "other systems",
        ),
        worth,
        "Medians of rows that a fit has seen, and apart from them of rows that it has not, up to "
        "20,000 of a kernel.",
    )


def _of_parts(parts: Sequence[tuple[str, str, Any, Any, Any]]) -> Statistics:
    return statistics(
        np.concatenate([part[2] for part in parts]), np.concatenate([part[3] for part in parts])
    )


# Published measurements


#: Percent of the median that are wanted of a source's operators of a kind and type, on any card.
WANTED = {
    ("neusight_ops", "gemm", "fp32"): 8,
    ("neusight_ops", "bmm", "fp32"): 12,
    ("deepbench", "recurrent", "fp32"): 15,
    ("deepbench", "recurrent", "fp16"): 15,
}


def operators(data: Data) -> Iterator[Table | Bound]:
    """Operators of DeepBench, NeuSight, Vidur, LLMCompass."""
    for source, title in (
        ("deepbench", "DeepBench"),
        ("neusight_ops", "NeuSight's operators"),
        ("vidur_ops", "Vidur's operators"),
        ("llmcompass", "LLMCompass' operators"),
    ):
        cases = data.file(source)
        rows = []
        for device in _values(cases, "device"):
            own = cases.where(device=device)
            found = error(own)
            rows.append((device, "all", "", *errors(found)))
            if source != "llmcompass":
                most = 13 if device.startswith("P100") else 15
                yield _bound(f"{title}, {device}", found, (most, None, None))
            for kind in _values(own, "kind"):
                for dtype in _values(own, "dtype"):
                    part = own.where(kind=kind, dtype=dtype)
                    if not len(part):
                        continue
                    found = error(part)
                    rows.append((device, kind, dtype, *errors(found)))
                    wanted = WANTED.get((source, kind, dtype))
                    if wanted:
                        name = f"{title}, {kind}, {dtype}, {device}"
                        yield _bound(name, found, (wanted, None, None))
        yield Table(title, ("device", "operator", "dtype", *ERRORS), rows, "As shipped.")


def held_out(data: Data) -> Iterator[Table]:
    """What the constants of an architecture are worth on shapes that they were not fitted to."""
    rows = []
    of_kind = {
        "gemm": ("launch", "vector_share", "memory_share"),
        "bmm": ("launch", "vector_share", "memory_share"),
        "convolution": ("convolution_share", "launch", "memory_share"),
        "recurrent": ("step", "launch"),
        "stream": ("launch", "memory_share"),
    }
    cases = join([data.file("deepbench"), data.file("neusight_ops")]).where(dtype="fp32")
    for device in _values(cases, "device"):
        for kind, names in of_kind.items():
            part = cases.where(device=device, kind=kind)
            if len(part) < 30:
                continue
            found = fit(part, names, split="shape", folds=3, most=200)
            rows.append(
                (
                    device,
                    kind,
                    ", ".join(names),
                    *errors(found.in_sample)[:3],
                    *errors(found.held_out)[1:4],
                )
            )
    yield Table(
        "Refitted for each kind of operation: in-sample and held out",
        (
            "device",
            "kind",
            "constants",
            "rows",
            "in-sample median",
            "mean",
            "held-out median",
            "mean",
            "90th",
        ),
        rows,
        "fp32, three folds by shape. What is shipped has one set of constants an architecture "
        "for all kinds; this says how much that costs.",
    )


SOURCES = (
    "convnet_benchmarks", "caffe2_convnet", "cnn_benchmarks", "u39kun", "ryujaehun", "lambda",
    "mxnet_perf", "tf_cnn_benchmarks", "nvidia_dle", "dlperf", "neusight_e2e",
)  # fmt: skip


def _of_nets(data: Data, source: str) -> Cases:
    """Return passes and steps of nets on one device; of a source that compares libraries, cuDNN's.

    What predictions stand for is the maker's library.
    """
    cases = by_makers(data.file(source))
    return cases.select(
        (cases.labels["n_devices"].astype(str) == "1")
        & np.char.startswith(cases.labels["kind"].astype(str), "net")
    )


def precisions(data: Data) -> Iterator[Table | Bound]:
    """Nets on one GPU by element type, by source and all rows together."""
    rows = []
    for title, dtypes, wanted in (
        ("fp32", ("fp32",), 9),
        ("halves and TF32", ("fp16", "bf16", "tf32", "mixed_fp16", "mixed_bf16"), 15),
    ):
        every = []
        for source in (*SOURCES, "more/timm"):
            cases = _of_nets(data, source).where(dtype=dtypes)
            kinds = [cases.devices[name].kind for name in cases.labels["device"].tolist()]
            cases = cases.select(np.array([kind == "gpu" for kind in kinds], bool))
            if len(cases):
                rows.append((title, source, *errors(error(cases))))
                every.append(cases)
        found = error(join(every))
        rows.append((title, "all", *errors(found)))
        yield _bound(f"nets, one GPU, {title}", found, (wanted, None, None))
    yield Table(
        "Nets on one GPU by element type",
        ("", "source", *ERRORS),
        rows,
        "As shipped. Of convnet_benchmarks the stacks of cuDNN.",
    )


def nets(data: Data) -> Iterator[Table | Bound]:
    """Steps and passes of nets on one GPU."""
    rows = []
    for source in SOURCES:
        cases = _of_nets(data, source)
        plain = predict(cases, "tiled")
        shipped = statistics(plain, cases.measured)
        stacks, names = _stacks(cases), cases.labels["network"].astype(str)
        grid = _grid(cases)
        wrong = np.abs(np.log(grid / cases.measured))
        moved = np.abs(np.log(grid / plain))
        inside, outside = np.full((2, len(cases)), np.nan)
        for stack in set(stacks.tolist()):
            own = stacks == stack
            away = moved[:, own]
            inside[own] = grid[_best(wrong[:, own], away)][own]
            for net in set(names[own].tolist()):
                left_out = own & (names == net)
                others = own & ~left_out
                if others.any():
                    outside[left_out] = grid[_best(wrong[:, others], away)][left_out]
        fits = (statistics(inside, cases.measured), statistics(outside, cases.measured))
        counts = (len(set(stacks.tolist())), len(set(names.tolist())))
        shown = (errors(shipped)[:2], errors(fits[0])[1:2], errors(fits[1])[:4])
        rows.append((source, *map(str, counts), *(text for texts in shown for text in texts)))
        yield _bound(f"{source}, one GPU, held out by net", fits[1], (12, None, None))
    yield Table(
        "Nets on one GPU, by what a stack's other nets tell",
        (
            "source", "stacks", "nets", "rows", "as shipped: median",
            "fitted: in-sample median", "held out: rows", "median", "mean", "90th",
        ),
        rows,
        "A stack is a device with a framework and its library's version, in one precision. Each "
        "has two constants, `convolution_share` and `host` (the best of "
        f"{len(GRID['convolution_share'])} x {len(GRID['host'])} values by the mean absolute "
        "logarithm); held out is the net: both constants are of the stack's other nets.",
        "Beside it: Habitat 11.8 %, of nets that were measured on another GPU first.",
    )  # fmt: skip


#: CPUs among the devices of timm's rows, of which nothing was fitted.
CPUS = ("CORE_I7_12700H",)


def timm(data: Data) -> Iterator[Table | Bound]:
    """Image nets of timm, by card, memory format and compilation, and by family."""
    cases = data.file("more/timm")
    if not len(cases):
        return
    labels = {key: cases.labels[key].astype(str) for key in cases.labels}
    ways = np.where(labels["compiled"] == "yes", "compiled", labels["memory_format"])
    families = np.array([_family(name) for name in labels["network"]])
    predicted = predict(cases, "tiled")

    def found(keep: Any) -> Statistics:
        return statistics(predicted[keep], cases.measured[keep])

    rows, of_families = [], []
    above: list[bool] = []
    kinds = {*zip(labels["direction"], labels["device"], ways, strict=True)}
    for direction, device, way in sorted(kinds):
        keep = (labels["direction"] == direction) & (labels["device"] == device) & (ways == way)
        nets = str(len(set(labels["network"][keep])))
        rows.append((direction, device, way, nets, *errors(found(keep))))
        most = 20 if device in CPUS else 9 if direction == "train" else 11
        yield _bound(f"timm, {direction}, {device}, {way}", found(keep), (most, None, None))
    grouped = {*zip(labels["direction"], ways, families, strict=True)}
    for direction, way, family in sorted(grouped):
        keep = (labels["direction"] == direction) & (ways == way) & (families == family)
        count = len(set(labels["network"][keep]))
        if count >= 5:
            of_families.append((direction, way, family, str(count), *errors(found(keep))))
            above.append((found(keep).median or 0.0) > 0.2)
    yield Bound(
        f"timm, families of five nets or more that are off by more than 20 %, of {len(above)}",
        str(sum(above)), "0", not any(above),
    )  # fmt: skip
    yield Table(
        "Image nets of timm",
        ("", "device", "memory format, or compiled", "nets", *ERRORS),
        rows,
        "Rows of the nets that the installed timm builds with as many parameters, as shipped.",
    )
    yield Table(
        "Image nets of timm by family",
        ("", "memory format, or compiled", "family", "nets", *ERRORS),
        of_families,
        "A family is a module of `timm.models`, with five nets or more.",
    )


def _family(network: str) -> str:
    """Return the module of timm that has a net, under the name that it has today."""
    from timm.models import _registry as registry

    name = network.removeprefix("timm:")
    now = registry._deprecated_models.get(name, name) or name
    return str(registry._model_to_module.get(now.partition(".")[0], ""))


def mlperf(data: Data) -> Iterator[Table | Bound]:
    """Image nets of MLPerf Training on one node: a device's share of the most tuned stacks."""
    cases = data.file("more/mlperf").where(network="resnet50_v1_5", stack="tuned")
    eight = cases.labels["n_devices"].astype(int) <= 8
    cases = cases.select(eight)
    devices = _values(cases, "device")
    rows = [(device, *errors(error(cases.where(device=device)))) for device in devices]
    rows.append(("all", *errors(error(cases))))
    yield _bound("MLPerf, ResNet-50 on one node", error(cases), (12, None, None))
    yield Table(
        "ResNet-50 of MLPerf Training, up to eight devices",
        ("device", *ERRORS),
        rows,
        "As the tuned stack that they are (`--framework=tuned`): fused, channels last, the host "
        "hidden. Rows that say no element type are taken to compute in halves.",
    )


#: Sources of training steps on 2 GPUs and more of one machine, beside those of one.
SCALING = ("tf_cnn_benchmarks", "lambda", "nvidia_dle", "dlperf")
SCALED_ERRORS = (
    "rows", "given: median", "mean", "90th", "bias", "nothing measured: median", "mean", "90th",
    "bias",
)  # fmt: skip


def scaling(data: Data) -> Iterator[Table | Bound]:
    """Training steps of several devices: given those of the fewest, and with nothing measured."""
    every: list[Scaled] = []
    rows = []
    for source in SCALING:
        found = [each for each in scaled(data.rows(source)) if each.given is not None]
        every += found
        rows += [_scaling_row(source, "all", found)]
        for workers in sorted({each.row.n_devices for each in found}):
            some = [each for each in found if each.row.n_devices == workers]
            rows.append(_scaling_row(source, str(workers), some))
    rows.append(_scaling_row("all", "all", every))
    yield _bound("scaling, given one GPU's rate", given_errors(every), (4, None, None))
    yield _bound("scaling, nothing measured", alone_errors(every), (12, None, None))
    yield Table(
        "Training steps of several GPUs",
        ("source", "GPUs", *SCALED_ERRORS),
        rows,
        "Steps on 2 to 8 GPUs of one machine. Given is the measured step of one GPU in the same "
        "table: computation takes as many times as long as predicted as it did there. Exchanges "
        "are those of the framework (`paleo/cluster/exchange.py`) over the tiers of the machine, "
        "and a step waits for the slowest of its workers, whose steps differ by 3 % "
        "(`paleo/cluster/frameworks.py`), the one constant that was read off these rows.",
    )  # fmt: skip
    submissions = list(scaled(data.rows("more/mlperf"), alike=same_submission))
    given = [each for each in submissions if each.given is not None]
    nets = sorted({each.row.network for each in submissions})
    rows = [
        _scaling_row(net, "all", [each for each in submissions if each.row.network == net])
        for net in nets
    ]
    for least, most in ((2, 8), (9, 64), (65, 1024), (1025, 20000)):
        some = [each for each in submissions if least <= each.row.n_devices <= most]
        rows.append(_scaling_row("all", f"{least:,} to {most:,}", some))
    rows.append(_scaling_row("all", "all", submissions))
    yield _bound(
        "MLPerf, given a submitter's smallest system", given_errors(given), (8, None, None)
    )
    yield _bound("MLPerf, nothing measured", alone_errors(submissions), (25, None, None))
    yield Table(
        "MLPerf Training on clusters",
        ("net", "devices", *SCALED_ERRORS),
        rows,
        "Given is the smallest system of the same submitter, round, framework and device. "
        "ResNet-50's gradients are exchanged beside the backward pass, BERT's after it (apex's "
        "DistributedFusedLAMB), both in halves; of BERT's 512 tokens half are padding, which is "
        "taken out or filled with others. Products of the Transformer Engine in fp8 are predicted "
        "in halves. Times of BERT up to round 2.0 have evaluation in them.",
    )  # fmt: skip


def collectives(data: Data) -> Iterator[Table | Bound]:
    """NCCL's collectives and kernels of serving frameworks, in tables and in published files."""
    tables = data.operators or exchanged.PACKAGE
    rows = []
    for system, most in exchanged.SYSTEMS.items():
        cases = exchanged.table(tables, system, "nccl")
        yield _bound(f"NCCL, {system}", error(cases), (most, None, None))
        rows.append((system, "all", *errors(error(cases))))
        for kind in _values(cases, "network"):
            own = cases.where(network=kind)
            rows.append((system, kind.removeprefix("op:"), *errors(error(own))))
    for system in exchanged.SYSTEMS:
        cases = exchanged.short(exchanged.table(tables, system, "custom_allreduce"))
        name = f"kernels of one's own, {system}"
        yield _bound(name, error(cases), (exchanged.OF_KERNELS, None, None))
        rows.append((system, "kernels of serving frameworks", *errors(error(cases))))
    files = [name for name in exchanged.FILES if (data.measured / f"{name}.csv").is_file()]
    for name in files:
        cases = exchanged.rows_of(data.measured, name)
        yield _bound(f"collectives, {name}", error(cases), (exchanged.OF_FILES, None, None))
        rows.append((name, "all", *errors(error(cases))))
    yield Table(
        "Collectives",
        ("system or file", "collective", *ERRORS),
        rows,
        "Constants are fitted to A100 and H100, and on PCIe to L40S and RTX PRO 6000; the others "
        "are predicted ([how](collectives.md)). Kernels are those in a CUDA graph, of messages "
        "below 8 MiB.",
    )


def firecaffe(data: Data) -> Iterator[Table | Bound]:
    """FireCaffe's speedups from one setting."""
    rows = []
    for trained, speedup in speedups():
        error = speedup / trained.speedup - 1
        name = f"{trained.net}, batch {trained.batch:,}, {trained.workers} GPUs"
        rows.append((name, f"{trained.speedup:g}", f"{speedup:.1f}", f"{100 * error:+.0f} %"))
        reached = f"{100 * abs(error):.0f} %"
        yield Bound(f"FireCaffe, {name}", reached, "12 %", abs(error) <= 0.12)
    yield Table(
        "FireCaffe's speedups",
        ("training", "printed", "predicted", "difference"),
        rows,
        "Whole trainings on nodes of one K20X on Cray Gemini, over one GPU with Caffe. All from "
        "one setting, in `benchmarks/firecaffe.py`: `--cluster=firecaffe --cost_model=roofline "
        "--ppp_comp=0.25 --ppp_comm=0.5 --schemes=TreeAllReduce --no_overlap`. Both shares were "
        "read off these five rows. GoogLeNet has its auxiliary classifiers.",
    )


def given_errors(found: Sequence[Scaled]) -> Statistics:
    """Return the errors of those that have a base, given it."""
    given = [each for each in found if each.given is not None]
    return statistics(
        np.array([each.given for each in given], float),
        np.array([each.measured for each in given], float),
    )


def alone_errors(found: Sequence[Scaled]) -> Statistics:
    """Return the errors with nothing measured."""
    return statistics(
        np.array([each.alone for each in found], float),
        np.array([each.measured for each in found], float),
    )


def _scaling_row(source: str, workers: str, found: Sequence[Scaled]) -> tuple[str, ...]:
    given, alone = errors(given_errors(found)), errors(alone_errors(found))
    count = given[0] if given[0] == alone[0] else f"{given[0]}, {alone[0]}"
    return (source, workers, count, *given[1:], *alone[1:])


def _grid(cases: Cases) -> Any:
    """Return predictions for every point of GRID, points x cases."""
    points = itertools.product(*GRID.values())
    return np.array(
        [predict(cases, "tiled", dict(zip(GRID, each, strict=True))) for each in points]
    )


def _best(wrong: Any, moved: Any) -> int:
    """Return the point with the least mean error; of points x cases, as logarithms.

    Of several that the cases cannot tell apart, as if no net has a convolution, it is the one by
    which predictions have `moved` least from those as shipped.
    """
    mean = np.nanmean(wrong, axis=1)
    alike = mean <= mean.min() + 1e-9
    return int(np.where(alike, np.nanmean(moved, axis=1), np.inf).argmin())


def _stacks(cases: Cases) -> Any:
    keys = ("device", "framework", "library_version", "dtype")
    return np.array(
        [
            " / ".join(map(str, values))
            for values in zip(*(cases.labels[key].tolist() for key in keys), strict=True)
        ]
    )


def peers(data: Data) -> Iterator[Table]:
    """What other tools predict of the same rows."""
    import csv

    cases = data.file("neusight_e2e")
    devices = dict(zip(cases.ids.tolist(), cases.labels["device"].tolist(), strict=True))
    ours = dict(zip(cases.ids.tolist(), predict(cases, "tiled") / cases.measured - 1, strict=True))
    by_peer: dict[str, list[tuple[str, float]]] = {}
    with (data.measured / "peer_predictions_neusight.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            by_peer.setdefault(row["peer"], []).append((row["row_id"], float(row["rel_error"])))
    rows, by_device = [], []
    for peer, found in sorted(by_peer.items()):
        both = [
            (devices[row], abs(theirs), abs(ours[row]))
            for row, theirs in found
            if row in ours and np.isfinite(ours[row])
        ]
        for device in ["", *sorted({device for device, _, _ in both})]:
            pairs = [pair[1:] for pair in both if device in ("", pair[0])]
            if not pairs:
                continue
            theirs, own = np.array(pairs).T
            texts = (
                *(f"{100 * np.median(x):.1f} %" for x in (theirs, own)),
                *(f"{100 * np.mean(x):.1f} %" for x in (theirs, own)),
            )
            if device:
                line = (peer, device, str(len(pairs)), *texts)
                by_device.append((float(np.median(own) - np.median(theirs)), line))
            else:
                rows.append((peer, str(len(found)), str(len(both)), *texts))
    yield Table(
        "Transformers in fp32, beside other tools",
        (
            "tool",
            "its rows",
            "rows of both",
            "its median",
            "Paleo's median",
            "its mean",
            "Paleo's mean",
        ),
        rows,
        "NeuSight's end-to-end measurements. Paleo's constants have none of these rows.",
    )
    yield Table(
        "The same by device",
        ("tool", "device", "rows", "its median", "Paleo's median", "its mean", "Paleo's mean"),
        [line for _, line in sorted(by_device, reverse=True)],
        "Where Paleo is worst beside the other first.",
    )


#: Devices of NeuSight's nets of which there is no row of an operator, so that none is fitted on.
UNSEEN_OF_NETS = ("MI100", "P100_PCIE", "P4")


def unseen(data: Data) -> Iterator[Table]:
    """Transformers on devices that no constant has seen, and on the others."""
    cases = data.file("neusight_e2e")
    on = np.array(cases.labels["device"])
    is_unseen = np.isin(on, UNSEEN_OF_NETS)
    parts = [("not seen, all", is_unseen), *((name, on == name) for name in UNSEEN_OF_NETS)]
    parts.append(("others", ~is_unseen))
    yield Table(
        "Transformers in fp32, on devices that no constant has seen",
        ("device", *ERRORS),
        [(name, *errors(error(cases.select(np.flatnonzero(part))))) for name, part in parts],
        "NeuSight's end-to-end measurements; the others have rows of operators, and none of nets.",
    )


def models(data: Data) -> Iterator[Table | Bound]:
    """The cost models side by side, on the rows that all of them predict."""
    cases = join(
        [data.file(name) for name in ("deepbench", "neusight_ops", *SOURCES, "neusight_e2e")]
    )
    if data.sample:
        cases, _ = sample(cases, data.sample // 2)  # each is predicted three times
    predicted = {model: predict(cases, model) for model in MODELS}
    known = np.all([np.isfinite(each) for each in predicted.values()], axis=0)
    kinds = cases.labels["kind"].astype(str)
    rows = []
    for kind in [*sorted(set(kinds[known].tolist())), "all"]:
        places = np.flatnonzero(known & ((kinds == kind) | (kind == "all")))
        found = {m: statistics(predicted[m][places], cases.measured[places]) for m in MODELS}
        rows.append(
            (kind, f"{len(places):,}", *(text for m in MODELS for text in errors(found[m])[1:3]))
        )
        own, old = found["tiled"].median, found["paleo2017"].median
        assert own is not None
        assert old is not None
        worse = own <= old + (0.02 if kind != "all" else -0.05)
        yield Bound(
            f"tiled beside paleo2017, {kind}", f"{100 * own:.1f} %", f"{100 * old:.1f} %", worse
        )
    yield Table(
        "The cost models side by side",
        ("kind", "rows", *(f"{m}: {what}" for m in MODELS for what in ("median", "mean"))),
        rows,
        "Rows that all three predict, with the constants as shipped, `ppp_comp` 1.",
    )


# Error bands


def error_bands(data: Data) -> tuple[Table, list[Bound], str]:
    """Return the page's table of bands, how well they hold, and the file that ships them."""
    found = make_bands(data, SOURCES, tuple(SYSTEMS))
    totals = [
        (
            held.name, f"{held.rows:,}", "", "", "", held.percent,
            f"{100 * held.of_sources:.0f} %",
        )
        for held in found.totals
    ]  # fmt: skip
    table = Table(
        "Error bands",
        (
            "cases", "rows", "sources", "low", "high", "inside, sources left out",
            "each source counted once",
        ),
        [*((*row, "") for row in found.table()), *totals],
        f"{100 * COVERAGE:.0f} % of cases are to be between these. A band is of the cases that its "
        "line says, each source counted the same, and as wide as sources left out ask for; what is "
        "not said may be any. "
        "Where there are too few cases, the next wider line is taken. Whether that holds of others "
        "is tried by leaving out sources (of kinds with fewer than four, a source's devices): of "
        "the rows of each, how many are inside of the bands that would be there without it. Of "
        "convnet_benchmarks, which compares libraries, only rows of cuDNN count; of the operator "
        f"tables {TABLE_ROWS:,} rows each, at random.",
    )  # fmt: skip
    bounds = [Bound(*figure) for figure in figures(found)]
    return table, bounds, found.file(known_bands())


# The page


def _values(cases: Cases, label: str) -> list[str]:
    return sorted(set(cases.labels[label].tolist()))


def _bound(name: str, found: Statistics, wanted: tuple[float | None, ...]) -> Bound:
    """Return whether median, mean and 90th percentile are within so many percent."""
    pairs = [
        (value, most)
        for value, most in zip((found.median, found.mean, found.p90), wanted, strict=True)
        if most is not None
    ]
    reached = ", ".join(f"{100 * value:.1f} %" if value is not None else "-" for value, _ in pairs)
    said = ", ".join(f"{most:g} %" for _, most in pairs)
    met = all(value is not None and 100 * value <= most for value, most in pairs)
    return Bound(name, reached, said, met)


def unpredicted(data: Data) -> Table:
    """Which rows of the published measurements are not predicted, and why."""
    rows = []
    for path in sorted(data.measured.rglob("*.csv")):
        name = path.relative_to(data.measured).with_suffix("").as_posix()
        try:
            cases = data.file(name)
        except PaleoError:
            continue
        counts: dict[str, int] = {}
        for each in cases.unpredicted:
            counts[each.reason] = counts.get(each.reason, 0) + each.count
        reasons = sorted(counts.items(), key=lambda item: -item[1])
        said = "; ".join(f"{reason} ({count})" for reason, count in reasons[:3])
        more = len(reasons) - 3
        rows.append(
            (
                name,
                str(len(cases)),
                str(sum(counts.values())),
                said + (f"; {more} more" if more > 0 else ""),
            )
        )
    return Table(
        "Rows that are not predicted",
        ("file", "predicted", "not predicted", "most frequent reasons"),
        rows,
        "Every row is accounted for; `paleo validate FILE --unpredicted` lists them.",
    )


Section = Callable[[Data], Iterator[Table | Bound]]
#: Of the operator tables, of the published rows, and of those what makes no fits to nets.
TABLES: tuple[Section, ...] = (products, serving, language, kernel_fits, collectives)
PUBLISHED: tuple[Section, ...] = (
    operators, held_out, precisions, nets, timm, mlperf, scaling, firecaffe, peers, unseen, models,
)  # fmt: skip
QUICK: tuple[Section, ...] = (operators, peers, unseen, models)
#: What --check leaves out of the operator tables, and how many rows of a table it takes.
LONG: tuple[Section, ...] = (kernel_fits,)
SAMPLE = 6_000
#: What is known to be missed of what --check makes, and said so on the page: how names begin.
MISSED = (
    "bf16 products, B200", "bf16 products, L40S", "collectives, llmcompass",
    *language_tables.MISSED,
)  # fmt: skip


#: What is asked of Paleo, and how the names of the figures that answer it begin.
ASKED = (
    ("matrix products in bf16", "bf16 products"),
    ("matrix products in fp8, with the kernels that quantize", "products in fp8"),
    ("attention of prompts, by the kernel of a serving backend", "attention, prefill"),
    ("attention of a step of decoding", "attention, decode"),
    ("layers of experts, by the kernel of a serving backend", "layers of experts"),
    ("latent attention and its products", "latent attention"),
    ("modules of latent attention", "modules of latent attention"),
    ("linear attention", "linear attention"),
    ("modules of sparse attention, prompts", "sparse attention, prefill"),
    ("modules of sparse attention, steps", "sparse attention, decode"),
    ("single kernels of sparse attention", "sparse attention, single kernels"),
    ("attention of encoders", "attention of encoders"),
    ("kernels that quantize", "quantization"),
    ("products, convolutions and recurrent layers of 2016 to 2019", "DeepBench"),
    ("fp32 products and pointwise operators", "NeuSight's operators"),
    ("nets of 2014 to 2022 on one GPU", "nets, one GPU"),
    ("training steps of image nets in PyTorch, mixed precision", "timm, train"),
    ("inference of image nets in PyTorch, mixed precision", "timm, inference, RTX"),
    ("inference of image nets on a CPU of which nothing was measured", "timm, inference, CORE"),
    ("ResNet-50 on the most tuned stacks", "MLPerf, ResNet-50"),
    ("steps on several GPUs, given the step on one", "scaling, given"),
    ("steps on several GPUs", "scaling, nothing"),
    ("steps on clusters of MLPerf, given a smaller one", "MLPerf, given"),
    ("steps on clusters of MLPerf", "MLPerf, nothing"),
    ("collectives of NCCL", "NCCL, "),
    ("all-reduces of serving frameworks", "kernels of one's own"),
    ("collectives of other publications", "collectives, "),
)


def expectations(bounds: Sequence[Bound]) -> Table:
    """Return what to expect by what is asked: the least and the largest median of its figures."""
    rows = []
    for asked, begin in ASKED:
        own = [b.reached.split()[0] for b in bounds if b.name.startswith(begin)]
        if own:
            medians = sorted(map(float, own))
            ends = dict.fromkeys(f"{each:.0f}" for each in (medians[0], medians[-1]))
            rows.append((asked, f"{' to '.join(ends)} %", str(len(own))))
    return Table(
        "What to expect",
        ("asked", "off by, in the median", "kinds of case below"),
        rows,
        "Half of the predictions of a kind are nearer to what was measured than this.",
    )


def reached(bounds: Sequence[Bound]) -> Table:
    """Return what is reached of the figures that are wanted."""
    return Table(
        "Figures to reach",
        ("what", "reached", "wanted", ""),
        [(b.name, b.reached, b.wanted, "" if b.is_met else "missed") for b in bounds],
        "Median, mean and 90th percentile of the absolute percentage error, as far as they are "
        "wanted; of error bands the share of rows inside, their sources left out.",
    )


def write_bands(data: Data) -> int:
    """Print the error bands and how well they hold, and write their file."""
    try:
        table, bounds, file = error_bands(data)
    except PaleoError as error:
        print(error, file=sys.stderr)
        return 1
    print(table.markdown())
    print(reached(bounds).markdown())
    BANDS.write_text(file, "utf-8")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--measured", type=Path, default=MEASURED)
    parser.add_argument("--operators")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--bands", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    data = Data(arguments.measured, arguments.operators, SAMPLE if arguments.check else 0)
    has_files = data.measured.is_dir()
    try:
        data.table("h100_sxm", "gemm", "bf16")
        has_tables = True
    except PaleoError as found:
        print(f"operator tables: {found}", file=sys.stderr)
        has_tables = False
    if (arguments.write or arguments.bands) and not (has_files and has_tables):
        print("--write and --bands need the measurements and the operator tables", file=sys.stderr)
        return 1
    if arguments.bands:
        return write_bands(data)
    published = QUICK if arguments.check else PUBLISHED
    of_tables = [section for section in TABLES if not (arguments.check and section in LONG)]
    tables: list[Table] = []
    bounds: list[Bound] = []
    for section in (*(of_tables if has_tables else ()), *(published if has_files else ())):
        for part in section(data):
            if isinstance(part, Table):
                tables.append(part)
                print(part.markdown(), flush=True)
            else:
                bounds.append(part)
    if has_files:
        tables.append(unpredicted(data))
        print(tables[-1].markdown())
    if has_files and has_tables and not arguments.check:
        try:
            bands_table, of_bands, file = error_bands(data)
        except PaleoError as error:  # timm is not there
            print(f"no error bands: {error}", file=sys.stderr)
            return 1
        tables.append(bands_table)
        bounds += of_bands
        print(bands_table.markdown())
        if arguments.write:
            BANDS.write_text(file, "utf-8")
    summary = reached(bounds)
    print(summary.markdown())
    if arguments.write:
        head, mark, _ = PAGE.read_text("utf-8").partition("<!-- generated -->\n")
        first = expectations(bounds)
        shown = "\n".join(table.markdown() for table in (first, summary, *tables))
        PAGE.write_text(f"{head}{mark}\n{shown}", "utf-8")
    worse = [b for b in bounds if not b.is_met and not b.name.startswith(MISSED)]
    for each in worse if arguments.check else ():
        print(f"{each.name}: {each.reached}, wanted {each.wanted}", file=sys.stderr)
    return 1 if arguments.check and worse else 0


if __name__ == "__main__":
    sys.exit(main())
