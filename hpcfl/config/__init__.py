"""The configuration of a run: typed sections, loading from TOML and `--set`, and the identity of a run."""
