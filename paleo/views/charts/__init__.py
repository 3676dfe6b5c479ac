"""Charts: what pictures show, before anybody draws them.

Each kind is imported from its own module, the values themselves from paleo.views.charts.base, so
that a command that draws nothing loads none.
"""
