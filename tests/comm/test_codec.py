import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcfl.comm.codec import ClientUpload, PrototypeCodec


@st.composite
def messages(draw):
    """A wire and the parcels of up to three ranks, in any order of clients."""
    dims = draw(st.integers(1, 20)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    mask_KD = rng.random(dims) < 0.5 if draw(st.booleans()) else None
    codec = PrototypeCodec(*dims, draw(st.booleans()), mask_KD)
    ranks = []
    for clients in np.array_split(rng.permutation(draw(st.integers(0, 7))), 3):
        uploads = []
        for client in clients:
            present_K = rng.random(codec.classes) < 0.5
            rows = int(present_K.sum())
            value_RD = rng.standard_normal((rows, codec.features)).astype(np.float32)
            if codec.mask_KD is not None:
                value_RD *= codec.mask_KD[present_K]
            count_R = rng.integers(1, 99, rows) if codec.counts else np.empty(0, dtype=np.int64)
            uploads.append(ClientUpload(int(client), bool(rng.integers(2)), present_K, value_RD, count_R))
        ranks.append(uploads)
    return codec, ranks


@settings(deadline=None)
@given(messages())
def test_parcels_arrive_whole_and_in_client_order(message):
    codec, ranks = message
    bodies = [codec.pack_up(uploads) for uploads in ranks]
    arrived = codec.unpack_up(bodies)
    sent = sorted((upload for uploads in ranks for upload in uploads), key=lambda upload: upload.client)
    for got, want in zip(arrived, sent, strict=True):
        assert (got.client, got.diverged) == (want.client, want.diverged)
        np.testing.assert_array_equal(got.present_K, want.present_K)
        np.testing.assert_array_equal(got.value_RD, want.value_RD)
        np.testing.assert_array_equal(got.count_R, want.count_R)


@settings(deadline=None)
@given(messages())
def test_a_message_costs_its_rows_bits_counts_and_five_bytes_a_client(message):
    """No sample count is on the wire where none is asked for: there is no room for it."""
    codec, ranks = message
    for uploads in ranks:
        width_K = np.full(codec.classes, codec.features) if codec.mask_KD is None else codec.mask_KD.sum(1)
        rows = sum(int(upload.present_K.sum()) for upload in uploads)
        floats = sum(int(width_K[upload.present_K].sum()) for upload in uploads)
        bits = (codec.classes + 7) // 8
        want = floats * 4 + len(uploads) * (5 + bits) + rows * 4 * codec.counts
        assert codec.pack_up(uploads).nbytes == want
        told = sum(codec.bytes_of_rows(p.present_K) + codec.side_bytes(p) + 5 for p in uploads)
        assert told == want


@pytest.mark.parametrize("present", [[], [0], [1, 4], range(5)])
def test_down_carries_the_present_rows_only(present):
    codec = PrototypeCodec(5, 3, counts=False)
    present_K = np.isin(np.arange(5), list(present))
    value_RD = np.arange(len(list(present)) * 3, dtype=np.float32).reshape(-1, 3)
    body = codec.pack_down(present_K, value_RD)
    assert body.nbytes == (1 + len(list(present)) * 12 if len(list(present)) else 0)
    got_K, got_RD = codec.unpack_down(body)
    np.testing.assert_array_equal(got_K, present_K)
    np.testing.assert_array_equal(got_RD, value_RD)
