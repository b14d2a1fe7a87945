"""What the package says of itself."""

import ast
import inspect
import pathlib
import subprocess
import sys

import tandem
from tandem import _native
from tandem.parameters import EngineParams, RequestParams

FOLDER = pathlib.Path(tandem.__file__).parent


def members(klass):
    return {name for name in vars(klass) if not name.startswith("_")}


def test_the_stubs_are_the_module():
    """Every class, method and property of the module stands in its stub, and no other."""
    classes = {}
    for node in ast.parse((FOLDER / "_native.pyi").read_text()).body:
        if isinstance(node, ast.ClassDef):
            classes[node.name] = {
                entry.name for entry in node.body
                if isinstance(entry, ast.FunctionDef) and not entry.name.startswith("_")}
    assert classes == {name: members(klass) for name, klass in vars(_native).items()
                       if inspect.isclass(klass)}
    assert "std::" not in (FOLDER / "_native.pyi").read_text()
    assert (FOLDER / "py.typed").exists()


def test_parameters_are_the_librarys():
    options = members(_native.EngineOptions) - {"target"}
    assert options == set(EngineParams.__annotations__)
    request = members(_native.Request) - {"prompt", "prompt_ids", "sampling"}
    assert request | members(_native.SamplingParams) == set(RequestParams.__annotations__)
    assert not request & members(_native.SamplingParams)


def test_what_it_exports_is_there():
    assert tandem.__all__ == sorted(tandem.__all__)
    for name in tandem.__all__:
        assert hasattr(tandem, name)


def test_the_command_line_is_the_program():
    version = subprocess.run([sys.executable, "-m", "tandem", "--version"], capture_output=True,
                             text=True, check=True).stdout
    assert version.startswith(f"tandem {tandem.__version__} ")
    wrong = subprocess.run([sys.executable, "-m", "tandem", "sing"], capture_output=True, text=True)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("tandem: error: ")
