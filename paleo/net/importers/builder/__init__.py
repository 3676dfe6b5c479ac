"""What all importers build nets with: values that follow a source's axes, and operators on them."""
