"""Damages small files by seed and lets commands of hpcfl read them."""
