"""Features that ranks send: rank 0 gets them in the order of clients and samples."""

import numpy as np

from hpcfl.metrics.features import RankFeatures, decode_features


def test_features_arrive_in_the_order_of_clients_and_samples():
    z_RD = np.arange(8, dtype=np.float32).reshape(4, 2)
    ranks = [RankFeatures(2) for _ in range(3)]
    ranks[1].add(3, np.array([0, 5]), z_RD[:2])
    ranks[2].add(0, np.array([7]), z_RD[2:3])
    ranks[2].add(1, np.array([2]), z_RD[3:])
    rows = decode_features([rank.pop() for rank in ranks], 2)
    assert rows.client_R.tolist() == [0, 1, 3, 3]
    assert rows.sample_R.tolist() == [7, 2, 0, 5]
    np.testing.assert_array_equal(rows.z_RD, z_RD[[2, 3, 0, 1]])
    chosen = rows.of([np.array([7]), np.array([1]), np.array([0]), np.array([5, 6])])
    assert chosen.client_R.tolist() == [0, 3]
    np.testing.assert_array_equal(chosen.z_RD, z_RD[[2, 1]])
    assert len(decode_features([rank.pop() for rank in ranks], 2).client_R) == 0, "a round's are sent once"
