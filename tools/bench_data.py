"""The proportional set size of a dataset's mapping, summed over all ranks, against its file."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from failures import start


def mapped(pid: int, path: Path) -> dict[str, int]:
    """Returns what a process holds of a file: Rss, Pss and private bytes."""
    found, ours = dict.fromkeys(("Rss", "Pss", "Private_Dirty"), 0), False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head, *rest = line.split()
        if not head.endswith(":"):
            ours = line.endswith(str(path))
        elif ours and head[:-1] in found:
            found[head[:-1]] += 1024 * int(rest[0])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="fmnist")
    parser.add_argument("--root", default="data")
    parser.add_argument("--ranks", type=int, default=21)
    asked = parser.parse_args()
    path = (Path(asked.root) / f"{asked.name}.h5").resolve()
    settings = (f"data.name={asked.name}", f"data.root={path.parent}")
    with tempfile.TemporaryDirectory() as directory:
        job = start("mpich", asked.ranks, Path(directory), 1000, *settings)
        job.wait_for("round 3/")
        held = [mapped(pid, path) for pid in job.ranks.values()]
        job.end()
    size = path.stat().st_size
    total = {name: sum(rank[name] for rank in held) for name in held[0]}
    print(f"{path.name}: {size / 1e6:.1f} MB; {len(held)} ranks map it")
    print(f"summed resident {total['Rss'] / 1e6:.1f} MB, dirty {total['Private_Dirty'] / 1e6:.1f} MB")
    print(f"summed proportional {total['Pss'] / 1e6:.1f} MB: {total['Pss'] / size:.3f} × the file")


if __name__ == "__main__":
    main()
