"""An algorithm of your own: clients share a head, which the server moves with momentum.

It adds server momentum (FedAvgM, Hsu et al., 2019) to LG-FedAvg in 20 lines: v ← β v + (mean − h), h ← h + v.
What travels, what clients do with a download, checkpoints and equal bits on any number of ranks come from the
base class. Costs about 10 seconds on one core.

    python examples/own_algorithm.py
    mpirun -n 5 python -m mpi4py examples/own_algorithm.py
"""

import torch

import hpcfl
from hpcfl.algorithms.lg_fedavg import LgFedAvg
from hpcfl.config.section import Section, Share


class HeadMomentum(LgFedAvg):
    """LG-FedAvg whose server remembers in which direction the head moved."""

    class Options(Section):
        beta: Share = 0.5
        """How much of the last movement is kept; 0: LG-FedAvg."""

    def __init__(self, plan, device):
        super().__init__(plan, device)
        self.velocity = {array.name: torch.zeros(array.shape) for array in self.arrays}

    def aggregate(self, t, last, uploads):
        mean = super().aggregate(t, last, uploads)
        for name, velocity in self.velocity.items():
            velocity.mul_(self.options.beta).add_(mean[name] - last[name])
        return {name: last[name] + velocity for name, velocity in self.velocity.items()}

    def state(self):
        """Returns what must survive a restart."""
        return self.velocity

    def load(self, state):
        self.velocity = {name: value.clone() for name, value in state.items()}


def main() -> None:
    for beta in (0.0, 0.5, 0.9):
        settings = ["method.name=own_algorithm:HeadMomentum", f"method.beta={beta}", "train.lr=0.05"]
        run = hpcfl.train(None, out=f"runs/example-momentum-{beta}.h5", settings=settings)
        if run is not None:  # under mpirun only rank 0 gets the log
            print(f"beta {beta}: accuracy {run['/round/accuracy'][-1]:.2%}")


if __name__ == "__main__":
    main()
