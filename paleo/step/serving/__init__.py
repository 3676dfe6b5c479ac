"""A step of a server: what it computes of a net, and how long that takes.

In come a net of one position a sample, a device, a cluster and a division; out go seconds as
functions of how many tokens, requests and positions there are.
"""
