"""The figures of a report, by matplotlib: one file per family, one function per figure."""
