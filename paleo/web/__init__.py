"""The live demo: a server, and a page in which the model itself answers.

In come settings from a form, an address or an upload; out go what the Python API says of them, the
charts of `paleo.views.charts` and the tables of `paleo.views.tables`. Nothing here computes. Flask
and waitress are imported on use.
"""
