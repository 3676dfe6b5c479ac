"""By which algorithm convolutions are to be priced: the value that a Target carries."""

from __future__ import annotations

from typing import Any

from paleo.core.checks import checked_bytes
from paleo.core.errors import Mistakes, SettingError
from paleo.core.frozen import dataclass
from paleo.core.units import scale_for

#: How images can lie in memory, as PyTorch calls it: N, C, H, W, or N, H, W, C.
CONTIGUOUS, CHANNELS_LAST = "contiguous", "channels_last"
MEMORY_FORMATS = (CONTIGUOUS, CHANNELS_LAST)


@dataclass(frozen=True)
class ConvolutionChoice:
    """The quickest algorithm of a library within a limit of workspace.

    `library` is one of `LIBRARIES`, None what the cost model takes by itself: `paleo2017` and
    `roofline` a matrix product, `tiled` what the device's library has. `workspace` is the most
    bytes that an algorithm may need besides its operands, None any number; a matrix product that
    needs none is always among the candidates. With `only_gemm` there are matrix products alone.
    With `in_halves` lanes that can multiply and sum up halves as such (cuDNN's TRUE_HALF_CONFIG),
    which frameworks do not ask for; else in fp32.
    """

    library: str | None = None
    workspace: int | None = None
    only_gemm: bool = False
    in_halves: bool = False

    def algorithm(self, by_default: str) -> str:
        """Return how convolutions are priced: as "gemm", by the "quickest", or as "cudnn" says.

        `by_default` is what the cost model does by itself.
        """
        if self.only_gemm:
            return "gemm"
        if self.library is None:
            return by_default
        return "cudnn" if self.library == "cudnn" else "quickest"

    def __str__(self) -> str:
        """Return the settings that are no defaults, as they stand in a title."""
        parts = [self.library] if self.library else []
        parts += [f"workspace {self._limit}"] if self.workspace is not None else []
        parts += ["only GEMM"] if self.only_gemm else []
        parts += ["in halves"] if self.in_halves else []
        return ", ".join(parts)

    @property
    def _limit(self) -> str:
        if not self.workspace:
            return "0 B"
        scale = scale_for([[self.workspace]], "bytes")
        return f"{self.workspace / scale.factor:g} {scale.unit}"

    def note(self, by_default: str) -> str:
        """Return what a reader should know of how convolutions are priced; "" for nothing."""
        within = "" if self.workspace is None else f" within {self._limit} of workspace"
        whose = "any library" if self.library == "any" else self.library
        of = f", the quickest of {whose}" if whose else ""
        if self.algorithm(by_default) == "gemm":
            if not of and within and by_default == "gemm":
                of, within = " (without a library a workspace has no effect)", ""
            asked = ", as asked" if self.only_gemm else ""
            return f"convolutions are priced as matrix multiplication (GEMM){asked}{of}{within}"
        if self.library == "cudnn":
            return f"convolutions are priced by the algorithms that cuDNN itself chooses{within}"
        if of or within:
            whose = whose or "the device's library"
            return f"convolutions are priced by the quickest algorithm of {whose}{within}"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of the JSON output."""
        return {
            "conv_library": self.library,
            "workspace_limit_bytes": self.workspace,
            "use_only_gemm": self.only_gemm,
        }


DEFAULT = ConvolutionChoice()


def convolution_choice(
    library: str | None = None, workspace: float | str | None = None, only_gemm: bool = False
) -> ConvolutionChoice:
    """Return the choice that these settings mean; raises SettingError or UnknownNameError.

    `workspace` is a number of bytes, or a text such as "4GiB".
    """
    if library is None and workspace is None:
        return ConvolutionChoice(only_gemm=True) if only_gemm else DEFAULT
    mistakes = Mistakes()
    mistakes.check(checked_library, library)
    limit = mistakes.check(checked_workspace, workspace)
    mistakes.raise_as(SettingError)
    return ConvolutionChoice(library, limit, bool(only_gemm))


def checked_library(library: str | None) -> str | None:
    """Return the name of a library, or None; raises UnknownNameError."""
    if library is not None:
        # Here, since a Target needs none of it.
        from paleo.costs.convolutions.libraries import LIBRARIES

        LIBRARIES[library]
    return library


def checked_workspace(workspace: Any) -> int | None:
    """Return a number of bytes, also of a text such as "4GiB", or None; raises SettingError."""
    return None if workspace is None else checked_bytes(workspace, "workspace")
