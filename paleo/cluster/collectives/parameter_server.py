"""Parameter servers on hosts of their own."""

from __future__ import annotations

from collections.abc import Iterator

from paleo.cluster.collectives.base import COLLECTIVES, Carried, Collective, Operation, Round
from paleo.cluster.collectives.phases import Phase, Phases, across
from paleo.cluster.collectives.rounds import SWITCH, of_parts
from paleo.cluster.topology import Group, beyond_one
from paleo.core.quantity import Quantity, maximum


class ParameterServer(Collective):
    """Each worker sends its gradients to the servers and gets parameters back: 2 max(K / N, 1).

    Each of N servers has a share of the parameters, as many links of the outermost tier as one has
    network cards, one, and updates when all K workers have sent (synchronous training): M. Li et
    al., "Scaling distributed machine learning with the parameter server", OSDI 2014; TensorFlow,
    tf_cnn_benchmarks with variable_update=parameter_server; F. Iandola, "Exploring the design space
    of deep convolutional neural networks at large scale", 2016, eq. 3.3 for one. What servers take
    to sum up and update is not counted.
    """

    name = "parameter_server"
    summary = "servers on hosts of their own, as many as --num_servers, that share the parameters"
    between = "the servers"

    def __init__(self, servers: int = 1) -> None:
        self.servers = servers

    def with_servers(self, servers: int) -> Collective:
        return ParameterServer(servers)

    def transfers(self, workers: Quantity) -> Quantity:
        return 2 * beyond_one(workers) * maximum(workers / self.servers, 1)

    def phases(self, group: Group, operation: Operation = Operation.ALL_REDUCE) -> Phases:
        """Return one phase: the links of nodes, or those of servers, are what takes longest."""
        used, last = 2 * beyond_one(group.workers), len(group.levels) - 1
        *inside, outer = across(group, last, used, used, by_all=True)
        at_servers = used * group.workers / self.servers * group.levels[last].links
        outer = outer._replace(sent=maximum(outer.sent, at_servers))
        return (Phase("servers", (*inside, outer)),)

    def rounds(self, workers: int) -> Iterator[Round]:
        """Yield the rounds, in each of which a worker meets one server, and a server one worker."""
        if workers == 1:
            return
        count = max(workers, self.servers)
        for carried in (Carried.SUM, Carried.RESULT):
            for turn in range(count):
                parts = ((worker, (worker + turn) % count) for worker in range(workers))
                moving = [
                    ((worker, SWITCH), range(part, part + 1))
                    if carried is Carried.SUM
                    else ((SWITCH, worker), range(part, part + 1))
                    for worker, part in parts
                    if part < self.servers
                ]
                yield of_parts(moving, self.servers, carried)


COLLECTIVES.add(ParameterServer.name, ParameterServer())
