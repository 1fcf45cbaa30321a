"""The only room that knows MPI: the link between ranks, its one-process twin, and the wire format."""
