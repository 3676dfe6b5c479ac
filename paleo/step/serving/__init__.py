"""Serving of language models: what a step of a server costs, and how servers put steps together."""
