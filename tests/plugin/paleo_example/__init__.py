"""A layer type, a collective, a cost model and an importer that Paleo finds by entry points."""
