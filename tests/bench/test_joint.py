"""The speed of a joint step: what is measured, and what is refused."""

from __future__ import annotations

import re

import pytest

from tests.helpers.runs import options

SHORT = ("models.list=['mlp_64', 'mlp_256']", "method.auxiliary=mlp_taper")


@pytest.mark.parametrize(("clip", "step"), [(0.0, "direct"), (10.0, "plain")])
def test_both_networks_against_each_alone(hpcfl, clip, step):
    settings = (*SHORT, "method.name=fedkd", f"method.clip_norm={clip}")
    done = hpcfl("bench", "joint", "--repeats", 2, "--samples", 64, *options(*settings))
    assert done.exit_code == 0, done.output
    first, *rows = done.output.strip().splitlines()
    assert first.count(step) == 2
    assert first.endswith("auxiliary network: mlp_taper")
    assert [row.partition(":")[0] for row in rows] == ["mlp_64", "mlp_256", "all"]
    for row in rows:
        assert all(float(number) > 0 for number in re.findall(r"\d+\.\d+", row))


def test_other_methods_have_none(hpcfl):
    done = hpcfl("bench", "joint", *options("method.name=fedgh"))
    assert (done.exit_code, done.output) == (
        2,
        "hpcfl: method.name = 'fedgh': no joint step; fml and fedkd have one\n",
    )
