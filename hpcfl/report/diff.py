"""`hpcfl diff`: are two runs equal bit for bit?"""

from __future__ import annotations

from hpcfl.config.identity import difference
from hpcfl.errors import printable
from hpcfl.log.compare import common_results, compare_runs
from hpcfl.log.reader import Run, read_log
from hpcfl.log.schema import BY_PATH
from hpcfl.utils.formatting import plural

EQUAL, DIFFERENT = 0, 1
ENVIRONMENT = (
    *("device", "instructions", "onednn_max_cpu_isa", "step"),
    *("version_torch", "version_numpy", "version_scipy"),
)
"""Attributes of a log that the last bits of its results may depend on."""


def print_diff(one: str, other: str) -> int:
    """Prints whether two runs are equal, or the first round, client and dataset that differ."""
    a, b = read_log(one), read_log(other)
    found, compared = compare_runs(a, b), len(common_results(a, b))
    if found is None:
        print(f"equal: {plural(a.rounds_done, 'round')}, {compared} datasets, bit for bit")
        if only_one := sorted(p for p in a.lacking ^ b.lacking if BY_PATH[p].kind == "result"):
            print(f"not compared, because only one of them has it: {', '.join(only_one)}")
        return EQUAL
    print(printable(f"different: first in {found}"))
    if found.datasets:
        print(f"in all {found.datasets} of {compared} datasets differ")
    else:
        print("the rounds that both have are equal")
    for line in _reasons(a, b):
        print(printable(line))
    return DIFFERENT


def _reasons(a: Run, b: Run) -> list[str]:
    """Returns what else differs between the runs, and may be why."""
    found = (
        [f"configuration: {change}"]
        if (change := difference(a.config, b.config, (f"in {a.path}", f"in {b.path}")))
        else []
    )
    found += [f"{name} differs" for name in _checksums(a, b)]
    for name in ENVIRONMENT:
        values = [str(run.attributes.get(name, "unknown")) for run in (a, b)]
        if values[0] != values[1]:
            found.append(f"{name}: {values[0]} and {values[1]}")
    return found


def _checksums(a: Run, b: Run) -> list[str]:
    """Returns what differs of the data, the split, and the modules of the user's own code."""
    names = sorted(name for name in {**a.attributes, **b.attributes} if name.startswith("checksum_"))
    differing = [name for name in names if a.attributes.get(name) != b.attributes.get(name)]
    return [name.removeprefix("checksum_").replace("code_", "code of ", 1) for name in differing]
