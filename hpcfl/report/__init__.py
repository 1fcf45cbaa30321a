"""Finished and running logs as tables."""
