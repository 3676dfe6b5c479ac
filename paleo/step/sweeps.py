"""The sweeps of updates: what each reads and writes of every parameter.

An update goes over all parameters once or several times. Each time is a sweep: of every parameter
it reads and writes elements of so many tensors (weights, gradients, states, what is made on the
way), all in the type of the parameters.

Steps are those of PyTorch, torch/optim: `_multi_tensor_*` of sgd.py, rmsprop.py, adagrad.py and
adam.py, a kernel each (for many tensors) with the defaults of momentum and weight decay. Sweeps
that are one kernel are its `_fused_*`, TensorFlow's ResourceApply*
(core/kernels/training_ops_gpu.cu.cc) and MXNet's src/operator/optimizer_op-inl.h.
"""

from __future__ import annotations

from paleo.core.frozen import NamedTuple
from paleo.core.operations import Update
from paleo.core.quantity import Quantity


class Sweep(NamedTuple):
    """What is done to each parameter in one go: elements read and written, and FLOPs."""

    name: str
    reads: int
    writes: int
    flops: int
    #: Bytes besides, of what is in another type than parameters are.
    bytes_read: int = 0
    bytes_written: int = 0
    #: Whether it is a kernel for each tensor, in whatever code.
    by_tensor: bool = False

    def update(self, num_params: Quantity, size: int, kernels: Quantity) -> Update:
        """Return what it does to so many parameters of `size` bytes, by so many kernels."""
        read, written = self.reads, self.writes
        if self.bytes_read or self.bytes_written:
            read, written = size * read + self.bytes_read, size * written + self.bytes_written
            size = 1
        return Update(num_params, size, read, written, self.flops, kernels, self.name)


#: The type that Newton-Schulz iterations are computed in, and its bytes.
NEWTON_SCHULZ, HALF = "bf16", 2

#: Steps that several have: a root, and a small number added to it.
ROOT, SMALL = Sweep("square root", 1, 1, 1), Sweep("epsilon added", 1, 1, 1)
DIVIDED = Sweep("quotient added to weights", 3, 1, 3)
SQUARES = (Sweep("mean of squares scaled", 1, 1, 1), Sweep("squares added", 2, 1, 3))
#: Of decay that stands apart from the gradient.
DECAY = Sweep("weight decay", 1, 1, 1)

MOMENTUM = Sweep("momentum", 3, 2, 4)
MOMENTUM_STEPS = (
    Sweep("velocity scaled", 1, 1, 1),
    Sweep("gradient added", 2, 1, 2),
    Sweep("weights", 2, 1, 2),
)
RMSPROP_STEPS = (*SQUARES, ROOT, SMALL, DIVIDED)
ADAGRAD_STEPS = (
    Sweep("squares added", 2, 1, 2),
    ROOT,
    SMALL,
    Sweep("gradient scaled", 1, 1, 1),
    Sweep("quotient added to weights", 3, 1, 2),
)
#: Weights, gradient and both means are read, all but the gradient written.
ADAM, ADAMW = Sweep("adam", 4, 3, 13), Sweep("adamw", 4, 3, 14)
ADAM_STEPS = (
    Sweep("mean of gradients", 2, 1, 3),
    *SQUARES,
    ROOT,
    Sweep("bias corrected", 1, 1, 1),
    SMALL,
    DIVIDED,
)
ADAMW_STEPS = (DECAY, *ADAM_STEPS)
#: TensorFlow has a kernel of Adam alone: tensorflow/models, official/nlp/optimization.py,
#: AdamWeightDecay, takes rate x weights x decay from the weights before, a kernel each.
DECAY_APART = (
    Sweep("weights times the rate", 1, 1, 1),
    DECAY,
    Sweep("weight decay taken off", 2, 1, 1),
    ADAM,
)
#: google-research/bert, optimization.py, AdamWeightDecayOptimizer.
BERT_ADAM_STEPS = (
    Sweep("mean of gradients scaled", 1, 1, 1),
    Sweep("gradient scaled", 1, 1, 1),
    Sweep("mean of gradients", 2, 1, 1),
    Sweep("mean of squares scaled", 1, 1, 1),
    Sweep("gradient squared", 1, 1, 1),
    Sweep("squares scaled", 1, 1, 1),
    Sweep("mean of squares", 2, 1, 1),
    ROOT,
    SMALL,
    Sweep("quotient", 2, 1, 1),
    DECAY,
    Sweep("weight decay added", 2, 1, 1),
    Sweep("rate", 1, 1, 1),
    Sweep("new weights", 2, 1, 1),
    Sweep("weights kept", 1, 1, 0),
    Sweep("mean of gradients kept", 1, 1, 0),
    Sweep("mean of squares kept", 1, 1, 0),
)
#: PyTorch, torch/optim/_adafactor.py: of a matrix; others have less. Norms and products are those
#: of each tensor in both codes; that of many tensors scales the update before it is added.
_ADAFACTOR = (
    Sweep("norm of weights", 1, 0, 2, by_tensor=True),
    Sweep("squares of rows", 1, 0, 2, by_tensor=True),
    Sweep("squares of columns", 1, 0, 2, by_tensor=True),
    Sweep("rows times columns", 0, 1, 1, by_tensor=True),
    Sweep("squares scaled", 1, 1, 1),
    Sweep("squares clamped", 1, 1, 1),
    Sweep("inverse root", 1, 1, 1),
    Sweep("update", 2, 1, 1),
    Sweep("norm of the update", 1, 0, 2, by_tensor=True),
)
ADAFACTOR_STEPS = (*_ADAFACTOR, Sweep("update added to weights", 2, 1, 2))
ADAFACTOR_LISTED = (
    *_ADAFACTOR,
    Sweep("update scaled", 1, 1, 1),
    Sweep("update added to weights", 2, 1, 1),
)
#: google/automl, lion/lion_pytorch.py.
LION_STEPS = (
    DECAY,
    Sweep("momentum scaled", 1, 1, 1),
    Sweep("gradient scaled", 1, 1, 1),
    Sweep("update", 2, 1, 1),
    Sweep("sign", 1, 1, 1),
    Sweep("sign added to weights", 2, 1, 2),
    Sweep("momentum scaled", 1, 1, 1),
    Sweep("gradient added", 2, 1, 2),
)
#: PyTorch, torch/optim/_muon.py: products apart.
MUON_STEPS = (
    Sweep("momentum", 2, 1, 3),
    Sweep("Nesterov's momentum", 2, 1, 3),
    Sweep("cast", 1, 0, 0, bytes_written=HALF),
    Sweep("norm", 0, 0, 2, bytes_read=HALF),
    Sweep("divided by the norm", 0, 0, 1, bytes_read=HALF, bytes_written=HALF),
    DECAY,
    Sweep("update added to weights", 1, 1, 2, bytes_read=HALF),
)
#: NVIDIA apex, csrc/multi_tensor_lamb.cu and multi_tensor_l2norm_kernel.cu: the norm of all
#: gradients; Adam's update of each parameter, in its gradient's place; the norms of weights and
#: updates; the update.
LAMB = (
    Sweep("norm of gradients", 1, 0, 2),
    Sweep("update of each", 4, 3, 16),
    Sweep("norms of weights", 1, 0, 2),
    Sweep("norms of updates", 1, 0, 2),
    Sweep("weights", 2, 1, 2),
)
#: By torch.nn.utils.clip_grad_norm_: the norms of all gradients, which are then scaled.
CLIPPING = (Sweep("norm of gradients", 1, 0, 2), Sweep("gradients clipped", 1, 1, 1))
#: By torch.amp.GradScaler, aten/src/ATen/native/cuda/AmpKernels.cu: it looks for infinities, too.
UNSCALING = (Sweep("gradients unscaled", 1, 1, 2),)
