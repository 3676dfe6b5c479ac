"""Collections of nets that others published, each read as a command reads it and compared.

A module a collection: `names()` lists it, `run(name)` reads one and returns an `Outcome`. One that
reads files of a folder has a `FOLDER`, which `benchmarks/importing.py --path` sets.
"""
