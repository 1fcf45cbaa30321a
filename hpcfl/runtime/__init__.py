"""What a run uses of the machine: devices, cores, client memory, scheduling, deadline, lock, exit codes."""
