"""Parts and algorithms from outside: what they declare, what is refused, and what a run makes of them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

import hpcfl as hpcfl_package
from hpcfl.config.method import MethodConfig
from hpcfl.errors import BadInput
from hpcfl.log.reader import read_log
from hpcfl.methods.catalogue import GAMMA_DEFAULT, method_spec
from hpcfl.methods.parts import PARTS
from hpcfl.methods.plugins import KINDS, load
from hpcfl.methods.rules import check_dims
from hpcfl.methods.spec import PrototypeSpec
from tests.helpers.mpi import ROOT, mpich
from tests.helpers.runs import assert_equal_runs

IDEAS = '''
import torch
import own_helper
from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.algorithms.prototype_algorithm import PrototypeAlgorithm
from hpcfl.config.section import Positive, Section
from hpcfl.exchange.payload import Rows
from hpcfl.methods.aggregate import Aggregate, Upload, mean, weighted
from hpcfl.methods.local_loss import distance
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.refine.base import Refinement
from hpcfl.methods.refine.thomson import Thomson


class Shrink(Refinement):
    """Multiplies prototypes by a factor that falls from round to round."""

    class Options(Section):
        strength: Positive = 0.5
        """The factor of a round."""

    def __init__(self, context):
        super().__init__(context)
        self.factor = torch.ones(1)

    def __call__(self, t, last, new, uploads):
        own_helper.kill_after_a_checkpoint()
        self.factor *= own_helper.power(self.context.options["strength"])
        return Prototypes(new.value_KD * self.factor, new.present_K)

    def state(self):
        return {"factor": self.factor}


class Unit(Refinement):
    unit_length = True
    no_masks = "has its reasons"
    min_classes = 7

    @staticmethod
    def impossible(classes, features):
        return "is odd" if features % 2 else ""


class Learner(Refinement):
    learns = True


class MyThomson(Thomson):
    """Inherits what Thomson declares."""


class Counts(Aggregate):
    needs_counts = True

    def __call__(self, uploads):
        assert all(upload.count_K.sum() > 0 for upload in uploads)
        return weighted(uploads)


class Keeps(Aggregate):
    keeps_uploads = True
    sends_products = True

    class Options(Section):
        strength: Positive = 1.0


@distance(weight=3.0, by_angle=True)
def angle(z, target):
    return 1 - torch.cosine_similarity(z, target)


def plain(z, target):
    return (z - target).abs().mean(1)


class Noisy(PrototypeAlgorithm):
    """A variant of prototype methods."""

    class Options(Section):
        noise: Positive = 0.1
        """How much."""

    def upload(self, client, download):
        payload = super().upload(client, download)
        for rows in payload.values():
            rows.value_KD.add_(self.options.noise)
        return payload


class Means(Algorithm):
    """Uploads the counts of classes and does nothing else."""

    def upload_arrays(self):
        return [Rows("counts", self.plan.dims[0], 1)]

    def upload(self, client, download):
        count_K = client.count_K.float()
        return {"counts": Prototypes(count_K[:, None], count_K > 0)}

    def aggregate(self, t, last, uploads):
        return {}


class Slotted(Refinement):
    class Options(Section):
        weight: float = 1.0


class BadMask(Refinement):
    no_masks = True


class BadOptions(Refinement):
    Options = dict


class BadAlgorithm(Means):
    download_changes = "heads"


class BadReceivers(Means):
    download_changes = "head"


class Incomplete(Algorithm):
    pass


class Unrelated:
    pass


number = 3


class FailsOnServer(Refinement):
    def __call__(self, t, last, new, uploads):
        raise ZeroDivisionError("own mistake")  # the server's line


class FailsOnClient(Means):
    def upload(self, client, download):
        if client.id == 3:
            raise ZeroDivisionError("own mistake")  # the client's line
        return super().upload(client, download)


class FailsAtStart(Means):
    def __init__(self, plan, device):
        raise ZeroDivisionError("own mistake")  # the line at the start
'''
HELPER = """
import glob, os, time


def power(x):
    return x**2


def kill_after_a_checkpoint():
    if os.environ.get("OWN_KILL"):
        time.sleep(0.05)
        if glob.glob("parts.h5.ckpt/manifest-*.json"):
            os.kill(os.getpid(), 9)
"""
SHORT = ["data.samples_per_class=100", "federation.rounds=3", "federation.participation=6"]
SHORT += ["models.features=8"]
DISTRIBUTION = {
    "METADATA": "Metadata-Version: 2.1\nName: own-plugins\nVersion: 1.0\n",
    "entry_points.txt": "[hpcfl.methods]\nown-shrink = own_ideas:Shrink\nown-means = own_ideas:Means [x]\n"
    "own-angle = own_ideas : angle\nown-wrong = own_ideas\n",
}


@pytest.fixture(scope="module")
def ideas(tmp_path_factory: pytest.TempPathFactory):
    """A directory with own_ideas.py, from which it is imported into this process too."""
    directory = tmp_path_factory.mktemp("ideas")
    write_ideas(directory)
    sys.path.append(str(directory))
    importlib.invalidate_caches()
    yield directory
    sys.path.remove(str(directory))
    for name in ("own_ideas", "own_helper"):
        sys.modules.pop(name, None)


def write_ideas(directory: Path) -> Path:
    (directory / "own_ideas.py").write_text(IDEAS)
    (directory / "own_helper.py").write_text(HELPER)
    return directory


def spec(**slots: object) -> PrototypeSpec:
    found = method_spec(MethodConfig(name="fedproto", **slots), data="any")  # type: ignore[arg-type]
    assert isinstance(found, PrototypeSpec)
    return found


def refusal(**slots: object) -> str:
    with pytest.raises(BadInput) as caught:
        method_spec(MethodConfig(**{"name": "fedproto"} | slots), data="any")  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def train(
    directory: Path,
    *settings: str,
    out: str = "run.h5",
    more: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess:
    """Runs `hpcfl train` in a directory, in a process of its own."""
    command = [sys.executable, "-m", "hpcfl", "train", "--out", out, *more]
    return start(directory, command, *settings, env=env)


def start(
    directory: Path, command: list[str], *settings: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess:
    options = [f"--set={setting}" for setting in (*SHORT, *settings)]
    environ = os.environ | {"PYTHONPATH": str(ROOT)} | (env or {})
    return subprocess.run(
        [*command, *options], cwd=directory, env=environ, capture_output=True, text=True, timeout=120
    )


# --- what a part declares


@pytest.mark.parametrize(("slot", "name"), [(slot, name) for slot in PARTS for name in PARTS[slot]])
def test_the_classes_of_hpcfl_declare_what_their_entries_say(slot, name):
    part = PARTS[slot][name]
    declared = KINDS[slot].of(part.path, load(part.path))
    functions = {field.name for field in fields(part) if callable(field.default)} - {"Options"}
    for function in functions:
        for dims in ((2, 2), (6, 8), (9, 4), (1000, 3)):
            assert getattr(declared, function)(*dims) == getattr(part, function)(*dims)
    same = {function: getattr(part, function) for function in functions}
    assert replace(declared, about=part.about, paper=part.paper, **same) == part


def test_unit_length_gets_gamma(ideas):
    assert spec(refine="own_ideas:Unit").scale == GAMMA_DEFAULT
    assert spec(refine="own_ideas:MyThomson").scale == GAMMA_DEFAULT
    assert spec(refine="own_ideas:Shrink").scale == 1
    assert spec(refine="own_ideas:Unit", distance="own_ideas:angle").scale == 1, "only directions count"


def test_a_class_derived_from_one_of_hpcfl_inherits_its_declarations_and_options(ideas):
    assert spec(refine="own_ideas:MyThomson", iterations=7).options["iterations"] == 7
    with pytest.raises(BadInput, match="needs two classes"):
        check_dims(spec(refine="own_ideas:MyThomson"), 1, 8)


def test_what_learns_wants_the_uploads_of_every_round(ideas):
    assert refusal(refine="own_ideas:Learner", anchor="first") == (
        "method.anchor = 'first': refine = 'own_ideas:Learner' learns from the uploads of every round"
    )
    assert "learns from each client's own prototypes" in refusal(
        refine="own_ideas:Learner", aggregate="own_ideas:Counts"
    )
    assert spec(refine="own_ideas:Learner", aggregate="own_ideas:Keeps").sends_products


def test_a_reason_against_masks_refuses_sparsity(ideas):
    assert refusal(refine="own_ideas:Unit", sparsity=2) == (
        "method.sparsity = 2: refine = 'own_ideas:Unit' has its reasons"
    )
    assert spec(refine="own_ideas:Shrink", sparsity=2).sparsity == 2


def test_limits_of_classes_and_features_are_kept(ideas):
    with pytest.raises(BadInput, match="needs 7 classes, the data has 6"):
        check_dims(spec(refine="own_ideas:Unit"), 6, 8)
    with pytest.raises(BadInput, match="refine = 'own_ideas:Unit' is odd"):
        check_dims(spec(refine="own_ideas:Unit"), 7, 9)
    check_dims(spec(refine="own_ideas:Unit"), 7, 8)


def test_what_an_aggregation_declares_decides_what_travels(ideas):
    counts, keeps = spec(aggregate="own_ideas:Counts"), spec(aggregate="own_ideas:Keeps")
    assert (counts.sends_counts, counts.sends_products) == (True, False)
    assert (keeps.sends_counts, keeps.sends_products) == (False, True)
    assert "goes on with every client's last upload" in refusal(aggregate="own_ideas:Keeps", forget=True)
    assert "anchor = 'first' settles lengths" in refusal(aggregate="own_ideas:Keeps", anchor="first")


def test_a_distance_has_its_own_weight_or_needs_one(ideas):
    assert spec(distance="own_ideas:angle").weight == 3
    assert "compares directions" in refusal(distance="own_ideas:angle", scale=2.0)
    assert refusal(distance="own_ideas:plain") == (
        "method.distance = 'own_ideas:plain': needs its own method.weight"
    )
    assert spec(distance="own_ideas:plain", weight=2.0).weight == 2


# --- what is refused


def test_options_are_checked_with_their_full_key(ideas):
    assert refusal(refine="own_ideas:Shrink", strength=-1.0) == (
        "method.strength = -1.0: must be greater than 0"
    )
    assert refusal(refine="own_ideas:Shrink", strenght=1.0) == (
        "unknown key method.strenght (nearest: method.strength)"
    )
    assert "method.strength" in refusal(strength=0.3)
    assert spec(refine="own_ideas:Shrink", strength=0.3).options == {"strength": 0.3}


def test_two_parts_with_the_same_option_are_refused(ideas):
    assert refusal(refine="own_ideas:Shrink", aggregate="own_ideas:Keeps") == (
        "method.strength: method.refine and method.aggregate both have this option"
    )
    assert refusal(refine="own_ideas:Slotted") == (
        "method.refine: own_ideas:Slotted has the option 'weight', a key of [method] already"
    )


@pytest.mark.parametrize(
    ("slot", "name", "reason"),
    [
        ("refine", "Unrelated", "is not a class derived from hpcfl.methods.refine.base.Refinement"),
        ("refine", "plain", "is not a class derived from hpcfl.methods.refine.base.Refinement"),
        ("refine", "number", "is not a class derived from hpcfl.methods.refine.base.Refinement"),
        ("refine", "Counts", "is not a class derived from hpcfl.methods.refine.base.Refinement"),
        ("refine", "BadMask", "no_masks = True must be of type str"),
        ("refine", "BadOptions", "must be a class derived from Section"),
        ("aggregate", "Shrink", "is not a class derived from hpcfl.methods.aggregate.Aggregate"),
        ("distance", "Shrink", "is not a function (features, prototypes) → distances"),
        ("distance", "number", "is not a function (features, prototypes) → distances"),
        ("name", "Shrink", "is not a class derived from hpcfl.algorithms.algorithm.Algorithm"),
        ("name", "Algorithm", "is not a class derived from hpcfl.algorithms.algorithm.Algorithm"),
        ("name", "Incomplete", "does not define aggregate"),
        ("name", "BadAlgorithm", "download_changes = 'heads': allowed is one of nothing, head, network"),
        ("name", "BadReceivers", "a download that changes the head must go to all"),
    ],
)
def test_a_wrong_class_is_refused_with_its_line(ideas, slot, name, reason):
    text = refusal(**{slot: f"own_ideas:{name}"})
    assert reason in text
    assert f"own_ideas:{name}" in text
    starts = f"class {name}", f"def {name}"
    lines = [n for n, line in enumerate(IDEAS.splitlines(), 1) if line.startswith(starts)]
    if lines:
        assert f"({ideas / 'own_ideas.py'}:{lines[0]})" in text


def test_an_unknown_name_is_refused_with_all_known_ones():
    for slot in ("name", "refine", "aggregate", "distance"):
        text = refusal(**{slot: "whitn"})
        assert text.startswith(f"method.{slot} = 'whitn': allowed is one of ")


@pytest.mark.parametrize("name", ["own_ideas:Missing", "own_nowhere:Shrink", "own_broken:Shrink"])
def test_a_path_that_cannot_be_loaded_is_one_sentence_with_code_2(tmp_path, name):
    write_ideas(tmp_path)
    (tmp_path / "own_broken.py").write_text("import own_ideas\n\ndef f(:\n")
    done = train(tmp_path, f"method.refine={name}")
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("hpcfl: method.refine: ")
    if "broken" in name:
        assert f"{tmp_path / 'own_broken.py'}:3)" in done.stderr


# --- runs


def test_parts_are_equal_alone_and_under_mpirun_and_in_a_study(tmp_path):
    """A refinement with a state, an aggregation that needs counts, a distance; then an algorithm."""
    write_ideas(tmp_path)
    parts = ["method.refine=own_ideas:Shrink", "method.strength=0.9", "method.aggregate=own_ideas:Counts"]
    parts += ["method.distance=own_ideas:angle"]
    mpi = mpich()
    for out, settings in (("parts", parts), ("means", ["method.name=own_ideas:Means"])):
        done = train(tmp_path, *settings, out=f"{out}.h5")
        assert done.returncode == 0, done.stderr
        command = mpi.command(3, "-m", "hpcfl", "train", "--out", f"{out}3.h5")
        done = start(tmp_path, command, *settings)
        assert done.returncode == 0, done.stderr
        assert_equal_runs(tmp_path / f"{out}.h5", tmp_path / f"{out}3.h5")
    run = read_log(tmp_path / "parts.h5")
    assert str(run.attributes["method"]).startswith("aggregate own_ideas:Counts, refine own_ideas:Shrink")
    assert str(run.attributes["method"]).endswith("strength 0.9")
    assert (run["/round/bytes_side"] > 0).all(), "counts travel"
    assert {key for key in run.attributes if key.startswith("checksum_code")} == {
        "checksum_code_own_ideas",
        "checksum_code_own_helper",
    }
    sets = "\n".join(line.replace("=", " = ", 1) for line in SHORT)
    names = {"aggregate": "Counts", "distance": "angle", "refine": "Shrink"}
    quoted = "\n".join(f"method.{key} = 'own_ideas:{name}'" for key, name in names.items())
    (tmp_path / "study.toml").write_text(
        f"[set]\n{sets}\n{quoted}\n[[block]]\nname = 'b'\ngrid.method.strength = [0.9, 0.8]\n"
    )
    study = [sys.executable, "-m", "hpcfl", "study", "run", "study.toml", "--out", "study"]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(study, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_equal_runs(tmp_path / "study" / "b-0.9.h5", tmp_path / "parts.h5")
    (tmp_path / "own_helper.py").write_text(HELPER + "\n# edited\n")
    done = subprocess.run(study, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == 1
    assert "own_helper has changed since" in done.stdout + done.stderr


def test_a_killed_run_goes_on_with_the_state_of_its_parts(tmp_path):
    write_ideas(tmp_path)
    settings = ["method.refine=own_ideas:Shrink", "runtime.checkpoint_rounds=1", "federation.rounds=40"]
    assert train(tmp_path, *settings, out="whole.h5").returncode == 0
    assert train(tmp_path, *settings, out="parts.h5", env={"OWN_KILL": "1"}).returncode == -9
    done = train(tmp_path, *settings, out="parts.h5")
    assert "continues after round " in done.stdout + done.stderr
    assert_equal_runs(tmp_path / "parts.h5", tmp_path / "whole.h5")


def test_a_variant_of_a_prototype_method_keeps_its_keys(tmp_path):
    write_ideas(tmp_path)
    settings = ["method.name=own_ideas:Noisy", "method.refine=thomson", "method.iterations=3"]
    done = train(tmp_path, *settings, "method.noise=0.2")
    assert done.returncode == 0, done.stderr
    run = read_log(tmp_path / "run.h5")
    assert "refine thomson" in str(run.attributes["method"])
    assert "iterations 3, stopping tangent, " in str(run.attributes["method"])
    assert str(run.attributes["method"]).endswith(", noise 0.2")
    done = train(tmp_path, *settings, "method.noise=0.2", "method.forget=true")
    assert done.returncode == 2
    assert "another configuration" in done.stderr


def test_the_log_has_a_file_name_without_a_colon(tmp_path):
    write_ideas(tmp_path)
    done = start(tmp_path, [sys.executable, "-m", "hpcfl", "train"], "method.name=own_ideas:Means")
    assert done.returncode == 0, done.stderr
    [log] = tmp_path.glob("*.h5")
    assert log.name.startswith("own_ideas.Means-spiral-")


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ("method.refine=own_ideas:FailsOnServer", "the server's line"),
        ("method.name=own_ideas:FailsOnClient", "the client's line"),
        ("method.name=own_ideas:FailsAtStart", "the line at the start"),
    ],
)
def test_an_exception_during_the_run_shows_the_users_line_and_ends_all_ranks(tmp_path, settings, line):
    write_ideas(tmp_path)
    alone = [[sys.executable]] if "Client" in settings else []
    for command in (*alone, mpich().command(3)):
        done = start(tmp_path, [*command, "-m", "hpcfl", "train", "--out", "run.h5", "--fresh"], settings)
        assert done.returncode == 1, done.stderr
        assert f'raise ZeroDivisionError("own mistake")  # {line}' in done.stderr
        number = next(n for n, text in enumerate(IDEAS.splitlines(), 1) if text.endswith(f"# {line}"))
        assert f'own_ideas.py", line {number}' in done.stderr
        assert "ZeroDivisionError: own mistake" in done.stderr


# --- entry points


def test_entry_points_of_an_installed_package(tmp_path):
    installed, work = tmp_path / "installed", tmp_path / "work"
    work.mkdir()
    (installed / "own_plugins-1.0.dist-info").mkdir(parents=True)
    write_ideas(installed)
    for name, text in DISTRIBUTION.items():
        (installed / "own_plugins-1.0.dist-info" / name).write_text(text)
    path = {"PYTHONPATH": f"{ROOT}:{installed}"}
    for name in ("method.refine=own-shrink", "method.name=own-means", "method.distance=own-angle"):
        done = train(work, name, out=f"{name}.h5", env=path)
        assert done.returncode == 0, done.stderr
    assert "checksum_code_own_helper" in read_log(work / "method.refine=own-shrink.h5").attributes
    done = train(work, "method.refine=own_ideas:Shrink", out="path.h5", env=path)
    assert_equal_runs(work / "path.h5", work / "method.refine=own-shrink.h5")
    done = train(work, "method.refine=own-wrong", env=path)
    assert done.returncode == 2
    assert done.stderr == "hpcfl: entry point 'own-wrong' of hpcfl.methods: 'own_ideas' is not module:name\n"
    done = train(work, "method.refine=own-shrnk", env=path)
    assert done.returncode == 2
    assert "(nearest: own-shrink)" in done.stderr
    done = train(work, "method.refine=own-means", env=path)
    assert done.returncode == 2
    assert "own_ideas:Means" in done.stderr
    catalog = [sys.executable, "-m", "hpcfl", "catalog"]
    done = subprocess.run(catalog, env=os.environ | path, capture_output=True, text=True)
    assert "own-shrink  own_ideas:Shrink" in done.stdout
    done = subprocess.run([*catalog, "own-shrink"], env=os.environ | path, capture_output=True, text=True)
    assert "The factor of a round." in done.stdout


# --- code is part of a run


def test_an_edited_source_of_a_run_is_refused(tmp_path):
    write_ideas(tmp_path)
    (tmp_path / "own_nets.py").write_text(
        "from torch import nn\ndef tiny(shape, d):\n    return nn.Linear(shape[0], d)\n"
    )
    settings = ["method.refine=own_ideas:Shrink", "models.list=['own_nets:tiny']"]
    assert train(tmp_path, *settings, "federation.rounds=1").returncode == 0
    (tmp_path / "own_unrelated.py").write_text("x = 1\n")
    done = train(tmp_path, *settings)
    assert done.returncode == 0, done.stderr
    for name in ("own_helper", "own_ideas", "own_nets"):
        file = tmp_path / f"{name}.py"
        text = file.read_text()
        file.write_text(text + "\n")
        for rounds in ("federation.rounds=3", "federation.rounds=4"):
            done = train(tmp_path, *settings, rounds)
            assert done.returncode == 2, "of a finished run, and of one that would go on"
            assert done.stderr == (
                f"hpcfl: run.h5 is a run with other code: {name} has changed since; --fresh keeps it aside "
                "and runs again, or choose another --out\n"
            )
        file.write_text(text)
    assert train(tmp_path, *settings).returncode == 0, "as it was again"
    (tmp_path / "own_helper.py").write_text(HELPER + "\n")
    assert train(tmp_path, *settings, more=("--fresh",)).returncode == 0
    assert (tmp_path / "run~1.h5").exists()


def test_a_rank_that_sees_other_code_is_refused(tmp_path):
    for name in ("mine", "other", "work"):
        (tmp_path / name).mkdir()
    write_ideas(tmp_path / "mine")
    (tmp_path / "other" / "own_helper.py").write_text(HELPER + "\n# another\n")
    (tmp_path / "work" / "start.sh").write_text(
        'if [ "$PMI_RANK" = 1 ]; then export PYTHONPATH=$OTHER:$PYTHONPATH; fi\nexec "$@"\n'
    )
    mpi = mpich()
    command = [str(mpi.bin / "mpirun"), "-n", "3", "sh", "start.sh", sys.executable, "-m", "hpcfl", "train"]
    path = {"PYTHONPATH": f"{ROOT}:{tmp_path / 'mine'}", "OTHER": str(tmp_path / "other")}
    done = start(tmp_path / "work", [*command, "--out", "run.h5"], "method.refine=own_ideas:Shrink", env=path)
    assert done.returncode == 2
    assert done.stderr.count("the ranks read different configurations, data, splits or code") == 1


def test_from_python_other_loaded_modules_do_not_count(ideas, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_loaded.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("own_loaded")
    settings = [*SHORT, "federation.rounds=1", "method.refine=own_ideas:Shrink"]
    run = hpcfl_package.train(None, out="run.h5", settings=settings)
    assert run is not None
    assert {key for key in run.attributes if key.startswith("checksum_code")} == {
        "checksum_code_own_ideas",
        "checksum_code_own_helper",
    }
