"""Fifty and more kinds of bad input: one clear sentence, once, exit code 2, nothing left behind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import h5py
import pytest

from tests.helpers.mpi import ROOT, Mpi, mpich, open_mpi

SETTINGS = {
    "train.lrr=1": "unknown key train.lrr (nearest: train.lr)",
    "trian.lr=1": "unknown key trian",
    "method.names=fedproto": "unknown key method.names (nearest: method.name)",
    "train.lr=-1": "train.lr = -1: must be greater than 0",
    "train.lr=0": "train.lr = 0: must be greater than 0",
    "train.lr=nan": "train.lr = nan: must be a finite number",
    "train.lr=inf": "train.lr = inf: must be a finite number",
    "train.lr=fast": "train.lr = 'fast': must be a valid number",
    "train.lr=1e300": "train.lr = 1e+300: must be less than or equal to",
    "train.lr=true": "train.lr = True: must be a valid number",
    "train.lr=[0.1]": "train.lr = [0.1]: must be a valid number",
    "train.lr.high=1": "train.lr = {'high': 1}: must be a valid number",
    "train=5": "train = 5: must be a table, [train]",
    "train.momentum=1.0": "train.momentum = 1.0: must be less than 1",
    "train.batch_size=0": "train.batch_size = 0: must be greater than or equal to 1",
    "train.shuffle=sometimes": "train.shuffle = 'sometimes': must be a valid boolean",
    "train.drop_last=1": "train.drop_last = 1: must be a valid boolean",
    "method.prototypes=after": "method.prototypes = 'after': allowed is 'eval', 'running' or 'before'",
    "train.batch_size=2.5": "train.batch_size = 2.5: must be a valid integer",
    "train.epochs=-3": "train.epochs = -3",
    "seed=-1": "seed = -1: must be greater than or equal to 0",
    "seed=1.0": "seed = 1.0: must be a valid integer",
    "seed=99999999999999999999": "seed = 99999999999999999999",
    "seed=2026-01-01": "seed = datetime.date(2026, 1, 1): must be a valid integer",
    "data.name=spirol": "data.name = 'spirol': no such dataset; built in: spiral, synthetic; prepared in",
    "data.name=cifar10": "not prepared in data (data.root); run once, where there is internet",
    "data.name=../x": "data.name = '../x': must match pattern",
    "data.normalise=no": "data.normalise = 'no': allowed is 'channel', 'half' or 'none'",
    "data.name=7": "data.name = 7: must be a valid string",
    "data.samples_per_class=0": "data.samples_per_class = 0",
    "data.style=fedhn": "data.style = 'fedhn': allowed is 'fednh' or 'supplement' (nearest: fednh)",
    "partition.name=dirichlett": "'dirichlett': allowed is 'dirichlet', 'iid', 'pathological', ",
    "partition.name=file": "partition.name = 'file': 'file' and the key partition.file go together",
    "partition.name=natural": "partition.name = 'natural': this dataset does not say who wrote what",
    "partition.file=none.npz": "partition.file = 'none.npz': No such file or directory",
    "partition.ways=0": "partition.ways = 0: must be greater than or equal to 1",
    "partition.unlabelled=5": "partition.unlabelled = 5: only nway_kshot has unlabelled samples",
    "partition.style=publish": "'publish': allowed is 'stratified' or 'published' (nearest: published)",
    "train.augment=['crop']": "train.augment = ['crop']: only images can be augmented",
    "train.augment=crop": "train.augment = 'crop': must be a valid list",
    "train.augment=['turn']": "'turn': allowed is 'crop', 'flip' or 'randaugment'",
    "partition.alpha=0": "partition.alpha = 0: must be greater than 0",
    "partition.alpha=0.0001": "partition.alpha = 0.0001: none of 1000 draws gave each of 20 clients",
    "partition.train_fraction=1.0": "partition.train_fraction = 1.0: must be less than 1",
    "partition.train_fraction=0.999": "has no test samples after the partition",
    "partition.min_samples=1000": "do not give every client the partition.min_samples = 1000",
    "partition.seed=x": "partition.seed = 'x': must be a valid integer",
    "models.group=mlp5": "models.group = 'mlp5': allowed is one of ",
    "models.group=htfe8": "takes images, a sample here has the shape 2",
    "models.weights=[1]": "models.weights: must have as many numbers as models.list has names",
    "models.list=['nowhere.nets:net']": "models: nowhere.nets:net cannot be imported",
    "models.pretrained.mlp_64=none.pt": "models.pretrained.mlp_64 = 'none.pt': cannot read",
    "models.pretrained.cnn=none.pt": "models.pretrained.cnn: no client has this architecture",
    "models.list=[]": "models.list = []",
    "models.list=['mlp_65']": "(nearest: mlp_64)",
    "models.list=mlp_64": "models.list = 'mlp_64': must be a valid list",
    "models.features=0": "models.features = 0",
    "models.head=big": "models.head = 'big': allowed is 'linear', 'mlp512', 'mlp256', 'mlp128', 'htc4' or",
    "method.name=fedprot": "method.name = 'fedprot': allowed is one of anchor, anchor-fixed, fed",
    "method.name=7": "method.name = 7: must be a valid string",
    "method.aggregate=median": "'median': allowed is one of mean, ppa, weighted, weighted-literal",
    "method.aggregate=[1]": "method.aggregate = [1]: must be a valid string",
    "method.distance=cosin": "'cosin': allowed is one of cosine, euclid, mse, sq (nearest: cosine)",
    "method.refine=thomsen": "'thomsen': allowed is one of none, nonnegative, orthogonal, simplex, tgp, tho",
    "method.anchor=last": "method.anchor = 'last': allowed is 'round', 'first' or 'seed'",
    "log.distances=true": "log.distances = true: refine = 'none' has no iterations",
    "method.tau=3": "method.tau = 3: belongs to refine = tgp, not to 'none'",
    "method.iterations=-1": "method.iterations = -1: belongs to refine = thomson and simplex, not to 'none'",
    "method.stoping=whole": "unknown key method.stoping (nearest: method.stopping)",
    "method.server_epoch=3": "unknown key method.server_epoch (nearest: method.server_epochs)",
    "method.=3": "--set method.=3: write KEY=VALUE",
    "method.a.b=3": "unknown key method.a",
    "method=fedtgp": "method = 'fedtgp': must be a table, [method]",
    "method.distance=sq": "method.distance = 'sq': needs its own method.weight",
    "method.weight=-1": "method.weight = -1: must be greater than or equal to 0",
    "method.scale=0": "method.scale = 0: must be greater than 0",
    "method.infer=heads": "method.infer = 'heads': allowed is 'head', 'global', 'local' or 'trained' (",
    "method.sparsity=50": "method.sparsity = 50: models.features has only 32 dimensions",
    "method.sparsity=-1": "method.sparsity = -1: a number of dimensions must be at least 0",
    "method.sparsity=1.5": "method.sparsity = 1.5: a share must be above 0.0 and below 1.0",
    "method.sparsity=half": "method.sparsity = 'half': must be a whole number of dimensions or a share",
    "method.masked=true": "method.masked = True: allowed is 'never', 'loss' or 'always'",
    "method.masked=loss": "method.masked = 'loss': means nothing with method.sparsity = 0",
    "method.class_weights=fair": "'fair': allowed is 'equal', 'proportional', 'per-class' or",
    "method.curriculum=steep": "'steep': allowed is 'constant', 'linear', 'cosine', 'sigmoid' or 'step'",
    "method.curriculum_end=9": "method.curriculum_end = 9: means nothing with method.curriculum = 'constant'",
    "method.semi=5": "method.semi = 5: no client has unlabelled samples; set partition.name = 'nway_kshot'",
    "method.mix=0.5": "method.mix = 0.5: means nothing with method.semi = 0",
    "method.margin_quantile=2": "method.margin_quantile = 2: must be less than or equal to 1",
    "federation.clients=0": "federation.clients = 0",
    "partition.min_samples=301": "federation.clients = 20: 6000 samples do not give every client",
    "federation.rounds=0": "federation.rounds = 0",
    "federation.rounds=ten": "federation.rounds = 'ten': must be a valid integer",
    "federation.participation=0": "federation.participation = 0: a number of clients must be at least 1",
    "federation.participation=0.0": "federation.participation = 0.0: a ratio must be above 0 and at most 1.0",
    "federation.participation=1.5": "federation.participation = 1.5: a ratio must be above 0 and at most 1.0",
    "federation.participation=21": "federation.participation = 21: more than federation.clients = 20",
    "federation.participation=half": "federation.participation = 'half': must be a ratio",
    "log.evaluate_every=0": "log.evaluate_every = 0",
    "runtime.threads=0": "runtime.threads = 0",
    "runtime.device=cuda:1": "runtime.device = 'cuda:1': must match",
    "runtime.placement=pools": "runtime.placement = 'pools': allowed is 'pool' or 'pinned' (nearest: pool)",
    "runtime.arena=disk": "runtime.arena = 'disk': allowed is 'auto', 'shared', 'mapped' or 'private'",
    "runtime.pretend_nodes=0": "runtime.pretend_nodes = 0",
    "runtime.stall_minutes=-1": "runtime.stall_minutes = -1",
    f"seed=0x{'f' * 5000}": "…: an integer of 20000 bits, more than 1024",
    f"train.augment=[0x{'f' * 5000}]": "…: an integer of 20000 bits, more than 1024",
    f"method.sparsity=0x{'f' * 5000}": "…: an integer of 20000 bits, more than 1024",
    f"{'a.' * 3000}a=1": "…: nested too deeply, more than 50 levels",
    f"models.pretrained.{'a.' * 3000}a=1": "…: nested too deeply, more than 50 levels",
    "novalue": "--set novalue: write KEY=VALUE",
    "=3": "--set =3: write KEY=VALUE",
}

OPTIONS = {
    "margin": (
        "fedtgp",
        'margin = "max-mim"',
        "allowed is 'max-min', 'max-pair', 'fixed' or 'none' (nearest: max",
    ),
    "margin-type": ("fedtgp", "margin = 3", "method.margin = 3: allowed is 'max-min', "),
    "server-epochs": (
        "fedtgp",
        "server_epochs = 0",
        "method.server_epochs = 0: must be greater than or equal to 1",
    ),
    "server-epochs-type": (
        "fedtgp",
        "server_epochs = 1.5",
        "method.server_epochs = 1.5: must be a valid integer",
    ),
    "server-epochs-many": ("fedtgp", "server_epochs = 10000000", "must be less than or equal to 1000000"),
    "server-network": ("fedorgp", "server_network = 1", "method.server_network = 1: must be a valid boolean"),
    "tau": ("fedtgp", "tau = 0", "method.tau = 0: must be greater than 0"),
    "tau-type": ("fedtgp", 'tau = "big"', "method.tau = 'big': must be a valid number"),
    "tau-nan": ("fedtgp", "tau = nan", "method.tau = nan: must be a finite number"),
    "tau-without-margin": ("fedtgp-scl", "tau = 3", "with margin = 'none' there is no margin"),
    "pull": ("fedorgp", "pull = -1", "method.pull = -1: must be greater than or equal to 0"),
    "push-table": ("fedorgp", "push = {a = 1}", "method.push = {'a': 1}: must be a valid number"),
    "iterations": (
        "protonorm",
        "iterations = -1",
        "method.iterations = -1: must be greater than or equal to 0",
    ),
    "stopping": ("protonorm", 'stopping = "hole"', "allowed is 'tangent' or 'whole' (nearest: whole)"),
    "two": ("fedtgp", "server_epochs = 0\ntau = 0", "(and 1 more)"),
    "unknown-option": ("fedtgp", "taw = 3", "unknown key method.taw (nearest: method.tau)"),
    "unknown-of-local": ("local", "taw = 3", "unknown key method.taw (nearest: method.tau)"),
    "option-of-local": ("local", "tau = 3", "method.tau: 'local' exchanges nothing and has no such slot"),
    "option-of-a-baseline": ("fedgh", "server_lr = 0", "method.server_lr = 0: must be greater than 0"),
    "option-of-another": (
        "feddistill",
        "server_epochs = 3",
        "method.server_epochs = 3: 'feddistill' has no such",
    ),
    "slot-of-prototypes": (
        "lg-fedavg",
        'refine = "tgp"',
        "method.refine = 'tgp': 'lg-fedavg' has no such option",
    ),
    "prototypes-of-a-baseline": (
        "fedgh",
        'prototypes = "before"',
        "method.prototypes = 'before': 'fedgh' has no such option",
    ),
    "unknown-of-a-baseline": (
        "fedgh",
        "server_lrr = 1",
        "unknown key method.server_lrr (nearest: method.server_lr)",
    ),
    "inference-of-a-baseline": (
        "fedgh",
        'infer = "global"',
        "method.infer = 'global': method 'fedgh' has no such",
    ),
    "inference-before-a-download": (
        "fedproto",
        'infer = "trained"',
        "prototypes do not change a client's head",
    ),
}
"""Options of algorithms and parts: method, setting, and what is said."""

FILES: dict[str, tuple[bytes, str]] = {
    "not-toml": (b"[train\nlr = 1", "not-toml.toml is not TOML: "),
    "no-full-batch": (
        b"[train]\ndrop_last = true\nbatch_size = 100000",
        "training samples, fewer than train.batch_size = 100000",
    ),
    "twice": (b"seed = 1\nseed = 2", "twice.toml is not TOML: "),
    "not-utf8": (b"\xff\xfe\x00seed", "not-utf8.toml is not UTF-8 text (byte 0)"),
    "binary": (bytes(range(256)), "binary.toml is not UTF-8 text"),
    "deep": (b"a = " + b"[" * 20000, "deep.toml is not TOML: "),
    "deep-key": (b"a." * 3000 + b"a = 1", "deep-key.toml: nested too deeply, more than 50 levels"),
    "long-integer": (b"seed = 0x" + b"f" * 5000, "long-integer.toml: an integer of 20000 bits, more than"),
    "unknown-key": (b"[train]\nlrate = 1", "unknown key train.lrate"),
    "both": (
        b'[models]\ngroup = "mlp4"\nlist = ["mlp_64"]',
        "models.list and models.group: give one of them",
    ),
    "published-iid": (
        b'[partition]\nname = "iid"\nstyle = "published"',
        "partition.style = 'published': only dirichlet and pathological have it, not iid",
    ),
    "slots-that-contradict": (
        b'[method]\nname = "anchor"\nforget = true',
        "method.forget = true: with anchor = 'first' prototypes are settled once",
    ),
    "too-few-dimensions": (
        b'[method]\nname = "anchor"\n[models]\nfeatures = 2',
        "models.features = 2: refine = 'nonnegative' has at most 2 different sets of dimensions",
    ),
    "distances-of-the-seed": (
        b'[method]\nname = "protonorm"\nanchor = "seed"\n[log]\ndistances = true',
        "log.distances = true: with anchor = 'seed' nothing is refined in any round",
    ),
    "distances-of-a-simplex": (
        b'[method]\nname = "simplex"\n[models]\nfeatures = 5\n[log]\ndistances = true',
        "log.distances = true: refine = 'simplex' has no iterations for 6 classes in 5 dimensions",
    ),
    **{
        name: (f'[method]\nname = "{method}"\n{setting}'.encode(), message)
        for name, (method, setting, message) in OPTIONS.items()
    },
    "slots-of-local": (b'[method]\nname = "local"\nweight = 1.0', "method.weight: 'local' exchanges nothing"),
}


def check(code: int, said: str, message: str, left: list[str]) -> None:
    assert code == 2, said
    ours = [line for line in said.splitlines() if line.startswith("hpcfl: ")]
    assert len(ours) == 1, said
    assert message in ours[0]
    assert "Traceback" not in said
    assert left == []


def remaining(directory: Path) -> list[str]:
    return sorted(p.name for p in directory.iterdir() if p.suffix not in (".toml", ".keep"))


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_alone(hpcfl, setting):
    done = hpcfl("train", "--set", setting)
    check(done.exit_code, done.output, SETTINGS[setting], remaining(Path()))


@pytest.mark.parametrize("name", FILES)
def test_files_alone(hpcfl, name):
    Path(f"{name}.toml").write_bytes(FILES[name][0])
    done = hpcfl("train", f"{name}.toml")
    check(done.exit_code, done.output, FILES[name][1], remaining(Path()))


def refuse(mpi: Mpi, directory: Path, attempts: dict[str, tuple[list, str]]) -> None:
    """Checks in one start that each attempt is said once and ends with code 2 on every rank."""
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    asked = json.dumps([arguments for arguments, _ in attempts.values()])
    done = mpi.run(3, "-m", "tests.mpi.refusals", asked, cwd=directory, timeout=120, env=environ)
    assert done.returncode == 0, done.stderr
    said = done.stderr.split("codes [2, 2, 2]\n")
    assert len(said) == len(attempts) + 1, done.stderr
    for words, (name, (_, message)) in zip(said[:-1], attempts.items(), strict=True):
        check(2, words, message, [])
        assert words.count("\n") == 1, name
    assert remaining(directory) == []


def test_settings_and_files_under_both_mpiruns(tmp_path, mpi: Mpi):
    attempts: dict[str, tuple[list, str]] = {
        setting: ([None, [setting], None, False], message) for setting, message in SETTINGS.items()
    }
    for name, (content, message) in FILES.items():
        (tmp_path / f"{name}.toml").write_bytes(content)
        attempts[name] = [f"{name}.toml", [], None, False], message
    refuse(mpi, tmp_path, attempts)


def test_one_setting_as_a_user_gives_it(tmp_path, mpi: Mpi):
    done = mpi.run(3, "-m", "hpcfl", "train", "--set", "train.lr=0", cwd=tmp_path, timeout=60)
    check(done.returncode, done.stdout + done.stderr, SETTINGS["train.lr=0"], remaining(tmp_path))


PATHS: dict[str, tuple[list, str]] = {
    "missing": (["missing.toml", [], None, False], "cannot read configuration missing.toml: No such file"),
    "directory": ([".", [], None, False], "cannot read configuration .: Is a directory"),
    "nowhere": (
        [None, [], "text.keep/run.h5", False],
        "cannot write text.keep/run.h5: text.keep is not a directory",
    ),
    "dot": ([None, [], ".", False], "Is a directory"),
    "empty": ([None, [], "", False], "Is a directory"),
    "long": ([None, [], "x" * 253 + ".h5", False], "File name too long"),
    "device": ([None, [], "/dev/null", False], "cannot write /dev/null: it is not a file"),
    "foreign": ([None, [], "foreign.keep", False], "is an HDF5 file, but not a log of hpcfl"),
    "foreign, fresh": ([None, [], "foreign.keep", True], "is an HDF5 file, but not a log of hpcfl"),
    "text": ([None, [], "text.keep", False], "cannot read text.keep: not an HDF5 file"),
    "cuda": ([None, ["runtime.device=cuda"], None, False], "'cuda': this node has no cuda device"),
}


@pytest.mark.mpi
def test_paths_and_devices(tmp_path, hpcfl):
    h5py.File(tmp_path / "foreign.keep", "w").close()
    (tmp_path / "text.keep").write_text("not mine")
    for (config, settings, out, fresh), message in PATHS.values():
        options = [*([config] if config else []), *(f"--set={setting}" for setting in settings)]
        options += [*(["--out", out] if out is not None else []), *(["--fresh"] if fresh else [])]
        done = hpcfl("train", *options)
        check(done.exit_code, done.output, message, remaining(tmp_path))
    for mpi in (mpich(), open_mpi()):
        refuse(mpi, tmp_path, PATHS)
    assert (tmp_path / "text.keep").read_text() == "not mine"


@pytest.mark.mpi
def test_ranks_that_read_different_configurations_are_refused(tmp_path):
    program = (
        "import os, sys; from hpcfl.cli import main; "
        "sys.argv = ['hpcfl', 'train', '--set', 'seed=' + os.environ['PMI_RANK']]; main()"
    )
    done = mpich().run(3, "-c", program, cwd=tmp_path, timeout=60)
    check(done.returncode, done.stderr, "the ranks read different configurations", remaining(tmp_path))


@pytest.mark.mpi
def test_a_missing_mpi_library_is_one_sentence(tmp_path):
    environ = os.environ | {"MPI4PY_LIBMPI": "/nonexistent/libmpi.so"}
    done = mpich().run(2, "-m", "hpcfl", "train", cwd=tmp_path, timeout=60, env=environ)
    check(done.returncode, done.stderr, "MPI cannot be loaded", remaining(tmp_path))


@pytest.mark.mpi
def test_bad_input_seen_by_one_rank_only_ends_all(tmp_path):
    """A file that one node does not see yet: the ranks disagree, and still all end alike."""
    (tmp_path / "c.toml").write_text("seed = 1")
    program = (
        "import os, sys; from hpcfl.cli import main; "
        "sys.argv = ['hpcfl', 'train', 'missing.toml' if os.environ['PMI_RANK'] == '2' else 'c.toml']; main()"
    )
    done = mpich().run(3, "-c", program, cwd=tmp_path, timeout=60)
    check(done.returncode, done.stderr, "cannot read configuration missing.toml", remaining(tmp_path))


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_directory_without_write_permission(tmp_path, hpcfl):
    (tmp_path / "closed").mkdir(mode=0o500)
    assert hpcfl("train", "--out", "closed/run.h5").exit_code == 2


def test_there_are_fifty_kinds():
    assert len(SETTINGS) + len(FILES) >= 50
