"""The clock against a plain event simulation, for random systems."""

from __future__ import annotations

import heapq
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


def devices(latency_M: list[int]) -> Devices:
    clients = len(latency_M)
    one, speed = np.full(clients, UNIT_LINK), np.full(clients, UNIT_SPEED)
    return Devices(
        speed, one, one, np.array(latency_M, dtype=float), speed * np.nan, speed * 0, np.ones(clients)
    )


def test_the_units_are_exact():
    seconds = devices([3]).seconds(np.array([5]), np.array([7.0]), np.array([11]))
    assert [each.item() for each in (seconds.down_M, seconds.compute_M, seconds.up_M)] == [5, 7, 11]
    assert seconds.total_M.tolist() == [26]


def rounds(clients: int) -> st.SearchStrategy[Round]:
    """Returns random rounds; the numbers are small, so that many uploads arrive together."""
    integers = st.lists(st.integers(1, 6), min_size=clients, max_size=clients).map(np.array)
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
    deadline = draw(st.sampled_from([None, 4.0, 9.0, 15.5]))
    wanted = draw(st.integers(1, clients))
    extra = draw(st.integers(0, 2))
    late: Any = draw(st.sampled_from(["drop", "keep"])) if deadline or extra else "drop"
    config = SystemConfig(profile="ideal", deadline=deadline, extra=extra, late=late)
    number = draw(st.integers(1, 5))
    gone = draw(st.lists(rarely_gone(clients), min_size=number, max_size=number))
    return config, latency_M, wanted, draw(st.lists(rounds(clients), min_size=number, max_size=number)), gone


def rarely_gone(clients: int) -> st.SearchStrategy[np.ndarray]:
    return st.lists(st.integers(0, 9).map(lambda n: n == 0), min_size=clients, max_size=clients).map(np.array)


def plain_simulation(config, latency_M, wanted, all_rounds, gone):
    """Yields length, statuses and counted uploads of each round from one queue of events in absolute time."""
    now, free = 0.0, [0.0] * len(latency_M)
    inbox: list[tuple[float, int, int]] = []
    for t, (round_, gone_M) in enumerate(zip(all_rounds, gone, strict=True)):
        status = [Status.NOT_SELECTED] * len(latency_M)
        queue: list[tuple[float, int, str]] = []
        for i, latency in enumerate(latency_M):
            if not round_.selected_M[i]:
                continue
            status[i] = Status.DIVERGED
            if round_.idle_M[i]:
                continue
            time = max(now, free[i]) + latency + int(round_.bytes_down_M[i])
            if not np.isnan(round_.failure_M[i]):
                time += float(round_.failure_M[i]) * int(round_.flops_M[i])
                status[i] = Status.FAILED
                heapq.heappush(queue, (time, i, "failed"))
            elif round_.diverged_M[i]:
                time += int(round_.flops_M[i])
                heapq.heappush(queue, (time, i, "diverged"))
            else:
                time += int(round_.flops_M[i]) + int(round_.bytes_up_M[i])
                heapq.heappush(queue, (time, i, "upload"))
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
        yield end - now, status, dict(sorted(counted.items()))
        now = end


@settings(max_examples=150, deadline=None)
@given(systems())
def test_the_clock_is_a_plain_event_simulation(system):
    config, latency_M, wanted, all_rounds, gone = system
    clock = Clock(System(config, 0, devices(latency_M), None), wanted)
    for t, (length, status, counted) in enumerate(plain_simulation(*system)):
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
        earlier = [i for i, made in counted.items() if made < t]
        assert np.flatnonzero(closed.values["/virtual/earlier"]).tolist() == earlier
        parts = ("wait", "latency", "down", "compute", "up")
        total_M = sum(closed.values[f"/virtual/seconds_{part}"] for part in parts)
        np.testing.assert_allclose(total_M, closed.values["/virtual/client_seconds"], rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(systems())
def test_infinitely_fast_devices_are_always_in_time(system):
    _, latency_M, wanted, all_rounds, gone = system
    clients = len(latency_M)
    fastest, none, always = np.full(clients, np.inf), np.zeros(clients), np.ones(clients)
    fast = Devices(fastest, fastest, fastest, none, none, none, always)
    clock = Clock(System(SystemConfig(profile="ideal", deadline=1e-9), 0, fast, None), wanted)
    for t, round_ in enumerate(all_rounds):
        closed = clock.close(t, round_, gone[t])
        assert closed.values["/virtual/seconds"] == 0
        assert list(closed.counted) == np.flatnonzero(round_.uploads_M).tolist()
