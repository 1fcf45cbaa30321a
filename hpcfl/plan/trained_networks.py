"""What the networks of a client cost in training: its own, and those that the algorithm declares."""

from __future__ import annotations

from collections.abc import Mapping

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.federation.run_plan import RunPlan
from hpcfl.models.costs import Cost, costs
from hpcfl.training.client_layout import networks_of_clients
from hpcfl.training.step.options import step_options


class TrainedNetworks:
    """The costs of all networks that a client trains; `own_costs` are those of the clients' own."""

    def __init__(self, plan: RunPlan, algorithm: Algorithm, own_costs: Mapping[str, Cost]):
        self.plan = plan
        self.architectures = networks_of_clients(plan, algorithm)
        """All architectures that a client trains, by the architecture of its own network, which is first."""
        names = {name for _, *extra in self.architectures.values() for name in extra}
        batches = plan.config.train.batch_size, plan.config.runtime.inference_batch
        self.costs = {
            **costs(sorted(names), plan.data.shape, *plan.dims, *batches, plan.data.input_type),
            **own_costs,
        }

    def names(self, client: int) -> tuple[str, ...]:
        """Returns the architectures that a client trains."""
        return self.architectures[self.plan.clients[client].architecture]

    def flops(self, client: int) -> int:
        """Returns the FLOPs of a forward pass of one sample through all networks."""
        return sum(self.costs[name].flops for name in self.names(client))

    def activations(self, client: int) -> int:
        """Returns the bytes that autograd saves for a training batch: all networks share a backward pass."""
        return sum(self.costs[name].activations for name in self.names(client))

    def parameters(self, client: int) -> int:
        """Returns the number of parameters of all networks."""
        return sum(self.costs[name].parameters for name in self.names(client))

    def gradients(self, client: int, device: str) -> int:
        """Returns the bytes of gradients, unless the step frees them, and of the optimiser's memory."""
        config, names = self.plan.config, self.names(client)
        options = step_options(config.runtime, device, *names, clip_norm=self.plan.train.clip_norm)
        moments = 2 if config.train.optimizer != "sgd" else int(config.train.momentum > 0)
        return 4 * self.parameters(client) * (int(not options.direct) + moments)
