"""TensorFlow as an executor: a net as a graph of its operators, of which parts are run."""
