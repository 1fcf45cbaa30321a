"""Saves checkpoints during a run, and restores a run on any number of ranks."""
