"""Fit the constants of serving frameworks' kernels to operator tables, and write their files.

    python benchmarks/fit_kernels.py                print the constants of all kernels of experts
    python benchmarks/fit_kernels.py marlin_int4    of this kernel alone
    python benchmarks/fit_kernels.py --latent       of kernels of latent attention
    python benchmarks/fit_kernels.py --encoders     of kernels that only encoders have
    python benchmarks/fit_kernels.py --steps        of FlashAttention-3 for one query
    python benchmarks/fit_kernels.py --write        write them into paleo/costs/tiled

Kernels of Hopper are fitted to rows of the H100, those of Blackwell to rows of the GB200 (of the
GB300 where the GB200 has none), and the few that neither runs to rows of the L40S, up to --rows of
each; nothing is fitted to another system. Beside the constants stand the median errors on
the rows that were fitted, on the other rows there, and on systems that were not: the package
aiconfigurator-core 0.12.0 and SciPy are needed, pip install -e ".[validate]".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import language_operators as language_tables
import numpy as np

from paleo.core.errors import PaleoError
from paleo.costs.tiled import attention_kernels, expert_kernels
from paleo.costs.tiled.kernel_files import KernelFiles
from paleo.measure.validate import Cases, join, predict
from paleo.measure.validate.kernel_fits import KernelFit, fit_kernel, sample

#: Systems of an architecture: constants are fitted to rows of the first of which a kernel has some,
#: and the others are held out.
SYSTEMS = {
    "Hopper": ("h100_sxm", "h200_sxm"),
    "Blackwell": ("gb200", "gb300", "b200_sxm", "b300_sxm"),
    "Ada": ("l40s", "rtx_pro_6000_server", "a100_sxm"),
}
#: Nothing is fitted to these, whatever kernels they have alone.
HELD_OUT = ("h200_sxm", "b200_sxm", "b300_sxm", "rtx_pro_6000_server", "a100_sxm")
#: Kernels that no device of Hopper or Blackwell runs, and those of CUTLASS that are others there
#: (TensorRT-LLM, cutlass_kernels/moe_gemm: Ampere's, without TMA); only they have Ada's constants.
OF_ADA = (
    "trtllm_xqa_mla", "triton_mla_decode", "trtllm_fmha_mla_sm80", "triton_encoder",
    "trtllm_cutlass_bf16", "trtllm_cutlass_fp8",
)  # fmt: skip
#: Products of those for one query take clocks, by warps, on any multiprocessor, whatever its units'
#: peak: that is in place of a share of the peak and of a time for each block.
BY_CLOCKS, NOT_BY_CLOCKS, CLOCKED = OF_ADA[:2], ("share", "step"), "clocked"
#: Kernels with one shape of pipeline, whatever the product, of which each multiprocessor draws so
#: many bytes a clock: that is in place of a share of the memory's rate.
DRAWING = ("flashinfer_cutlass", "marlin")


class Kind(NamedTuple):
    """A kind of kernels: its files, the constants that are fitted, its tables, its kernels.

    Without `names` they are all of those tables.
    """

    title: str
    files: KernelFiles
    free: tuple[str, ...]
    tables: tuple[str, ...]
    names: tuple[str, ...] = ()

    def constants(self, name: str) -> list[str]:
        """Return the constants of a kernel that are fitted."""
        if name in BY_CLOCKS:
            return [CLOCKED, *(each for each in self.free if each not in NOT_BY_CLOCKS)]
        if name.startswith(DRAWING):
            return ["drawn" if each == "operands" else each for each in self.free]
        return list(self.free)


EXPERTS = Kind(
    "layers of experts",
    expert_kernels.FILES,
    ("start", "fill", "share", "operands", "stream"),
    ("moe",),
)
LATENT = Kind(
    "latent attention",
    attention_kernels.FILES,
    ("start", "again", "combine", "drawn", "head", "memory", "share", "step"),
    ("context_mla", "generation_mla"),
    (
        "fa3_mla_decode", "fa3_mla_prefill", "flash_mla", "triton_mla_decode",
        "trtllm_fmha_mla", "trtllm_fmha_mla_sm80", "trtllm_gen_mla", "trtllm_gen_mla_context",
        "trtllm_xqa_mla",
    ),
)  # fmt: skip
#: Of encoders' kernels those that no table of prompts has; the others have their constants there.
ENCODERS = Kind(
    "attention of encoders",
    attention_kernels.FILES,
    ("start", "again", "exponentials", "memory", "share", "step", "unaligned", "uneven"),
    ("encoder_attention",),
    ("triton_encoder", "trtllm_fmha_sm80"),
)
#: FlashAttention-3 for one query as SGLang builds it.
STEPS = Kind(
    "attention of one query", attention_kernels.FILES, LATENT.free, ("generation_attention",),
    ("fa3_decode",),
)  # fmt: skip
#: Rows of a kernel that are fitted, and the most of which errors are told.
ROWS, MOST = 900, 20_000


def by_kernel(place: str, system: str, tables: tuple[str, ...]) -> dict[str, Cases]:
    """Return the cases of a system by the kernel that computed them."""
    found: dict[str, list[Cases]] = {}
    for _, _, cases in language_tables.cases_by_system(place, tables, (system,)):
        places: dict[str, list[np.ndarray]] = {}
        parts: Any = cases.parts  # of tables, as all of these systems' are
        for part in parts:
            name = part.letters.get("kernel") or getattr(part, "kernel", "")
            if not name:  # attention by no kernel in particular
                continue
            places.setdefault(name, []).append(part.index)
        for name, index in places.items():
            found.setdefault(name, []).append(cases.select(np.sort(np.concatenate(index))))
    return {name: join(several) for name, several in found.items()}


def median(cases: Cases) -> float:
    """Return the median error, nan of no cases."""
    errors = _errors(cases)
    return float(np.median(errors)) if len(errors) else float("nan")


class Rows(NamedTuple):
    """The rows of a kernel on an architecture: those that are fitted, others there, elsewhere.

    `system` is the first that has the kernel, `held_out` are the others.
    """

    kernel: str
    architecture: str
    system: str
    held_out: tuple[str, ...]
    fitted: Cases
    beside: Cases
    elsewhere: Cases


def rows_of(place: str, kind: Kind, names: Sequence[str] = (), most: int = ROWS) -> Iterator[Rows]:
    """Yield the rows of each kernel of a kind, or of those that are named."""
    wanted = names or kind.names
    for architecture, systems in SYSTEMS.items():
        known = [(each, by_kernel(place, each, kind.tables)) for each in systems]
        for name in sorted({name for _, each in known for name in each}):
            if (wanted and name not in wanted) or (architecture == "Ada" and name not in OF_ADA):
                continue
            (system, here), *others = [(each, of[name]) for each, of in known if name in of]
            if system in HELD_OUT:
                continue
            fitted, beside = sample(here, most)
            yield Rows(
                name, architecture, system, tuple(each for each, _ in others), fitted, beside,
                join(each for _, each in others),
            )  # fmt: skip


def worth(place: str) -> Iterator[tuple[str, str, int, int, tuple[np.ndarray, ...]]]:
    """Yield what constants as shipped are worth, by kind and architecture.

    They are the kernels, their constants, and the errors on rows that were fitted, on others of the
    same systems, and on systems of the architecture that were not: of each kernel up to `MOST`.
    """
    for kind in (EXPERTS, LATENT, ENCODERS):
        found: dict[str, list[Rows]] = {}
        for rows in rows_of(place, kind):
            found.setdefault(rows.architecture, []).append(rows)
        for architecture, several in found.items():
            errors = tuple(
                np.concatenate([each for each in parts if len(each)] or [np.empty(0)])
                for parts in zip(
                    *(map(_errors, (each.fitted, each.beside, each.elsewhere)) for each in several),
                    strict=True,
                )
            )
            constants = sum(
                len(kind.files.given(each.kernel).get(architecture, ())) for each in several
            )
            yield kind.title, architecture, len(several), constants, errors


def _errors(cases: Cases) -> np.ndarray:
    if not len(cases):
        return np.empty(0)
    cases, _ = sample(cases, MOST)
    return np.abs(predict(cases, "tiled") / cases.measured - 1.0)


def source_of(rows: Rows) -> str:
    """Return what a file says of where its constants are from."""
    system = rows.system.split("_")[0].upper()
    told = ", ".join(each.split("_")[0].upper() for each in rows.held_out)
    text = (
        f"{len(rows.fitted):,} of its rows on the {system} in aiconfigurator-core 0.12.0, by "
        "benchmarks/fit_kernels.py"
    )
    return f"{text}; none of the {told}" if told else text


def text_of(name: str, found: Mapping[str, KernelFit], sources: Mapping[str, str]) -> str:
    """Return the file of a kernel, by architecture."""
    lines = [f'name = "{name}"', "", "[sources]"]
    lines += [f'{each.lower()} = "{sources[each]}"' for each in found]
    for architecture, fit in found.items():
        lines += ["", f"[{architecture}]"]
        lines += [
            f'{each} = {{ value = {value:g}, source = "{architecture.lower()}" }}'
            for each, value in fit.constants.items()
        ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("kernels", nargs="*", help="kernels, all unless told")
    parser.add_argument("--latent", action="store_true", help="kernels of latent attention")
    parser.add_argument("--encoders", action="store_true", help="kernels of encoders alone")
    parser.add_argument("--steps", action="store_true", help="FlashAttention-3 for one query")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"most rows of a kernel ({ROWS})")
    parser.add_argument("--operators", default=language_tables.PACKAGE, help="package or folder")
    parser.add_argument("--write", action="store_true", help="write the files of constants")
    options = parser.parse_args()
    others = {LATENT: options.latent, ENCODERS: options.encoders, STEPS: options.steps}
    kind = next((each for each, is_asked in others.items() if is_asked), EXPERTS)
    files = kind.files
    done: dict[str, dict[str, KernelFit]] = {}
    sources: dict[str, dict[str, str]] = {}
    try:
        for rows in rows_of(options.operators, kind, options.kernels, options.rows):
            name, architecture = rows.kernel, rows.architecture
            found = fit_kernel(files, name, architecture, rows.fitted, kind.constants(name))
            with files.trying(name, architecture, found.constants):
                errors = (median(rows.fitted), median(rows.beside), median(rows.elsewhere))
            done.setdefault(name, {})[architecture] = found
            sources.setdefault(name, {})[architecture] = source_of(rows)
            texts = " ".join(f"{100 * each:5.1f} %" for each in errors)
            constants = " ".join(f"{key}={value:g}" for key, value in found.constants.items())
            print(f"{name:28} {architecture:10} {texts}  {constants}", flush=True)
    except PaleoError as error:
        print(error, file=sys.stderr)
        return 1
    if unknown := sorted(set(options.kernels) - set(done)):
        print(f"no rows of {', '.join(unknown)}", file=sys.stderr)
        return 1
    if options.write:
        for name, found_of in done.items():
            Path(files.folder, f"{name}.toml").write_text(
                text_of(name, found_of, sources[name]), "utf-8"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
