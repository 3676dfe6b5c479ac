"""What a result says, in sentences: what was asked, the answer with its error band, what limits it.

A module for each result, with a function that returns its sentences. They round to the digits that
the band supports.
"""
