"""Nets: from text, files of other frameworks and generators to a graph whose shapes are known.

In come a name, a file, a module or metaparameters; out go a `NetSpec` (layers and who feeds whom)
and, for a batch size and an element type, a `Graph`. What a layer computes is counted here, never
priced.
"""
