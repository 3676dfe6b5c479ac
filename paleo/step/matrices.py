"""The matrices that a graph's parameters are, for optimizers that go by their sizes.

They are read off the products that give gradients of weights: such a product is as large as they.
Without one, a node whose parameters are one tensor of rows of its output's length, such as an
embedding's, has a matrix of these rows. Filters of convolutions are matrices of their last two
dimensions, R x S of K x C x R x S as PyTorch stores them, which Adafactor factors (torch/optim/
_adafactor.py and transformers' optimization.py: any tensor of two dimensions or more); Muon leaves
them to its other optimizer (torch/optim/_muon.py: "only supports 2D parameters"). Biases, scales
and what else is no matrix is left out.
"""

from __future__ import annotations

import itertools

from paleo.core.frozen import NamedTuple
from paleo.core.operations import BatchMatMul, GroupedMatMul, MatMul, Pass
from paleo.core.quantity import Quantity, is_array, product
from paleo.net.graph import Graph, Node


class Matrix(NamedTuple):
    """A tensor of so many matrices of rows x columns.

    They are hidden unless looked up, slid over images, or what makes the result.
    """

    rows: int
    columns: int
    number: int = 1
    is_hidden: bool = True

    @property
    def elements(self) -> int:
        """The parameters in all of them."""
        return self.rows * self.columns * self.number


def matrices(graph: Graph) -> tuple[tuple[Matrix, ...], ...]:
    """Return the matrices of each node of a graph, of shared parameters those of their owner."""
    return graph.once(_matrices)


def all_matrices(graph: Graph) -> tuple[Matrix, ...]:
    """Return the matrices of all nodes of a graph."""
    return tuple(itertools.chain(*matrices(graph)))


def _matrices(graph: Graph) -> tuple[tuple[Matrix, ...], ...]:
    trained = [node for node in graph.nodes if node.is_trained]
    # What makes the result may use parameters that are counted elsewhere.
    products = (node.index for node in trained if _products(graph, node))
    last = max(products, default=-1)
    found: list[tuple[Matrix, ...]] = [()] * len(graph.nodes)
    for node in trained:
        of_node = _of_node(graph, node) if node.num_params else ()
        found[node.index] = tuple(
            each._replace(is_hidden=each.is_hidden and node.index != last) for each in of_node
        )
    return tuple(found)


def _products(graph: Graph, node: Node) -> list[tuple[Quantity, Quantity, Quantity]]:
    """Return rows, columns and number of what products give gradients of."""
    made: list[tuple[Quantity, Quantity, Quantity]] = []
    for each in graph.operations(node, Pass.WEIGHT_GRADIENT):
        if isinstance(each, MatMul):
            made.append((each.m, each.n, 1))
        elif isinstance(each, BatchMatMul):
            made.append((each.m, each.n, each.count))
        elif isinstance(each, GroupedMatMul):
            made.append((each.k, each.n, each.groups))
    return made


def _of_node(graph: Graph, node: Node) -> tuple[Matrix, ...]:
    made = _products(graph, node)
    if not any(is_array(size) for sizes in made for size in sizes):
        products = tuple(Matrix(int(m), int(n), int(number)) for m, n, number in made)
        if products and sum(each.elements for each in products) <= node.num_params:
            return products
    if filters := node.layer.filters(node.inputs):
        *others, r, s = filters
        return (Matrix(r, s, int(product(others)), is_hidden=False),)
    columns = node.output[-1]
    is_table = node.num_tensors == 1 and not node.layer.is_convolution and not is_array(columns)
    if is_table and node.num_params > columns and node.num_params % columns == 0:
        return (Matrix(node.num_params // int(columns), int(columns), 1, is_hidden=False),)
    return ()
