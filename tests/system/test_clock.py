"""The clock against a plain event simulation, for random systems."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcfl.config.system import SystemConfig
from hpcfl.system.clock import Clock
from hpcfl.system.devices import Devices
from hpcfl.system.events import Round, Status
from hpcfl.system.system import System

UNIT_LINK, UNIT_SPEED = 8e-6, 1e-9
"""A byte and a FLOP per second, so that bytes and FLOPs are seconds."""
RADIO = 0.5
"""Watts of every radio; client i computes with 2i watts."""


def devices(latency_M: Sequence[int], *rates: Sequence[float]) -> Devices:
    """Returns devices by latency, and by bytes per second down and up and FLOPs per second; unset: 1."""
    clients = len(latency_M)
    down, up, speed = (np.array(rate) for rate in rates or [[1.0] * clients] * 3)
    return Devices(
        *(speed * UNIT_SPEED, up * UNIT_LINK, down * UNIT_LINK, np.array(latency_M, dtype=float)),
        *(2.0 * np.arange(clients), np.full(clients, RADIO), np.ones(clients)),
    )


def test_the_units_are_exact():
    seconds = devices([3]).seconds(np.array([5]), np.array([7.0]), np.array([11]))
    assert [each.item() for each in (seconds.down_M, seconds.compute_M, seconds.up_M)] == [5, 7, 11]
    assert seconds.total_M.tolist() == [26]
    seconds = devices([3], [0.5], [2.0], [4.0]).seconds(np.array([5]), np.array([7.0]), np.array([11]))
    assert [each.item() for each in (seconds.down_M, seconds.compute_M, seconds.up_M)] == [10, 1.75, 5.5]


def rounds(clients: int) -> st.SearchStrategy[Round]:
    """Returns random rounds; the numbers are small, so that many uploads arrive together."""
    integers = st.lists(st.integers(0, 6), min_size=clients, max_size=clients).map(np.array)
    flags = st.lists(st.booleans(), min_size=clients, max_size=clients).map(np.array)
    rarely = st.lists(st.integers(0, 4).map(lambda n: n == 0), min_size=clients, max_size=clients).map(
        np.array
    )
    shares = st.lists(
        st.sampled_from([np.nan, np.nan, np.nan, 0.0, 0.5]), min_size=clients, max_size=clients
    ).map(np.array)
    return st.builds(Round, flags, rarely, rarely, shares, integers, integers, integers)


@st.composite
def systems(draw):
    clients = draw(st.integers(1, 5))
    latency_M = draw(st.lists(st.integers(0, 3), min_size=clients, max_size=clients))
    rate_M = st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=clients, max_size=clients)
    described = (latency_M, *(draw(rate_M) for _ in range(3)))
    deadline = draw(st.sampled_from([None, 4.0, 9.0, 15.5]))
    wanted = draw(st.integers(1, clients))
    extra = draw(st.integers(0, 2))
    late: Any = draw(st.sampled_from(["drop", "keep"])) if deadline or extra else "drop"
    config = SystemConfig(profile="ideal", deadline=deadline, extra=extra, late=late)
    number = draw(st.integers(1, 5))
    gone = draw(st.lists(rarely_gone(clients), min_size=number, max_size=number))
    return config, described, wanted, draw(st.lists(rounds(clients), min_size=number, max_size=number)), gone


def rarely_gone(clients: int) -> st.SearchStrategy[np.ndarray]:
    return st.lists(st.integers(0, 9).map(lambda n: n == 0), min_size=clients, max_size=clients).map(np.array)


def plain_simulation(config, described, wanted, all_rounds, gone):
    """Yields length, statuses, counted uploads, energy and bytes of each round.

    They come from one queue of events in absolute time.
    """
    latency_M, down_M, up_M, speed_M = described
    clients = len(latency_M)
    now, free = 0.0, [0.0] * clients
    inbox: list[tuple[float, int, int]] = []
    for t, (round_, gone_M) in enumerate(zip(all_rounds, gone, strict=True)):
        status, joules, sent = [Status.NOT_SELECTED] * clients, [0.0] * clients, [0] * clients
        queue: list[tuple[float, int, str]] = []
        for i in range(clients):
            bytes_down, bytes_up = int(round_.bytes_down_M[i]), int(round_.bytes_up_M[i])
            joules[i] = RADIO * bytes_down / down_M[i]  # a download may go to all clients
            if not round_.selected_M[i]:
                continue
            status[i] = Status.DIVERGED
            if round_.idle_M[i]:
                continue
            what, training = "upload", int(round_.flops_M[i]) / speed_M[i]
            if not np.isnan(round_.failure_M[i]):
                what, training = "failed", float(round_.failure_M[i]) * training
                status[i] = Status.FAILED
            elif round_.diverged_M[i]:
                what = "diverged"
            sent[i] = bytes_up if what == "upload" else 0
            time = max(now, free[i]) + bytes_down / down_M[i] + training + sent[i] / up_M[i]
            if bytes_down or sent[i]:
                time += latency_M[i]
            joules[i] += 2 * i * training + RADIO * sent[i] / up_M[i]
            heapq.heappush(queue, (time, i, what))
            free[i] = time
        end, own, reason = now, [], Status.LATE
        if config.deadline is not None and queue and max(queue)[0] > now + config.deadline:
            end = now + config.deadline
        elif queue:
            end = max(queue)[0]
        late = []
        while queue:
            time, i, what = heapq.heappop(queue)
            if what != "upload":
                continue
            if time > end or reason is Status.SURPLUS:
                late.append((time, i))
                continue
            own.append(i)
            status[i] = Status.IN_TIME
            if config.extra and len(own) == wanted:
                end, reason = time, Status.SURPLUS
        for _, i in late:
            status[i] = reason
        counted = {i: s for time, s, i in sorted(inbox) if time <= end and not gone_M[i]} | dict.fromkeys(
            own, t
        )
        inbox = [entry for entry in inbox if entry[0] > end]
        if config.late == "keep":
            inbox += [(time, t, i) for time, i in late]
        yield end - now, status, dict(sorted(counted.items())), joules, sent
        now = end


@settings(max_examples=150, deadline=None)
@given(systems())
def test_the_clock_is_a_plain_event_simulation(system):
    config, described, wanted, all_rounds, gone = system
    clock = Clock(System(config, 0, devices(*described), None), wanted)
    for t, (length, status, counted, joules, sent) in enumerate(plain_simulation(*system)):
        if t % 2:  # as after a restart
            state = clock.state()
            clock = Clock(clock.system, wanted)
            clock.load(state)
        closed = clock.close(t, all_rounds[t], gone[t])
        assert closed.values["/virtual/seconds"] == length
        assert closed.values["/virtual/status"].tolist() == status
        assert list(closed.counted.items()) == list(counted.items())
        late = [i for i, each in enumerate(status) if each in (Status.LATE, Status.SURPLUS)]
        assert closed.missed == set(late)
        assert closed.values["/virtual/client_joules"].tolist() == joules
        assert closed.values["/virtual/joules"] == sum(joules)
        assert closed.values["/virtual/bytes_up"].tolist() == sent
        earlier = [i for i, made in counted.items() if made < t]
        assert np.flatnonzero(closed.values["/virtual/earlier"]).tolist() == earlier
        parts = ("wait", "latency", "down", "compute", "up")
        total_M = sum(closed.values[f"/virtual/seconds_{part}"] for part in parts)
        np.testing.assert_allclose(total_M, closed.values["/virtual/client_seconds"], rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(systems())
def test_infinitely_fast_devices_are_always_in_time(system):
    _, described, wanted, all_rounds, gone = system
    clients = len(described[0])
    fastest, none, always = np.full(clients, np.inf), np.zeros(clients), np.ones(clients)
    fast = Devices(fastest, fastest, fastest, none, none, none, always)
    clock = Clock(System(SystemConfig(profile="ideal", deadline=1e-9), 0, fast, None), wanted)
    for t, round_ in enumerate(all_rounds):
        closed = clock.close(t, round_, gone[t])
        assert closed.values["/virtual/seconds"] == 0
        assert list(closed.counted) == np.flatnonzero(round_.uploads_M).tolist()
