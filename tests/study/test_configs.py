"""The studies in configs/studies: all their cells can run, at both scales."""

import re
from functools import cache

import numpy as np
import pytest

from hpcfl.config.data import DataConfig
from hpcfl.data import load
from hpcfl.data.partition import partition
from hpcfl.data.synthetic import synthetic
from hpcfl.federation.run_plan import plan_run
from hpcfl.methods.baselines import BASELINES
from hpcfl.methods.catalogue import PROTOTYPE_METHODS, method_spec
from hpcfl.methods.rules import check_dims
from hpcfl.methods.spec import PrototypeSpec
from hpcfl.study.study_file import read_study
from tests.helpers.mpi import ROOT

STUDIES = ROOT / "configs" / "studies"
FILES = sorted(STUDIES.glob("**/*.toml"))
CLASSES = {
    "spiral": 6,
    "cifar10": 10,
    "cifar40": 40,
    "cifar100": 100,
    "cifar100-20k": 100,
    "flowers102-squash": 102,
    "flowers102-32px": 102,
    "tinyimagenet-train": 200,
    "fmnist": 10,
    "femnist-128": 62,
}
PAPERS = ("protonorm-", "fedtgp-", "fedorgp-", "sparse-", "fedsap-")
"""Beginnings of the names of studies that are listed in docs/papers.md."""
IMAGES = {"cifar40": 200, "cifar100": 600, "cifar100-20k": 200}
"""Images of each class, of the datasets that are dealt here."""


def configs(path, scale):
    """Returns the configurations of a study, one of those that differ in seed and participation alone."""
    cells = read_study(path, scale).cells
    return {
        (
            config.method.model_dump_json(),
            config.partition,
            config.federation.clients,
            config.models.features,
        ): config
        for config in (cell.config for cell in cells)
        if config is not None
    }.values()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("scale", ["full", "small"])
def test_every_cell_is_fine_and_the_file_says_how_many(path, scale):
    study = read_study(path, scale)
    assert [cell.problem for cell in study.cells if cell.problem] == []
    opening = study.text.split("\nabout")[0]
    assert re.search(rf"\b{len(study.cells)} (cells|runs)\b", opening)
    command = f"hpcfl study run {path.relative_to(STUDIES).with_suffix('')}"
    assert (
        f"mpirun -n 3 {command} --scale small" if scale == "small" else f"mpirun -n 21 {command}\n"
    ) in opening
    if scale == "small":
        assert len(study.cells) < 500
        assert {cell.settings["data.name"] for cell in study.cells} <= {"spiral", "synthetic"}
        assert max(cell.ranks or 1 for cell in study.cells) <= 3


@cache
def images(shape: tuple[int, ...], classes: int, number: int):
    """Returns synthetic images, made once for all studies."""
    return synthetic(DataConfig(name="synthetic", shape=[*shape], classes=classes, samples_per_class=number))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_small_cells_can_be_dealt(path, monkeypatch):
    monkeypatch.setattr(
        load, "synthetic", lambda data: images(tuple(data.shape), data.classes, data.samples_per_class)
    )
    for config in configs(path, "small"):
        assert len(plan_run(config).clients) == config.federation.clients


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_full_cells_can_be_dealt(path):
    """Datasets that are not in IMAGES are only checked for their dimensions."""
    dealt: dict = {}
    for config in configs(path, "full"):
        name = config.data.name
        spec = method_spec(config.method, name)
        if isinstance(spec, PrototypeSpec):
            check_dims(spec, CLASSES[name], config.models.features or 512)
        if name in IMAGES:
            dealt[name, config.partition, config.federation.clients] = None
    for name, settings, clients in dealt:
        y = np.repeat(np.arange(CLASSES[name]), IMAGES[name])
        assert min(len(split.train) for split in partition(y, clients, settings)) > 1


def test_scalability_has_what_it_promises():
    """All methods except ablations and controls; those that need one network are in a block of their own."""
    methods = {
        name
        for name, entry in PROTOTYPE_METHODS.items()
        if not entry.about.startswith("control") and "ablation" not in entry.about and not entry.semi
    }
    of_one_network = {name for name in BASELINES if BASELINES[name].equal_networks}
    blocks = {"clients": methods | {*BASELINES} - of_one_network, "network": of_one_network | {"local"}}
    for scale, clients, seeds, ranks in (
        ("full", (20, 40, 50, 80, 100), 3, {2, 3, 5, 9, 17, 33}),
        ("small", (20, 50, 100), 2, {2, 3}),
    ):
        cells = read_study(FILES[[path.stem for path in FILES].index("scalability")], scale).cells
        for block, names in blocks.items():
            chosen = [cell for cell in cells if cell.block == block]
            keys = ("method.name", "federation.clients", "federation.participation")
            assert {tuple(cell.settings[key] for key in keys) for cell in chosen} == {
                (name, m, p) for name in names for m in clients for p in (0.2, 0.5, 1.0)
            }
            assert len(chosen) == len(names) * len(clients) * 3 * seeds
        for block in ("strong", "weak"):
            mine = {
                (cell.ranks, cell.config.federation.per_round, cell.config.partition.name)
                for cell in cells
                if cell.block == block and cell.config is not None
            }
            fixed = {"full": 64, "small": 16}[scale]
            assert mine == {(n, fixed if block == "strong" else 4 * (n - 1), "iid") for n in ranks}


def test_comparison_and_its_page_have_every_method():
    """Prototype methods of papers, without ablations and that for unlabelled samples; and a control."""
    methods = {"simplex-fixed"} | {
        name
        for name, entry in PROTOTYPE_METHODS.items()
        if entry.paper != "hpcfl" and "ablation" not in entry.about and not entry.semi
    }
    cells = read_study(STUDIES / "comparison.toml").cells
    assert {cell.settings["method.name"] for cell in cells} == methods | {*BASELINES}
    pages = (ROOT / "docs" / "methods" / "comparison.md").read_text().split("\n## ")
    [page] = [page for page in pages if "hpcfl study run comparison\n" in page]
    assert set(re.findall(r"^\| ([a-z-]+) \| \d", page, re.MULTILINE)) == methods | {*BASELINES}


def test_the_page_says_what_is_so(tmp_path):
    page, papers = ((ROOT / "docs" / name).read_text() for name in ("studies.md", "papers.md"))
    for path in FILES:
        numbers = [len(read_study(path, scale).cells) for scale in ("full", "small")]
        if path.name.startswith(PAPERS) and not path.stem.endswith("-short"):
            row = next(line for line in papers.splitlines() if f"`papers/{path.stem}`" in line)
            assert f"| {numbers[0]} | {numbers[1]} |" in row, path.stem
        else:
            row = next(line for line in page.splitlines() if line.startswith(f"| [{path.name}]"))
            assert row.endswith(f"| {numbers[0]} | {numbers[1]} |")
    (tmp_path / "studies").mkdir()
    (tmp_path / "fedproto.toml").write_text((ROOT / "configs" / "fedproto.toml").read_text())
    example = tmp_path / "studies" / "example.toml"
    example.write_text(page.split("```toml\n")[1].split("```")[0])
    names = [cell.name for cell in read_study(example).cells]
    assert names[0] == "clients-local-20-1.0-s0"
    assert {"clients-fedproto-20-0.2-s0", "weak-r3-participation=8-s0"} < {*names}
    assert all(f"`{name}`" in page for name in ("clients-local-20-1.0-s0", "weak-r3-participation=8-s0"))
    assert len(names) == (3 * 2 * 2 - 2) * 3 + 2 * 3
    assert len(read_study(example, "small").cells) == len(names)
