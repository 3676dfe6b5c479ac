"""Convolutions by the quickest algorithm beside matrix products alone: errors on measured times.

    python benchmarks/convolutions.py            print the tables (about a minute)
    python benchmarks/convolutions.py --write    write docs/convolutions.md

The measurements are two files of a folder (`--measured`, ../shared/measured unless told):
convnet_benchmarks.csv, layers and whole nets, and deepbench.csv, layers. Nothing is fitted here but
the percent of peak of the model of 2017, one number for all rows of a file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import MEASURED, ROOT, Data, Table, errors

import paleo
from paleo.core.operations import LAYER_PASSES, Convolution, Pass
from paleo.core.quantity import product
from paleo.core.units import GIB
from paleo.core.window import Axis
from paleo.costs import ConvolutionChoice
from paleo.costs.convolutions import ALGORITHMS, LIBRARIES
from paleo.costs.convolutions.libraries import offered_by_cudnn
from paleo.measure.validate import Cases, predict, statistics
from paleo.measure.validate.spellings import library_of

PAGE = ROOT / "docs" / "convolutions.md"
MIB = 2**20
#: The limit of the demo of 2017, and what is given to an algorithm where nothing is known.
WORKSPACE = 4 * GIB
#: Caffe's own, for each layer (pytorch, caffe2/operators/op_utils_cudnn.h: "Caffe sets the default
#: cudnn workspace to 8MB").
CAFFE = 8 * MIB

#: What convnet_benchmarks compares, by a part of the framework's name: the group that its rows are
#: shown in, and the library and workspace that have the algorithms which that software had; "" for
#: a product, or a direct kernel, and nothing to choose from. Where a version is not stated it is
#: the newest of that time.
SOFTWARE = (
    ("CuDNN R2", "cuDNN 2", "cudnn2", WORKSPACE),
    ("CuDNN[R2]", "cuDNN 2", "cudnn2", WORKSPACE),
    ("CuDNN[R4]", "cuDNN 4", "cudnn4", WORKSPACE),
    ("cuDNN4", "cuDNN 4", "cudnn4", WORKSPACE),
    ("torch7/cudnn.", "cuDNN in torch7, not stated", "cudnn4", WORKSPACE),
    ("cuDNN build", "cuDNN in Caffe, not stated", "cudnn4", CAFFE),
    ("fbfft", "fbfft: products, FFT", "cudnn4", WORKSPACE),
    ("neon", "neon: direct, Winograd", "cudnn5", WORKSPACE),
)
OTHERS = ("one algorithm alone", "", WORKSPACE)

#: One worker's step with cuDNN 4's own choice over the same as products, by batch: the published
#: demo of 2017 on a TITAN X, with 4 GiB of workspace (../shared/reference/paper_tables.md).
RATIOS = {
    "nin": (0.716, 0.665, 0.841, 0.651),
    "alex_v2": (0.835, 0.702, 0.817, 0.734),
    "inception_v3": (1.070, 1.107, 1.066, 1.058),
}
BATCHES = (128, 256, 512, 1024)
#: The demo's percent of peak for TensorFlow.
DEMO_PPP = 0.62


@dataclass(frozen=True)
class Judged:
    """Rows of a file with what is predicted for them, as products alone and as chosen."""

    file: str
    cases: Cases
    groups: Any
    gemm: Any
    chosen: Any
    #: Percents of peak that make the mean absolute logarithm least, for paleo2017.
    shares: tuple[float, float] = (1.0, 1.0)


def software_of(cases: Cases) -> list[tuple[str, str, int]]:
    """Return the group of each row, and the library and workspace that it is priced by."""
    found = []
    for framework, version in zip(
        cases.labels["framework"], cases.labels["library_version"], strict=True
    ):
        generation = library_of(version)
        known = next((each[1:] for each in SOFTWARE if each[0] in framework), OTHERS)
        if generation and framework in ("torch7/cudnn", "DeepBench"):
            known = (f"cuDNN {int(generation)}", f"cudnn{int(generation)}", WORKSPACE)
        found.append(known)
    return found


def judged(data: Data, file: str, model: str) -> Judged:
    """Return the convolutions and nets of a file as this cost model predicts them."""
    cases = data.file(file)
    kinds = cases.labels["kind"].astype(str)
    cases = cases.select((kinds == "convolution") | np.char.startswith(kinds, "net"))
    software = software_of(cases)
    gemm, chosen = np.full((2, len(cases)), np.nan)
    for each in sorted(set(software)):
        _, library, workspace = each
        places = np.flatnonzero([each == other for other in software])
        own = cases.select(places)
        # The model of 2017 has one product; of tiled's, the quickest that the library has.
        by = library if model == "tiled" and library else None
        gemm[places] = predict(own, model, convolutions=ConvolutionChoice(by, only_gemm=True))
        choice = ConvolutionChoice(library or None, workspace, not library)
        chosen[places] = predict(own, model, convolutions=choice)
    groups = np.array([group for group, *_ in software])
    if model != "paleo2017":
        return Judged(file, cases, groups, gemm, chosen)
    chooses = groups != OTHERS[0]
    ours, other = (_best_share(each, cases.measured, chooses) for each in (gemm, chosen))
    return Judged(file, cases, groups, gemm / ours, chosen / other, (ours, other))


def _best_share(predicted: Any, measured: Any, chooses: Any) -> float:
    """Return the share of peak with the least mean absolute logarithm, of rows with a choice."""
    known = np.isfinite(predicted) & chooses
    grid = np.arange(1, 101) / 100
    ratios = np.log(predicted[known] / measured[known])
    wrong = [np.abs(ratios - np.log(share)).mean() for share in grid]
    return float(grid[int(np.argmin(wrong))])


def _row(found: Judged, places: Any, *name: str) -> tuple[str, ...]:
    measured = found.cases.measured[places]
    gemm, chosen = (
        errors(statistics(each[places], measured)) for each in (found.gemm, found.chosen)
    )
    return (*name, gemm[0], *gemm[1:3], *chosen[1:3])


def _known(found: Judged, places: Any) -> Any:
    return places[np.isfinite(found.gemm[places]) & np.isfinite(found.chosen[places])]


COLUMNS = ("rows", "GEMM only: median", "mean", "chosen: median", "mean")


def by_software(data: Data) -> Iterator[Table]:
    """The judged table: every stratum of both files, by the software that was measured."""
    for model in ("tiled", "paleo2017"):
        rows, said = [], []
        for file in ("convnet_benchmarks", "deepbench"):
            found = judged(data, file, model)
            if model == "paleo2017":
                said.append(
                    f"{file}: {100 * found.shares[0]:.0f} % as products, "
                    f"{100 * found.shares[1]:.0f} % as chosen"
                )
            strata = found.cases.labels["stratum"].astype(str)
            dtypes = found.cases.labels["dtype"].astype(str)
            for stratum in sorted(set(strata.tolist())):
                inside = strata == stratum
                for group in sorted(set(found.groups[inside].tolist())):
                    for dtype in sorted(set(dtypes.tolist())):
                        places = np.flatnonzero(
                            inside & (found.groups == group) & (dtypes == dtype)
                        )
                        places = _known(found, places)
                        if len(places):
                            name = (file, stratum, group, dtype)
                            rows.append(_row(found, places, *name))
                chooses = inside & (found.groups != OTHERS[0])
                places = _known(found, np.flatnonzero(chooses))
                name = (file, stratum, "all with a choice", "all")
                rows.append(_row(found, places, *name))
        peak = f" Best single percent of peak: {'; '.join(said)}." if said else ""
        yield Table(
            f"{model}: the quickest algorithm beside products alone",
            ("file", "stratum", "software", "dtype", *COLUMNS),
            rows,
            f"Absolute percentage errors; workspace of up to {WORKSPACE // GIB} GiB, Caffe's of "
            f"{CAFFE // MIB} MiB.{peak}",
        )


def by_pass(data: Data) -> Iterator[Table]:
    """DeepBench's layers, by device and pass."""
    for model in ("tiled", "paleo2017"):
        found = judged(data, "deepbench", model)
        devices = found.cases.labels["device"].astype(str)
        passes = found.cases.labels["direction"].astype(str)
        single = found.cases.labels["dtype"].astype(str) == "fp32"
        rows = []
        for device in sorted(set(devices.tolist())):
            for name in ("forward", "backward_input", "backward_weight"):
                places = np.flatnonzero(single & (devices == device) & (passes == name))
                if len(places):
                    rows.append(_row(found, _known(found, places), device, name.replace("_", " ")))
        yield Table(f"{model}: DeepBench in fp32", ("device", "pass", *COLUMNS), rows)


def nets(data: Data) -> Iterator[Table]:
    """The whole nets that cuDNN 4 was measured with."""
    tiled, old = (judged(data, "convnet_benchmarks", model) for model in ("tiled", "paleo2017"))
    labels = tiled.cases.labels
    rows = []
    for place in np.flatnonzero(labels["framework"] == "torch7/cudnn").tolist():
        if tiled.groups[place] != "cuDNN 4":
            continue
        rows.append(
            (
                str(labels["network"][place]),
                str(labels["kind"][place]).removeprefix("net "),
                *(
                    f"{1e3 * seconds[place]:.1f}"
                    for seconds in (
                        tiled.cases.measured, tiled.gemm, tiled.chosen, old.gemm, old.chosen,
                    )
                ),
            )
        )  # fmt: skip
    yield Table(
        "Whole nets, torch7 with cuDNN 4 on a TITAN X (ms)",
        (
            "net", "pass", "measured", "tiled, GEMM only", "tiled, chosen",
            "paleo2017, GEMM only", "paleo2017, chosen",
        ),
        rows,
        f"paleo2017 at {100 * old.shares[0]:.0f} % of peak as products and at "
        f"{100 * old.shares[1]:.0f} % as chosen.",
    )  # fmt: skip


def ratios() -> Iterator[Table]:
    """Steps with an algorithm chosen over steps of products alone, beside cuDNN 4's own choice."""
    rows = []
    for net, theirs in RATIOS.items():
        for batch, ratio in zip(BATCHES, theirs, strict=True):
            found = [_ratio(net, batch, model) for model in ("paleo2017", "tiled")]
            rows.append((net, str(batch), f"{ratio:.3f}", *(f"{each:.3f}" for each in found)))
    yield Table(
        "A step with algorithms chosen, over one of products alone",
        ("net", "batch", "cuDNN 4's own choice (2017)", "paleo2017, cudnn4", "tiled, cudnn4"),
        rows,
        "One worker on a TITAN X, forward, backward and update, 4 GiB of workspace; paleo2017 at "
        f"{100 * DEMO_PPP:.0f} % of peak.",
    )


def _ratio(net: str, batch: int, model: str) -> float:
    plan: dict[str, Any] = {
        "batch_size": batch,
        "workers": 1,
        "scaling": "weak",
        "cost_model": model,
        "ppp_comp": DEMO_PPP if model == "paleo2017" else 1.0,
    }

    def seconds(**choice: Any) -> float:
        return float(paleo.simulate(net, **plan, **choice).runs[0].rows[0].compute)

    return seconds(conv_library="cudnn4", workspace=WORKSPACE) / seconds(use_only_gemm=True)


def algorithms() -> Iterator[Table]:
    """All algorithms, with what they take for one convolution, and who has them."""
    yield Table(
        "Algorithms",
        ("name", "what it is", "source"),
        [(f"`{each.name}`", each.summary, each.source) for each in ALGORITHMS.values()],
    )
    rows = []
    for name, algorithm in ALGORITHMS.items():
        since = [_since(name, direction) for direction in LAYER_PASSES]
        shapes = (
            _conv(d, window, stride)
            for d in LAYER_PASSES
            for window in (1, 3, 5)
            for stride in (1, 2)
        )
        on_cpus = any(name in LIBRARIES["onednn"].offers(shape) for shape in shapes)
        kind = "product" if algorithm.is_gemm else ""
        rows.append((f"`{name}`", kind, *since, "yes" if on_cpus else ""))
    yield Table(
        "Libraries",
        ("algorithm", "family", *(each.value.replace("_", " ") for each in LAYER_PASSES), "oneDNN"),
        rows,
        "From which generation of cuDNN on it is offered for a pass.",
        "`direct` of cuDNN stands for the kernels of frameworks for one channel a group. "
        "`any` is all of them, `cudnn` what the cuDNN of this machine prefers.",
    )
    example = [_conv(Pass.FORWARD, 5, 1), _conv(Pass.INPUT_GRADIENT, 4, 2)]
    for operation in example:
        rows = []
        for name, algorithm in ALGORITHMS.items():
            if not algorithm.applies(operation):
                continue
            counts = algorithm.counts(operation)
            work = counts.work
            rows.append(
                (
                    f"`{name}`",
                    f"{work.flops / 1e9:.2f}",
                    *(
                        f"{each / 2**20:.1f}"
                        for each in (work.bytes_read, work.bytes_written, counts.workspace_bytes)
                    ),
                )
            )
        axis = operation.axes[0]
        what = operation.direction.value.replace("_", " ")
        yield Table(
            f"An example: {what} of {axis.window} x {axis.window}, stride {axis.stride}",
            ("algorithm", "GFLOP", "read (MiB)", "written (MiB)", "workspace (MiB)"),
            rows,
            f"{operation.batch} images of {axis.size} x {axis.size}, {operation.in_channels} "
            f"channels to {operation.out_channels}, fp32: "
            f"{product((operation.window_elements, operation.in_channels)):,} terms a sum.",
        )


def _conv(direction: Pass, window: int, stride: int) -> Convolution:
    axes = (Axis(28, window, stride, ((window - 1) // 2,) * 2),) * 2
    return Convolution(direction, 64, axes, 96, 128, 4)


def _since(name: str, direction: Pass) -> str:
    """Return the first generation of cuDNN that offers an algorithm for any convolution."""
    depthwise = Convolution(direction, 1, (Axis(28, 3, 1, (1, 1)),) * 2, 8, 8, 4, groups=8)
    several = [
        *(_conv(direction, window, stride) for window in (1, 3, 4, 5) for stride in (1, 2)),
        depthwise,
    ]
    for generation in range(1, 10):
        if any(name in offered_by_cudnn(generation, each) for each in several):
            return str(generation)
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--measured", type=Path, default=MEASURED)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    data = Data(arguments.measured, None)
    if not data.measured.is_dir():
        print(f"{data.measured} is not there: it has the measurements", file=sys.stderr)
        return 1
    tables: list[Table] = []
    for section in (algorithms(), by_software(data), by_pass(data), nets(data), ratios()):
        for table in section:
            tables.append(table)
            print(table.markdown(), flush=True)
    if arguments.write:
        head, mark, _ = PAGE.read_text("utf-8").partition("<!-- generated -->\n")
        shown = "\n".join(table.markdown() for table in tables)
        PAGE.write_text(f"{head}{mark}\n{shown}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
