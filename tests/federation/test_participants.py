import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpcfl.federation.participants import select_participants


@given(st.integers(0, 2**63 - 1), st.integers(0, 1000), st.integers(1, 60), st.data())
def test_participants_are_different_clients_in_order(seed, round_, clients, data):
    number = data.draw(st.integers(1, clients))
    drawn = select_participants(seed, round_, clients, number)
    assert len(drawn) == number
    assert np.all(np.diff(drawn) > 0)
    assert drawn[0] >= 0
    assert drawn[-1] < clients


def test_over_many_rounds_every_client_takes_part_about_equally_often():
    """100 rounds of 5 of 20: each client expects 25, standard deviation √(100·¼·¾) ≈ 4.3."""
    counts = np.bincount(np.concatenate([select_participants(0, t, 20, 5) for t in range(100)]), minlength=20)
    assert counts.min() > 25 - 4 * 4.4
    assert counts.max() < 25 + 4 * 4.4
