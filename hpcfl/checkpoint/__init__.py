"""Saves a run while it goes on, and restores it on any number of ranks."""
