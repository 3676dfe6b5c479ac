"""What commands and the page print: values of the Python API as tables.

Each table is imported from its own module, so that a command loads no more than it prints.
"""
