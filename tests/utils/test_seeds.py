import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpcfl.utils.seeds import generator, key, uniforms


def test_every_part_of_the_key_counts():
    keys = {key(0, "a"), key(1, "a"), key(0, "b"), key(0, "a", 0), key(0, "a", 0, 1), key(0, "a", 1, 0)}
    assert len(keys) == 6
    assert key(1, "a", 2) != key(1, "a2")


def test_a_generator_is_a_function_of_its_key():
    first = generator(3, "shuffle", 1, 2).permutation(50)
    generator(3, "shuffle", 1, 3).permutation(50)
    np.testing.assert_array_equal(first, generator(3, "shuffle", 1, 2).permutation(50))


@given(st.integers(0, 2**64 - 1), st.integers(1, 9))
def test_uniforms_are_a_function_of_key_and_item(key, number):
    items = np.array([3, 0, 10**9, 3])
    drawn = uniforms(key, items, number)
    assert drawn.shape == (4, number)
    assert ((drawn >= 0) & (drawn < 1)).all()
    np.testing.assert_array_equal(drawn[0], drawn[3])
    np.testing.assert_array_equal(uniforms(key, items[1:3], number), drawn[1:3])
    assert len(np.unique(drawn[:3])) == 3 * number
    assert not np.isin(uniforms(key ^ 1, items, number), drawn).any()


def test_uniforms_are_uniform_and_uncorrelated():
    u = uniforms(7, np.arange(100_000), 2)
    np.testing.assert_allclose(np.histogram(u, 20)[0] / u.size, 0.05, atol=0.002)
    assert abs(np.corrcoef(u[:, 0], u[:, 1])[0, 1]) < 0.01
    assert abs(np.corrcoef(u[:-1, 0], u[1:, 0])[0, 1]) < 0.01
