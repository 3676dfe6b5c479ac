"""What share of their hardware's peak frameworks were found to reach."""

from __future__ import annotations

from paleo.core.frozen import dataclass
from paleo.core.registry import Registry


@dataclass(frozen=True)
class Software:
    """The "platform percent of peak" of a framework, in computation and in communication.

    Fitted by Qi, Sparks, Talwalkar, "Paleo: A Performance Model for Deep Neural Networks", ICLR
    2017, for the frameworks of 2016: with the cost model `paleo2017` they reproduce its figures.
    """

    name: str
    ppp_comp: float
    ppp_comm: float


#: The presets of the paper's case studies.
SOFTWARE: Registry[Software] = Registry("software")

for _each in (
    Software("Caffe", 0.21, 0.56),
    Software("MXNet", 0.49, 0.72),
    Software("TensorFlow", 0.62, 0.72),
):
    SOFTWARE.add(_each.name, _each)
