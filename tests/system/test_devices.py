"""Devices, availability and failures are drawn by key; tables and traces are read exactly."""

from __future__ import annotations

import numpy as np
import pytest

from hpcfl.config.system import SystemConfig
from hpcfl.errors import BadInput
from hpcfl.system.devices import draw_devices
from hpcfl.system.profiles import PROFILES, QUANTITIES
from hpcfl.system.system import make_system

NAMES = ["mlp_64", "mlp_256"] * 2000


def test_log_normal_quantities_have_their_median_and_sigma_and_depend_on_seed_and_client_alone():
    config = SystemConfig(
        profile="ideal", speed={"median": 5.0, "sigma": 0.6}, up={"median": 5.0, "sigma": 0.6}
    )
    devices = draw_devices(config, 0, NAMES)
    assert np.median(devices.speed_M) == pytest.approx(5, rel=0.05)
    assert np.log(devices.speed_M).std() == pytest.approx(0.6, rel=0.05)
    assert abs(np.corrcoef(np.log(devices.speed_M), np.log(devices.up_M))[0, 1]) < 0.05
    np.testing.assert_array_equal(draw_devices(config, 0, NAMES[:7]).speed_M, devices.speed_M[:7])
    assert (draw_devices(config, 1, NAMES).speed_M != devices.speed_M).all()


def test_a_quantity_by_architecture_or_constant():
    config = SystemConfig(profile="ideal", speed={"mlp_64": 1.0, "mlp_256": 2.0}, latency=0.5)
    devices = draw_devices(config, 0, NAMES[:4])
    assert devices.speed_M.tolist() == [1, 2, 1, 2]
    assert devices.latency_M.tolist() == [0.5] * 4
    assert np.isinf(devices.up_M).all()
    with pytest.raises(BadInput, match=r"system.speed = 'mlp_512': allowed is one of mlp_256, mlp_64"):
        draw_devices(config, 0, ["mlp_512"])


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles_have_possible_devices(profile):
    devices = draw_devices(SystemConfig(profile=profile), 0, NAMES)
    for name in QUANTITIES[:4]:
        assert (getattr(devices, f"{name}_M") >= 0).all()
    assert np.isnan(devices.watts_M).all() == (profile == "ideal")


def test_a_key_that_is_set_replaces_that_of_the_profile_and_a_table_replaces_both(tmp_path):
    (tmp_path / "d.csv").write_text("client, speed,latency\n2,7.5,\n0,,0\n")
    config = SystemConfig(profile="lan", speed=3.0, table=str(tmp_path / "d.csv"))
    devices = draw_devices(config, 0, NAMES[:3])
    assert devices.speed_M.tolist() == [3, 3, 7.5]
    assert devices.latency_M.tolist() == [0, 0.001, 0.001]
    assert devices.up_M.tolist() == [1000] * 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("client,sped\n0,1\n", r"unknown column 'sped' \(nearest: speed\)"),
        ("speed\n1\n", "has no column 'client'"),
        ("client,up,up\n0,1,2\n", "has the column 'up' twice"),
        ("client,up\n0,nan\n", "line 2: up = 'nan' is no such number"),
        ("client,latency\n0,-1\n", "line 2: latency = '-1' is no such number"),
        ('client,up\n"0,1\n', "unexpected end of data"),
        ("client,speed\n3,1\n", "line 2: client = '3' must be a whole number from 0 to 2"),
        ("client,speed\n0,1\n0,2\n", "client 0 is there twice"),
        ("client,speed\n0,fast\n", "line 2: speed = 'fast' is no such number"),
        ("client,up\n0,0\n", "line 2: up = '0' is no such number"),
        ("client,availability\n0,1.5\n", "line 2: availability = '1.5' is no such number"),
        ("client,up\n0\n", "line 2 has not 2 columns"),
        ("", "has no column 'client'"),
        (None, "cannot read it: No such file"),
    ],
)
def test_a_bad_table_is_refused_in_one_sentence(tmp_path, text, says):
    if text is not None:
        (tmp_path / "d.csv").write_text(text)
    with pytest.raises(BadInput, match=says):
        draw_devices(SystemConfig(profile="ideal", table=str(tmp_path / "d.csv")), 0, NAMES[:3])


def test_availability_and_failure_have_their_probabilities_and_change_from_round_to_round():
    system = make_system(SystemConfig(profile="ideal", availability=0.7, failure=0.2), 0, NAMES)
    assert system is not None
    for t in range(3):
        assert system.available_M(t).mean() == pytest.approx(0.7, abs=0.03)
        fails_M = ~np.isnan(system.failure_M(t))
        assert fails_M.mean() == pytest.approx(0.2, abs=0.03)
        assert system.failure_M(t)[fails_M].mean() == pytest.approx(0.5, abs=0.05)
        assert (system.available_M(t) != system.available_M(t + 1)).any()
        np.testing.assert_array_equal(system.available_M(t), system.available_M(t))


def test_a_table_gives_single_clients_an_availability(tmp_path):
    (tmp_path / "d.csv").write_text("client,availability,speed\n0,0,\n1,1,\n2,0.2,\n3,,5\n")
    config = SystemConfig(profile="ideal", availability=0.6, table=str(tmp_path / "d.csv"))
    system, without = (
        make_system(each, 0, NAMES[:5]) for each in (config, config.model_copy(update={"table": None}))
    )
    assert system is not None
    assert without is not None
    found_TM = np.array([system.available_M(t) for t in range(1000)])
    assert found_TM.mean(0) == pytest.approx([0, 1, 0.2, 0.6, 0.6], abs=0.05)
    others_TM = np.array([without.available_M(t) for t in range(1000)])
    np.testing.assert_array_equal(found_TM[:, 3:], others_TM[:, 3:])


def test_a_trace_says_in_which_rounds_a_client_can_be_selected(tmp_path):
    (tmp_path / "t.csv").write_text("client,first,last\n0,1,2\n2,2,2\n0,4,4\n")
    system = make_system(SystemConfig(profile="ideal", trace=str(tmp_path / "t.csv")), 0, NAMES[:3])
    assert system is not None
    found = [np.flatnonzero(system.available_M(t)).tolist() for t in range(5)]
    assert found == [[0], [0, 2], [], [0], []]
    for row, says in (
        ("0,3,2", "line 2: last = '2' must be a whole number from 3"),
        ("3,1,2", "line 2: client = '3' must be a whole number from 0 to 2"),
        ("-1,1,2", "line 2: client = '-1' must be"),
        ("0,0,2", "line 2: first = '0' must be a whole number from 1"),
        ("0,nan,2", "line 2: first = 'nan' must be"),
        ("0,1", "line 2 has not 3 columns"),
    ):
        (tmp_path / "t.csv").write_text(f"client,first,last\n{row}\n")
        with pytest.raises(BadInput, match=says):
            make_system(SystemConfig(profile="ideal", trace=str(tmp_path / "t.csv")), 0, NAMES[:3])
