"""Refinements of the aggregated prototypes on the server, one file each."""
