"""Messages beyond the limit of one transfer arrive whole."""

from __future__ import annotations

from tests.helpers.mpi import ROOT, Mpi


def test_large_messages_are_sent_in_pieces(mpi: Mpi):
    """With a limit of 1000 bytes, so that the real one of 1 GiB needs no memory here."""
    done = mpi.run(4, "-m", "tests.mpi.large", 1000, 5000, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
