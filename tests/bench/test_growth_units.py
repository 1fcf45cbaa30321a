"""`hpcfl bench scale` prints memory in binary units and files in decimal ones, as docs/models.md says."""

from __future__ import annotations

from hpcfl.bench import growth


def test_memory_is_in_binary_units_and_files_in_decimal_ones():
    small = growth.Cost(0.001, 0.001, 1024**2, 1000**2, 1000**2, 1.0)
    large = growth.Cost(0.001, 0.001, 3 * 1024**2, 3 * 1000**2, 3 * 1000**2, 1.0)
    assert growth._words(large)[2:5] == ["3.0 MiB", "3.0 MB", "3.0 MB"]
    assert growth._slopes({10: small, 12: large})[:3] == ["1.0 MiB", "1.0 MB", "1.0 MB"]
