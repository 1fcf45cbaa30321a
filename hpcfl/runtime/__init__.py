"""The machine under a run: devices, cores, client memory, scheduling, deadline, lock, exit codes."""
