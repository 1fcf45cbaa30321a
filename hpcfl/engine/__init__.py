"""From a planned run to its last round: launch, assemble, rounds, server, worker."""
