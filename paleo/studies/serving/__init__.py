"""Loads of servers of language models, and what becomes of requests under them.

It knows steps by an `Engine` and a `Scheduling` alone: no net, no device.
"""
