"""The quick start from Python: FedProto against the same clients without exchange, and what the logs hold.

Costs about 10 seconds on one core, or fewer on more ranks; downloads nothing.

    python examples/quickstart.py
    mpirun -n 5 python -m mpi4py examples/quickstart.py
"""

import numpy as np

import hpcfl

TABLES = {"federation": {"clients": 20, "rounds": 25}}  # an empty dictionary is the quick start, too


def train(method: str):
    """Runs a federation; a finished run is returned as it is, an unfinished one goes on."""
    return hpcfl.train(TABLES, out=f"runs/example-{method}.h5", settings=[f"method.name={method}"])


def main() -> None:
    fedproto, local = train("fedproto"), train("local")
    if fedproto is None or local is None:  # under mpirun only rank 0 gets the logs
        return
    print("round  FedProto  alone")
    for t in range(4, fedproto.rounds_done, 5):
        print(f"{t + 1:5}  {fedproto['/round/accuracy'][t]:8.2%}  {local['/round/accuracy'][t]:.2%}")
    by_prototypes = [run["/client/accuracy_local"][-1] for run in (fedproto, local)]
    better = int(np.sum(by_prototypes[0] > by_prototypes[1]))
    print(f"by their own prototypes {better} of 20 clients are better with FedProto than alone")
    print(f"a round sent {fedproto['/round/bytes_up'].mean() / 1000:.1f} kB to the server")


if __name__ == "__main__":
    main()
