"""Standard input whose end does not come, as under the mpirun of Open MPI 5."""

from __future__ import annotations

import os

import pytest

from hpcfl.utils import standard_input


@pytest.mark.parametrize("closed", [False, True])
def test_silence_after_input_is_its_end(monkeypatch, closed):
    monkeypatch.setattr(standard_input, "SILENCE", 0.05 if not closed else 60)
    monkeypatch.setattr(standard_input, "FIRST", 60)
    reader, writer = os.pipe()
    text = b"seed = 1\n" * 5000
    os.write(writer, text)
    if closed:
        os.close(writer)
    assert standard_input._read_until_silence(reader) == text
