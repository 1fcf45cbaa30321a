import math

from hpcfl.runtime.cores import cgroup_quota, core_limit, total_cores


def test_a_quota_of_version_2_counts_at_any_level(tmp_path):
    (tmp_path / "own").write_text("0::/slurm/job_1/step_0\n")
    job = tmp_path / "cgroup" / "slurm" / "job_1"
    (job / "step_0").mkdir(parents=True)
    (job / "step_0" / "cpu.max").write_text("max 100000\n")
    assert cgroup_quota(tmp_path / "cgroup", tmp_path / "own") == math.inf
    (job / "cpu.max").write_text("150000 100000\n")
    assert cgroup_quota(tmp_path / "cgroup", tmp_path / "own") == 1.5


def test_a_quota_of_version_1(tmp_path):
    (tmp_path / "own").write_text("5:memory:/x\n4:cpu,cpuacct:/box\n")
    box = tmp_path / "cgroup" / "cpu" / "box"
    box.mkdir(parents=True)
    (box / "cpu.cfs_quota_us").write_text("400000\n")
    (box / "cpu.cfs_period_us").write_text("100000\n")
    assert cgroup_quota(tmp_path / "cgroup", tmp_path / "own") == 4
    (box / "cpu.cfs_quota_us").write_text("-1\n")
    assert cgroup_quota(tmp_path / "cgroup", tmp_path / "own") == math.inf


def test_without_control_groups_there_is_no_quota(tmp_path):
    assert cgroup_quota(tmp_path, tmp_path / "nothing") == math.inf


def test_cores_of_a_job_are_unions_by_host_within_quotas():
    """Host a: cores 0, 1, 2 in all; host b: 4 cores but a quota of 2.5; host c: less than one core is one."""
    ranks = [
        ("a", (frozenset({0, 1}), math.inf)),
        ("a", (frozenset({1, 2}), math.inf)),
        ("b", (frozenset(range(4)), 2.5)),
        ("c", (frozenset(range(8)), 0.5)),
    ]
    assert total_cores(ranks) == 3 + 2 + 1


def test_ranks_that_outnumber_their_cores_share_a_gate():
    both, first, second = frozenset({0, 1}), frozenset({0}), frozenset({1})
    free = [(both, math.inf)] * 5
    assert core_limit(free, 1, [1, 2, 3, 4], threads=1) == (0, 2)
    assert core_limit(free, 1, [1, 2, 3, 4], threads=2) == (0, 1)
    assert core_limit(free, 1, [1, 2], threads=1) is None
    assert core_limit([(both, 1.5)] * 5, 1, [1, 2], threads=1) == (0, 1)
    bound = [(both, math.inf), (first, math.inf), (second, math.inf), (second, math.inf)]
    assert core_limit(bound, 1, [1, 2, 3], threads=1) is None
    assert core_limit(bound, 3, [1, 2, 3], threads=1) == (1, 1)
