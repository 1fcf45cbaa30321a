"""Randomness by key, files that appear whole, numbers as text, and the import of torchvision."""
