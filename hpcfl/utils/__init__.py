"""Utilities: random generators by key, atomic file writes, formatting, and the import of torchvision."""
