"""Messages: what is sent arrives, at the cost that the declarations say; what is damaged is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hpcfl.exchange.codec import HEADER, ClientUpload, Codec, decode_uploads, encode_uploads
from hpcfl.exchange.payload import Array, Bytes, ClassRows, Dense, Payload, Rows, Shaped, class_rows, tensor

DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool)


def padded(nbytes: int) -> int:
    return (nbytes + 7) // 8 * 8


def assert_same(got: Payload, want: Payload) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        one, other = got[name], value
        if isinstance(other, ClassRows):
            assert isinstance(one, ClassRows)
            assert torch.equal(one.present_K, other.present_K)
            one, other = one.value_KD, other.value_KD
        assert isinstance(one, Tensor)
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert torch.equal(one, other)


def draw_tensor(rng: np.random.Generator, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(np.asarray(rng.integers(0, 2 if dtype == torch.bool else 99, shape))).to(dtype)


def draw_value(rng: np.random.Generator, array: Array, payload: Payload) -> Tensor | ClassRows:
    """Returns a random value of a declared array."""
    if isinstance(array, Dense):
        return draw_tensor(rng, array.dtype, array.shape)
    if isinstance(array, Shaped):
        return draw_tensor(rng, array.dtype, tuple(rng.integers(0, 5, array.dims).tolist()))
    present_K = torch.from_numpy(rng.random(array.classes) < 0.5)
    if array.present_as:
        present_K = class_rows(payload, array.present_as).present_K
    value_KD = draw_tensor(rng, array.dtype, (array.classes, array.width)) * present_K[:, None]
    return ClassRows(
        value_KD if array.mask_KD is None else value_KD * torch.from_numpy(array.mask_KD), present_K
    )


@st.composite
def payloads(draw: Any) -> tuple[Codec, Payload]:
    """Up to six arrays of all kinds, and a payload with some of them."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    arrays: list[Array] = []
    kinds = draw(st.lists(st.sampled_from(["dense", "rows", "masked", "present as", "shaped"]), max_size=6))
    for number, kind in enumerate(kinds):
        name, dtype, counted = f"array{number}", DTYPES[rng.integers(len(DTYPES))], bool(rng.integers(2))
        sizes = tuple(rng.integers(0, 5, rng.integers(0, 4)).tolist())
        dims = int(rng.integers(1, 20)), int(rng.integers(1, 6))
        dtype_of_rows = torch.float32 if dtype == torch.bool else dtype  # which cannot be multiplied by masks
        rows = [array for array in arrays if isinstance(array, Rows) and not array.present_as]
        if kind == "dense":
            arrays.append(Dense(name, sizes, dtype, counted))
        elif kind == "shaped":
            arrays.append(Shaped(name, len(sizes), 625, dtype, counted))
        elif kind == "present as" and rows:
            arrays.append(Rows(name, rows[0].classes, 1, dtype_of_rows, counted, present_as=rows[0].name))
        else:
            mask_KD = rng.random(dims) < 0.5 if kind == "masked" else None
            arrays.append(Rows(name, *dims, dtype_of_rows, counted, mask_KD))
    payload: dict[str, Any] = {}
    for array in arrays:
        needs = array.present_as if isinstance(array, Rows) else None
        if draw(st.booleans()) and (needs is None or needs in payload):
            payload[array.name] = draw_value(rng, array, payload)
    return Codec(arrays), payload


@settings(deadline=None)
@given(payloads())
def test_a_payload_arrives_whole(case):
    codec, payload = case
    assert_same(codec.decode(codec.encode(payload)), payload)


def bytes_by_hand(array: Array, payload: Payload) -> tuple[int, int]:
    """Returns the bytes of an array's numbers, and those of its bitmap or shape."""
    if isinstance(array, Dense):
        return tensor(payload, array.name).numel() * array.dtype.itemsize, 0
    if isinstance(array, Shaped):
        return tensor(payload, array.name).numel() * array.dtype.itemsize, 8 * array.dims
    numbers = 0
    for k in class_rows(payload, array.name).present_K.nonzero()[:, 0].tolist():
        numbers += array.width if array.mask_KD is None else int(array.mask_KD[k].sum())
    return numbers * array.dtype.itemsize, 0 if array.present_as else (array.classes + 7) // 8


@settings(deadline=None)
@given(payloads())
def test_a_message_costs_its_numbers_bitmaps_and_shapes(case):
    """Papers count the numbers; a message has eight bytes more, and arrays start at multiples of 8."""
    codec, payload = case
    message, counted, side, length = codec.encode(payload), 0, 0, 8 if payload else 0
    for name in payload:
        array = codec.arrays[name]
        numbers, beside = bytes_by_hand(array, payload)
        counted += numbers if array.counted else 0
        side += beside if array.counted else numbers + beside
        length += padded(numbers) + padded(beside)
    assert codec.nbytes(payload) == Bytes(counted, side)
    assert message.nbytes == length


@settings(deadline=None)
@given(payloads(), st.integers(0, 10_000))
def test_the_bytes_of_a_plan_are_those_of_a_whole_payload(case, seed):
    codec, _ = case
    arrays = [array for array in codec.arrays.values() if not isinstance(array, Shaped)]
    same = {array.classes for array in arrays if isinstance(array, Rows)}
    if len(same) > 1:
        return
    rng = np.random.default_rng(seed)
    payload: dict[str, Any] = {}
    present_K = rng.random(next(iter(same), 3)) < 0.5
    for array in arrays:
        payload[array.name] = draw_value(rng, array, payload)
        if isinstance(array, Rows):
            there_K = torch.from_numpy(present_K)
            payload[array.name] = ClassRows(torch.zeros(array.classes, array.width).to(array.dtype), there_K)
    codec = Codec(arrays)
    assert codec.expected_bytes(present_K) == codec.nbytes(payload).counted


def test_bytes_by_hand():
    """K = 10, d = 4, three classes: 48 bytes of rows, 2 of bits, 12 of counts; 3 × 2 numbers and a shape."""
    rows, counts = Rows("rows", 10, 4), Rows("counts", 10, 1, torch.int32, False, present_as="rows")
    codec = Codec(
        [rows, counts, Shaped("factor", 2, 100), Dense("samples", (1,), torch.int64, counted=False)]
    )
    present_K = torch.arange(10) < 3
    payload: dict[str, Tensor | ClassRows] = {
        "rows": ClassRows(torch.ones(10, 4) * present_K[:, None], present_K)
    }
    assert codec.nbytes(payload) == Bytes(48, 2)
    payload["counts"] = ClassRows(torch.ones(10, 1, dtype=torch.int32) * present_K[:, None], present_K)
    assert codec.nbytes(payload) == Bytes(48, 2 + 12)
    payload |= {"factor": torch.ones(3, 2), "samples": torch.tensor([7])}
    assert codec.nbytes(payload) == Bytes(48 + 24, 2 + 12 + 16 + 8)
    assert codec.expected_bytes(present_K.numpy()) == 48 + 400
    everything = Codec([Rows("rows", 10, 4, all_classes=True)])
    assert everything.expected_bytes(present_K.numpy()) == 160


@pytest.mark.parametrize("present", [[], [0], [1, 4], range(5)])
def test_rows_are_those_of_the_present_classes_only(present):
    codec, present_K = Codec([Rows("rows", 5, 3)]), torch.zeros(5, dtype=torch.bool)
    present_K[list(present)] = True
    payload: Payload = {
        "rows": ClassRows(torch.arange(1.0, 16).reshape(5, 3) * present_K[:, None], present_K)
    }
    message = codec.encode(payload)
    assert message.nbytes == 8 + 8 + padded(12 * len(list(present)))
    assert_same(codec.decode(message), payload)


def test_an_empty_payload_sends_nothing():
    codec = Codec([Dense("a", (2,))])
    assert codec.encode({}).size == 0
    assert codec.decode(codec.encode({})) == {}
    assert codec.nbytes({}) == Bytes(0, 0)
    assert Codec([]).decode(Codec([]).encode({})) == {}


def test_values_may_be_views_on_other_memory_and_need_gradients():
    codec = Codec([Dense("a", (3, 2)), Rows("rows", 3, 2)])
    value_KD = torch.arange(6.0).reshape(2, 3).T.requires_grad_()
    payload: Payload = {"a": value_KD, "rows": ClassRows(value_KD, torch.ones(3, dtype=torch.bool))}
    got = codec.decode(codec.encode(payload))
    assert torch.equal(tensor(got, "a"), value_KD)
    assert torch.equal(class_rows(got, "rows").value_KD, value_KD)


def test_a_dense_array_is_a_view_of_its_message():
    codec = Codec([Dense("small", (3,), torch.uint8), Dense("large", (1000, 50)), Shaped("shaped", 2, 600)])
    payload: Payload = {
        "small": torch.ones(3, dtype=torch.uint8),
        "large": torch.randn(1000, 50),
        "shaped": torch.randn(20, 30),
    }
    message = codec.encode(payload)
    got, start = codec.decode(message), message.ctypes.data
    for name in payload:
        address = tensor(got, name).data_ptr()
        assert start <= address < start + message.nbytes
        assert (address - start) % 8 == 0


def test_a_whole_network_has_hundreds_of_arrays():
    arrays = [Dense(f"a{number}", (1,)) for number in range(314)]
    payload = {f"a{number}": torch.full((1,), float(number)) for number in range(0, 314, 3)}
    codec = Codec(arrays)
    assert_same(codec.decode(codec.encode(payload)), payload)


def test_two_arrays_of_one_name_are_refused():
    with pytest.raises(ValueError, match="the same name"):
        Codec([Dense("a", (1,)), Dense("a", (2,))])


ROWS = Rows("rows", 3, 2)
PRESENT = torch.tensor([True, False, True])


@pytest.mark.parametrize(
    ("array", "value", "says"),
    [
        (Dense("a", (2,)), torch.ones(3), r"'a' is torch.float32 of shape \(3,\), declared .* \(2,\)"),
        (Dense("a", (2,)), torch.ones(2).double(), "'a' is torch.float64 .*, declared is torch.float32"),
        (Dense("other", (2,)), torch.ones(2), "payload 'a' is not declared"),
        (Rows("a", 3, 2), ClassRows(torch.ones(3, 4), PRESENT), r"shape \(3, 4\), declared .* \(3, 2\)"),
        (Rows("a", 3, 2), ClassRows(torch.ones(3, 2).int(), PRESENT), "'a' is torch.int32"),
        (Shaped("a", 2, 9), torch.ones(3), "'a' has 1 dimensions, declared are 2"),
        (Shaped("a", 1, 9), torch.ones(3).double(), "'a' is torch.float64 .*, declared is torch.float32"),
    ],
)
def test_what_is_not_as_declared_is_not_sent(array, value, says):
    with pytest.raises(ValueError, match=says):
        Codec([array]).encode({"a": value})


def word(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype="<i8").view(np.uint8)


DAMAGED: dict[str, tuple[list[Array], np.ndarray]] = {
    "shorter than its mask": ([Dense("a", (1,))], word(1)[:5]),
    "an array that is not declared": ([Dense("a", (1,))], word(2)),
    "ends within an array": ([Dense("a", (3,))], word(1, 0)),
    "more than its arrays": ([Dense("a", (1,))], word(1, 0, 0)),
    "no array, but bytes": ([Dense("a", (1,))], word(0, 0)),
    "ends within a bitmap": ([ROWS], word(1)),
    "ends within rows": ([ROWS], word(1, 255, 0)),
    "present as rows that are not there": ([ROWS, Rows("b", 3, 1, present_as="rows")], word(2, 0)),
    "a shape that is negative": ([Shaped("a", 2, 9)], word(1, -1, 2)),
    "a shape of two negatives": ([Shaped("a", 2, 9)], word(1, -1, -2, 0)),
    "a shape that is too large": ([Shaped("a", 2, 9)], word(1, 2**62, 2**62)),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_message_is_refused(damage):
    arrays, message = DAMAGED[damage]
    with pytest.raises(ValueError, match="message"):
        Codec(arrays).decode(message)


@settings(deadline=None)
@given(payloads(), st.integers(0, 10_000))
def test_random_damage_is_refused_or_gives_a_payload(case, seed):
    """Nothing but ValueError, whatever the bytes are; a message that is cut is always refused."""
    codec, payload = case
    message, rng = codec.encode(payload), np.random.default_rng(seed)
    if message.size:
        with pytest.raises(ValueError):  # noqa: PT011  # numpy's or ours
            codec.decode(message[: rng.integers(1, message.size)])
    damaged = message.copy()
    damaged[rng.integers(0, len(damaged), 3) if len(damaged) else []] = rng.integers(0, 256, 1)
    try:
        codec.decode(damaged)
    except ValueError:
        return


# --- uploads


@st.composite
def uploads(draw: Any) -> tuple[Codec, list[list[ClientUpload]]]:
    """The format of prototype methods, and the uploads of three ranks, in any order of clients."""
    classes, features = draw(st.integers(1, 20)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    mask_KD = rng.random((classes, features)) < 0.5 if draw(st.booleans()) else None
    arrays: list[Array] = [Rows("prototypes", classes, features, mask_KD=mask_KD)]
    if draw(st.booleans()):
        arrays.append(Rows("counts", classes, 1, torch.int32, counted=False, present_as="prototypes"))
    ranks = []
    for clients in np.array_split(rng.permutation(draw(st.integers(0, 7))), 3):
        sent = []
        for client in clients:
            payload: dict[str, Any] = {}
            diverged = bool(rng.integers(2))
            for array in arrays if not diverged else ():
                payload[array.name] = draw_value(rng, array, payload)
            sent.append(ClientUpload(int(client), diverged, payload))
        ranks.append(sent)
    return Codec(arrays), ranks


@settings(deadline=None)
@given(uploads())
def test_uploads_arrive_whole_and_in_client_order(case):
    codec, ranks = case
    arrived = decode_uploads(codec, [encode_uploads(codec, iter(sent)) for sent in ranks])
    want = sorted((upload for sent in ranks for upload in sent), key=lambda upload: upload.client)
    for one, other in zip(arrived, want, strict=True):
        assert (one.client, one.diverged) == (other.client, other.diverged)
        assert_same(one.payload, other.payload)


@settings(deadline=None)
@given(uploads())
def test_uploads_cost_their_rows_bits_and_counts(case):
    """Papers count 4 bytes per entry of a row; beside them a bit per class, and 4 bytes per count if sent.

    No sample count is in a message where none is asked for: there is no room for it.
    """
    codec, ranks = case
    prototypes = codec.arrays["prototypes"]
    assert isinstance(prototypes, Rows)
    classes, width, mask_KD = prototypes.classes, prototypes.width, prototypes.mask_KD
    width_K = np.full(classes, width) if mask_KD is None else mask_KD.sum(1)
    for sent in ranks:
        length = 0
        for upload in sent:
            length += 16
            if not upload.payload:
                continue
            present_K = class_rows(upload.payload, "prototypes").present_K.numpy()
            rows, counts = (
                4 * int(width_K[present_K].sum()),
                4 * int(present_K.sum()) * ("counts" in codec.arrays),
            )
            bits = (classes + 7) // 8
            assert codec.nbytes(upload.payload) == Bytes(rows, bits + counts)
            length += 8 + padded(bits) + padded(rows) + padded(counts)
        assert encode_uploads(codec, sent).nbytes == length


@pytest.mark.parametrize("nbytes", [-16, -8, 9, 24, 2**62])
def test_an_upload_of_another_length_is_refused(nbytes):
    codec = Codec([Dense("a", (1,))])
    message = encode_uploads(codec, [ClientUpload(3, False, {"a": torch.ones(1)})])
    assert decode_uploads(codec, [message])[0].client == 3
    message[: HEADER.itemsize].view(HEADER)["nbytes"] = nbytes
    with pytest.raises(ValueError, match="message"):
        decode_uploads(codec, [message])
    with pytest.raises(ValueError):  # noqa: PT011  # numpy's own
        decode_uploads(codec, [message[:9]])
