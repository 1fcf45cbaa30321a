"""Rules about packages: which there are, and who may import what."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from hpcfl.config.identity import keys
from hpcfl.config.method import MethodConfig
from hpcfl.methods.catalogue import OPTION_NAMES
from tests.stress.mutations.kinds import make_log

PACKAGE = Path(__file__).parent.parent / "hpcfl"
FILES = sorted(PACKAGE.rglob("*.py"))

LAYERS = (
    {"errors"},
    {"share", "utils"},
    {"config", "exchange", "metrics"},
    {"comm", "data", "methods", "models", "system"},
    {"federation"},
    {"log", "runtime", "training"},
    {"algorithms"},
    {"checkpoint"},
    {"engine"},
    {"export", "plan", "watch"},
    {"bench", "doctor", "study"},
    {"report"},
    {"api", "cli"},
    {"__init__", "__main__"},
)
"""Packages, and modules that belong to none, from the lowest layer to the highest."""
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FLAT = {"__init__", "__main__", "api", "errors"}
"""The modules that lie in no package."""


def package(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Returns the full names of all modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def used_packages(path: Path) -> set[str]:
    """Returns the packages of hpcfl that a file imports from; its version is no package."""
    names = {name for name in imports(path) if name.startswith("hpcfl.")}
    return {name.split(".")[1] for name in names} - {"__version__"}


def test_every_package_has_a_layer():
    """A new package must be given its place in LAYERS."""
    assert {package(path) for path in FILES} == LEVEL.keys()


def test_only_few_modules_lie_in_no_package():
    assert {path.stem for path in PACKAGE.glob("*.py")} == FLAT


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_package_imports_only_from_lower_layers(path):
    own = package(path)
    higher = {name for name in used_packages(path) - {own} if LEVEL[name] >= LEVEL[own]}
    assert not higher, f"{own} is not above {', '.join(sorted(higher))}"


def test_only_comm_imports_mpi4py():
    users = {package(path) for path in FILES if any(name.startswith("mpi4py") for name in imports(path))}
    assert users == {"comm"}


def test_methods_touch_neither_files_nor_the_clock():
    for path in FILES:
        if package(path) in ("algorithms", "exchange", "methods"):
            used = {name.split(".")[0] for name in imports(path)}
            assert not used & {"time", "os", "pathlib", "h5py", "io"}, path


def test_files_are_short():
    assert {str(path): n for path in FILES if (n := len(path.read_text().splitlines())) > 250} == {}


@pytest.mark.parametrize(
    "command", [["--help"], ["train", "--help"], ["catalog"], ["train", "--set", "train.lr=0"]]
)
def test_help_the_catalogue_and_bad_input_load_neither_torch_nor_mpi(command):
    program = (
        "import sys; from click.testing import CliRunner; from hpcfl.cli import main; "
        f"code = CliRunner().invoke(main, {command!r}).exit_code; "
        "print(code, sorted({'torch', 'mpi4py'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1)[1].strip() == "[]"
    assert done.stdout[0] == ("2" if "train.lr=0" in command else "0")


def test_show_of_a_run_loads_only_what_reads_a_log(tmp_path):
    """Half of its time is imports."""
    make_log(tmp_path / "run.h5")
    program = (
        "import sys; from click.testing import CliRunner; from hpcfl.cli import main; "
        f"done = CliRunner().invoke(main, ['show', {str(tmp_path / 'run.h5')!r}]); "
        "assert not done.exit_code; "
        "print(sorted({'torch', 'hpcfl.federation', 'hpcfl.models', 'hpcfl.data'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_number_of_keys_is_known():
    """A new key is a promise to users: change this number knowingly."""
    assert len(list(keys())) == 110
    assert len({*OPTION_NAMES} - {*MethodConfig.model_fields}) == 39
