"""A run's configuration: typed sections, TOML and `--set`, and the identity of a run."""
