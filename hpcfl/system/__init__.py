"""The federation's virtual clock: its devices and links, who is available, and when uploads arrive."""
