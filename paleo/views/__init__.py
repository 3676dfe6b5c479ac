"""Results as people see them: tables, charts, pictures and traces. Here, numbers are rounded.

In come answers of studies and measurements; out go tables, charts (values that pictures, the
terminal and the page draw alike), images and trace files.
"""
