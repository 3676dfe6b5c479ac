"""Imports the configurations of Hugging Face models: config.json, alone or in a model's folder.

A configuration says which architecture a model is of and its sizes. A table has what each
architecture is; common parts write it as a net file whose dimension `seq` stays open. Neither
transformers nor weights are needed.
"""

from paleo.net.importers.transformers.reader import net_text, read

__all__ = ["net_text", "read"]
