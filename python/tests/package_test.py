"""The package's metadata, types and wheel."""

import ast
import importlib.util
import inspect
import os
import pathlib
import re
import ssl
import subprocess
import sys

import tandem
from conftest import ROOT
from tandem import __main__ as program
from tandem import _native
from tandem.parameters import EngineParams, RequestParams

FOLDER = pathlib.Path(tandem.__file__).parent


def members(klass):
    return {name for name in vars(klass) if not name.startswith("_")}


def test_the_stubs_match_the_module():
    """The stub has exactly the classes, methods and properties of the module."""
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


def test_parameters_match_the_library():
    options = members(_native.EngineOptions) - {"target"}
    assert options == set(EngineParams.__annotations__)
    # A thinking budget is made of `max_thinking_tokens`, a parameter of chats.
    request = members(_native.Request) - {"prompt", "prompt_ids", "sampling", "thinking_budget"}
    assert request | members(_native.SamplingParams) == set(RequestParams.__annotations__)
    assert not request & members(_native.SamplingParams)


def test_exported_names_exist():
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


def test_a_program_that_downloads_finds_the_pip_of_this_python(monkeypatch):
    monkeypatch.setenv("PATH", "/elsewhere")
    folder = os.path.dirname(sys.executable)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert program.environment()["PATH"] == f"{folder}{os.pathsep}/elsewhere"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert program.environment()["PATH"] == "/elsewhere"


def test_the_program_trusts_the_certificates_of_this_python(monkeypatch):
    paths = ssl.get_default_verify_paths()._replace(cafile="/python.pem", capath=None)
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    monkeypatch.setenv("SSL_CERT_DIR", "/users")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    variables = program.environment()
    assert (variables["SSL_CERT_FILE"], variables["SSL_CERT_DIR"]) == ("/python.pem", "/users")
    monkeypatch.setenv("SSL_CERT_FILE", "/users.pem")
    assert program.environment()["SSL_CERT_FILE"] == "/users.pem"


def test_the_wheel_has_a_command_and_constraints():
    project = (ROOT / "pyproject.toml").read_text()
    assert '[project.scripts]\ntandem = "tandem.__main__:main"\n' in project
    assert 'TANDEM_XGRAMMAR = {env = "TANDEM_XGRAMMAR", default = "FETCH"}\n' in project


def test_the_wheel_has_the_version_of_the_build():
    pattern = re.search(r"^regex = '(.+)'$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    found = re.search(pattern, (ROOT / "CMakeLists.txt").read_text())
    assert found["value"] == tandem.__version__


def test_the_wheel_has_the_models_that_come_with_the_program():
    """Reads CMake's install script, because the files themselves are large."""
    scripts = (FOLDER.parent.parent / "cmake_install.cmake").read_text()
    for model in ("storyteller-7m", "storyteller-1m", "smollm2-draft"):
        assert scripts.count(f"/models/{model}") == 2  # for `cmake --install`, and for the wheel
    assert "/tandem/share/tandem/models" in scripts
