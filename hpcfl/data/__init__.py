"""Datasets and partitions: pure functions of the configuration, without torch."""
