"""Examples on the pages of the documentation."""

from __future__ import annotations

import re

from tests.helpers.mpi import ROOT


def examples(page: str) -> list[str]:
    """Returns the Python examples of a page of the documentation."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)
