"""hpcfl: prototype-based heterogeneous federated learning on clusters, over MPI."""

__version__ = "0.1.0"
