"""A step of a server: what it computes of a net, how long that takes, and who is in it.

In come a net of one position a sample, a device, a cluster and a division; out go seconds as
functions of how many tokens, requests and positions there are, and how a server puts requests
together to steps.
"""
