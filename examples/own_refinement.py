"""A refinement of your own: global prototypes that follow the clients' averages slowly.

The server keeps the share `inertia` of its last prototypes. Costs about 10 seconds on one core.

    python examples/own_refinement.py
    mpirun -n 5 python -m mpi4py examples/own_refinement.py
"""

import torch

import hpcfl
from hpcfl.config.section import Section, Share
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.refine.base import Refinement


class Slow(Refinement):
    """c ← inertia · c of the last round + (1 − inertia) · the new average, for classes that have both."""

    class Options(Section):
        inertia: Share = 0.5
        """0: the new average alone; 1: prototypes never move."""

    def __call__(self, t, last, new, uploads):
        inertia = self.context.options["inertia"]
        mixed_KD = inertia * last.value_KD + (1 - inertia) * new.value_KD
        both_K1 = (last.present_K & new.present_K)[:, None]
        return Prototypes(torch.where(both_K1, mixed_KD, new.value_KD), new.present_K)


def main() -> None:
    for inertia in (0.0, 0.5, 0.9):
        settings = ["method.refine=own_refinement:Slow", f"method.inertia={inertia}"]
        tables = {"federation": {"participation": 5}}
        run = hpcfl.train(tables, out=f"runs/example-slow-{inertia}.h5", settings=settings)
        if run is not None:  # under mpirun only rank 0 gets the log
            print(f"inertia {inertia}: accuracy {run['/round/accuracy'][-1]:.2%}")


if __name__ == "__main__":
    main()
