"""PyTorch as an executor: a net as functions of its tensors, in its order of memory."""
