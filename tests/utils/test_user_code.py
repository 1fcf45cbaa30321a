"""Import paths: what is said of wrong ones, and the checksums of the code that they load."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from hpcfl.errors import BadInput
from hpcfl.utils import user_code
from hpcfl.utils.user_code import import_object, source_checksums


@pytest.fixture
def code(tmp_path, monkeypatch):
    """Returns `write(name, text)`, which puts a file of code into the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(user_code, "_LOADED", {})
    before = {*sys.modules}

    def write(name: str, text: str = "") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        importlib.invalidate_caches()
        return path

    yield write
    for name in {*sys.modules} - before:
        del sys.modules[name]


def refused(path: str) -> str:
    with pytest.raises(BadInput) as caught:
        import_object("method.refine", path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_error_at_import_names_the_users_line(code):
    file = code("own_a.py", "import json\n\njson.loads('{')\n")
    text = refused("own_a:Idea")
    assert text.startswith(
        "method.refine: own_a:Idea cannot be imported (JSONDecodeError: Expecting property"
    )
    assert text.endswith(f", {file}:3)")


def test_the_line_is_that_of_the_helper_that_failed(code):
    code("own_a.py", "import own_b\n")
    file = code("own_b.py", "\n\n1 / 0\n")
    assert refused("own_a:Idea") == (
        f"method.refine: own_a:Idea cannot be imported (ZeroDivisionError: division by zero, {file}:3)"
    )


def test_a_syntax_error_names_its_line(code):
    file = code("own_a.py", "x = 1\ndef f(:\n")
    text = refused("own_a:Idea")
    assert "SyntaxError: " in text
    assert text.endswith(f", {file}:2)")


def test_an_exit_at_import_is_refused(code):
    code("own_a.py", "raise SystemExit(0)\n")
    assert "SystemExit: 0" in refused("own_a:Idea")


def test_an_error_of_several_lines_becomes_one(code):
    code("own_a.py", "raise ValueError('one\\ntwo ' + 'x' * 1000)\n")
    text = refused("own_a:Idea")
    assert "ValueError: one two xxx" in text
    assert len(text) < 600


def test_a_missing_module_and_a_missing_name(code):
    assert refused("own_missing:Idea") == (
        "method.refine: own_missing:Idea cannot be imported "
        "(ModuleNotFoundError: No module named 'own_missing')"
    )
    file = code("own_a.py", "class Idea: pass\n")
    assert refused("own_a:Idae") == f"method.refine: own_a ({file}) has no Idae (nearest: Idea)"


def test_an_attribute_error_within_the_module_is_not_a_missing_name(code):
    file = code("own_a.py", "import json\nclass Idea: pass\njson.Idea\n")
    assert refused("own_a:Idea").endswith(f"has no attribute 'Idea', {file}:3)")


def test_checksums_are_of_all_own_modules_that_a_path_loads(code):
    code("own_a.py", "import json, torch\nimport own_b\ndef later():\n    from own_pkg.sub import thing\n")
    code("own_b.py")
    code("own_pkg/__init__.py", "from . import side\n")
    code("own_pkg/side.py", "from .deep import *\n")
    code("own_pkg/deep.py", "from ..own_pkg.sub import nothing\n")
    code("own_pkg/sub.py")
    code("own_unrelated.py")
    code("own_pkg/unrelated.py")
    names = ["own_a", "own_b", "own_pkg", "own_pkg.deep", "own_pkg.side", "own_pkg.sub"]
    assert list(source_checksums(["own_a:Idea"])) == names
    assert not {*names} & {*sys.modules}, "nothing was imported"
    assert source_checksums([]) == source_checksums(["json:loads", "torch.nn:Linear"]) == {}


def test_a_checksum_changes_with_its_module_alone(code):
    code("own_a.py", "import own_b\n")
    code("own_b.py")
    before = source_checksums(["own_a:Idea"])
    code("own_unrelated.py", "x = 1\n")
    assert source_checksums(["own_a:Idea"]) == before
    code("own_b.py", "# edited\n")
    after = source_checksums(["own_a:Idea"])
    assert after["own_a"] == before["own_a"]
    assert after["own_b"] != before["own_b"]


def test_a_loaded_module_keeps_the_checksum_of_the_code_that_runs(code):
    """Someone may edit a file while a study runs: cells that follow still run the old code."""
    code("own_a.py", "class Idea: pass\n")
    import_object("models", "own_a:Idea")
    before = source_checksums(["own_a:Idea"])
    code("own_a.py", "class Idea: more = 1\n")
    assert source_checksums(["own_a:Idea"]) == before
    importlib.reload(sys.modules["own_a"])
    assert source_checksums(["own_a:Idea"]) != before


def test_loaded_modules_that_are_not_imported_by_the_code_do_not_count(code):
    code("own_a.py")
    code("own_other.py")
    importlib.import_module("own_other")
    assert list(source_checksums(["own_a:Idea"])) == ["own_a"]


def test_site_packages_count_as_installed(code, tmp_path, monkeypatch):
    code("lib/site-packages/own_installed.py")
    code("own_a.py", "import own_installed\n")
    monkeypatch.syspath_prepend(tmp_path / "lib" / "site-packages")
    assert list(source_checksums(["own_a:Idea"])) == ["own_a"]


def test_a_namespace_package_and_a_missing_import_are_no_problem(code):
    code("own_space/part.py", "try:\n    import own_missing.sub\nexcept ImportError:\n    pass\n")
    assert list(source_checksums(["own_space.part:Idea"])) == ["own_space.part"]


def test_an_unreadable_helper_is_one_sentence(code, monkeypatch):
    code("own_a.py")

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(BadInput, match=r"cannot read .*own_a\.py: Permission denied"):
        source_checksums(["own_a:Idea"])
