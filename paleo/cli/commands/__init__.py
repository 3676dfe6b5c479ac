"""The commands, one a module: options, one call of the library, one view."""
