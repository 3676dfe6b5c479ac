"""The layer types of a net-spec: one class each, in the files of this folder.

A file is imported when a net has a layer of a type that is in it.
"""

from __future__ import annotations

from paleo.net.layers.base import LAYERS, Layer, ShapeError

__all__ = ["LAYERS", "Layer", "ShapeError"]

#: The types in each file, which is imported when one is asked for.
_TYPES = {
    "attention": "Attention",
    "selection": "SelectKeys",
    "pointwise": "Activation Gated Sigmoid Dropout PReLU Softmax Elementwise",
    "normalization": "LRN BatchNorm Scale LayerNorm RMSNorm GroupNorm InstanceNorm L2Norm",
    "convolution": "Convolution Deconvolution",
    "exchanges": "AllReduce AllGather ReduceScatter Ring Swap AllToAll",
    "dense": "InnerProduct Embedding MatMul Similarity Einsum",
    "losses": "Loss LinearCrossEntropy Accuracy",
    "mixtures": "TopK Dispatch Experts Combine",
    "pooling": "Pooling AvgPool GlobalPooling UpSampling2D Resize",
    "positions": "RotaryEmbedding",
    "recurrent": "RNN GRU LSTM",
    "regions": "Proposals RegionPooling",
    "reshape": "Input Parameter Concatenate Slice Reshape Flatten Transpose Expand Pad Rearrange "
    "Gather Reduce Unknown",
    "scans": "SelectiveScan StateSpaceDual GatedDelta",
}
LAYERS.discover(
    __name__,
    {name: file for file, names in _TYPES.items() for name in names.split()},
    others="base fields functions matrices",
)
