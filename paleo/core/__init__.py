"""What everything else is written in: errors, units, quantities, tensors, operations, registries.

In come texts, numbers and arrays; out go checked values. It knows no net, no device and no price.
"""
