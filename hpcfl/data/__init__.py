"""Datasets and their partition among clients: functions of the configuration, without torch."""
