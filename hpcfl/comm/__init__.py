"""The only package that uses MPI: the communicator, its one-process twin, and the message formats."""
