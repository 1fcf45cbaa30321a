"""A study: many runs from one file, their cells, and how far they have come."""
