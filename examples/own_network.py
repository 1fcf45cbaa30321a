"""A network of your own beside hpcfl's, and a client's network after training as a torch module.

A network is a function of the shape of a sample and the number of features. Costs about 20 seconds on one
core; the images are made up by hpcfl.

    python examples/own_network.py
    mpirun -n 5 python -m mpi4py examples/own_network.py
"""

from torch import nn

import hpcfl


def depthwise(shape, features):
    """A small CNN of depthwise and pointwise convolutions."""
    channels, *_ = shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, stride=2, padding=1, groups=16),
        nn.Conv2d(16, 32, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4, features),
    )


TABLES = {
    "data": {"name": "synthetic", "shape": [16, 16, 3], "classes": 10, "samples_per_class": 200},
    "models": {"list": ["own_network:depthwise", "cnn_femnist"], "features": 64},
    "federation": {"clients": 8, "rounds": 5},
    "partition": {"alpha": 1.0},
    "train": {"lr": 0.05},
}


def main() -> None:
    run = hpcfl.train(TABLES, out="runs/example-own-network.h5")
    if run is None:  # under mpirun only rank 0 gets the log
        return
    for i in range(2):
        client = run.client(i)
        network, (x_N, y_N) = client.network(), client.samples("test")
        accuracy = (network(x_N).argmax(1) == y_N).double().mean().item()
        parameters = sum(parameter.numel() for parameter in network.parameters())
        logged = run["/client/accuracy_head"][-1, i]
        print(f"client {i}: {client.architecture} with {parameters:,} parameters")
        print(f"  accuracy by head: {accuracy:.2%} here, {logged:.2%} in the log")


if __name__ == "__main__":
    main()
