"""Rules about the rooms: who may import what."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from hpcfl.config.identity import keys

PACKAGE = Path(__file__).parent.parent / "hpcfl"
FILES = sorted(PACKAGE.rglob("*.py"))

# What each room may import, besides itself: data flows one way.
BASE = {"errors", "config", "section", "seeds", "slots"}
PARTS = {"methods", "models", "data", "comm"}
LAYERS = {
    "errors": set(),
    "seeds": set(),
    "section": set(),
    "slots": {"section"},
    "config": {"errors", "section", "slots"},
    "files": set(),
    "vision": {"errors"},
    "configfile": BASE,
    "methods": BASE,
    "models": BASE | {"files", "vision"},
    "data": BASE | {"files", "vision"},
    "comm": BASE,
    "state": set(),
    "federation": BASE | PARTS,
    "schedule": set(),
    "cores": set(),
    "records": PARTS | {"federation", "state", "step"},
    "arena": {"comm", "errors"},
    "placement": PARTS | {"arena", "cores", "federation", "records", "schedule", "step"},
    "devices": BASE,
    "stopwatch": {"comm"},
    "views": BASE | {"vision"},
    "semi": BASE | PARTS | {"client", "federation", "samples", "step", "views"},
    "tally": {"comm", "methods"},
    "samples": BASE | {"data", "views"},
    "step": BASE | {"models"},
    "client": BASE | PARTS | {"samples", "step", "views"},
    "worker": BASE
    | PARTS
    | {"arena", "client", "devices", "federation", "records", "samples", "semi", "state", "step"},
    "log": BASE | PARTS | {"configfile", "federation", "files"},
    "watch": {"errors", "guard", "log", "screen", "stopwatch"},
    "export": {"errors", "log"},
    "heatmap": {"federation", "files"},
    "machine": {"arena", "cores", "errors"},
    "forecast": BASE | PARTS | {"devices", "federation", "machine", "records", "schedule", "step"},
    "deadline": set(),
    "lock": {"errors"},
    "checkpoint": {"data", "errors", "files"},
    "saver": {"checkpoint", "comm", "errors"},
    "keeper": {"checkpoint", "comm", "config", "errors"},
    "server": BASE | PARTS | {"deadline", "federation", "keeper", "log", "schedule", "stopwatch", "tally"},
    "rounds": BASE | PARTS | {"federation", "saver", "schedule", "server", "stopwatch", "worker"},
    "guard": {"comm", "errors"},
    "screen": {"comm"},
    "show": {"data", "log", "methods", "models", "screen", "stopwatch"},
    "study": BASE
    | PARTS
    | {"checkpoint", "conduct", "configfile", "deadline", "devices", "federation", "files"}
    | {"guard", "job", "lock", "log", "screen", "show"},
    "resume": BASE | PARTS | {"checkpoint", "federation", "log", "records", "schedule", "step", "worker"},
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
            if node.module == "hpcfl":
                found |= {f"hpcfl.{alias.name}" for alias in node.names}
    return found


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_only_comm_imports_mpi4py():
    users = {room(path) for path in FILES if any(name.startswith("mpi4py") for name in imports(path))}
    assert users == {"comm"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    if room(path) not in LAYERS:
        pytest.skip("at the top: may import all")
    used = {name.split(".")[1] for name in imports(path) if name.startswith("hpcfl.")}
    assert used - {room(path)} <= LAYERS[room(path)]


def test_methods_touch_neither_files_nor_the_clock():
    for path in FILES:
        if room(path) == "methods":
            assert not imports(path) & {"time", "os", "pathlib", "h5py", "io"}


def test_a_file_holds_one_noun():
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


def test_the_number_of_keys_is_known():
    """A new key is a promise to users: change this number knowingly."""
    assert len(list(keys())) == 83
