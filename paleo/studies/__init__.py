"""Answers to questions about steps: simulations, summaries, comparisons, metrics, memory.

In come nets, hardware and settings as a user names them; out go frozen values in SI units with
their error bands. Nothing is rounded, printed or drawn.
"""
