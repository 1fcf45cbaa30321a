"""The programs of the other simulators. Each runs in an environment of its own, without hpcfl."""
