"""Memory that the ranks of a run hold of a prepared dataset, together, against the size of its file."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hpcfl.bench.job import Job, on_ranks, with_settings
from hpcfl.config.loading import load_config
from hpcfl.data.load import BUILT_IN, load_dataset
from hpcfl.data.prepared_file import prepared_path
from hpcfl.errors import BadInput

SIZES = ("Rss", "Pss", "Private_Dirty")


def bench_data(name: str, root: str | None, ranks: int) -> int:
    """Prints the sizes of the dataset's mapping, summed over the ranks in the third round."""
    if name in BUILT_IN:
        raise BadInput(f"--name {name}: it has no file; name a prepared dataset")
    settings = [f"data.name={name}", *([f"data.root={root}"] if root else []), "federation.rounds=1000"]
    config = load_config(None, settings)
    load_dataset(config.data)
    path = prepared_path(config.data.root, name).resolve()
    options = with_settings(settings)
    with (
        tempfile.TemporaryDirectory() as directory,
        Job(on_ranks(ranks, "train", "--out", Path(directory, "run.h5"), *options)) as job,
    ):
        job.wait_for("round 3/")
        held = [mapped_bytes(Path(f"/proc/{pid}/smaps").read_text(), path) for pid in job.ranks.values()]
    size = path.stat().st_size
    total = {name: sum(rank[name] for rank in held) for name in SIZES}
    print(f"{path.name}: {size / 1e6:.1f} MB; {len(held)} ranks map it")
    print(f"summed resident {total['Rss'] / 1e6:.1f} MB, dirty {total['Private_Dirty'] / 1e6:.1f} MB")
    print(f"summed proportional {total['Pss'] / 1e6:.1f} MB: {total['Pss'] / size:.3f} × the file")
    return 0


def mapped_bytes(smaps: str, path: Path) -> dict[str, int]:
    """Returns the bytes of a file that a process has mapped, from the text of its /proc/PID/smaps."""
    nbytes, of_file = dict.fromkeys(SIZES, 0), False
    for line in smaps.splitlines():
        head, *rest = line.split()
        if not head.endswith(":"):
            of_file = line.endswith(str(path))
        elif of_file and head[:-1] in nbytes:
            nbytes[head[:-1]] += 1024 * int(rest[0])
    return nbytes
