"""Algorithms: what server and clients exchange, how clients train, and how the server aggregates.

Nothing here touches MPI, files or the clock.
"""
