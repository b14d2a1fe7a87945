"""Runs the tests of the package with pytest: run.py FOLDER_WITH_THE_PACKAGE [pytest's arguments]

Exits with 77 and a message if pytest or NumPy is missing.
"""

import importlib.util
import os
import pathlib
import sys

sys.dont_write_bytecode = True  # Nothing is written into the repository.
for package in ("pytest", "numpy"):
    if importlib.util.find_spec(package) is None:
        print(f"skipped: there is no {package} for {sys.executable}")
        sys.exit(77)

import pytest  # noqa: E402

folder = str(pathlib.Path(sys.argv[1]).resolve())
sys.path.insert(0, folder)
os.environ["PYTHONPATH"] = folder  # for programs that tests start
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
tests = str(pathlib.Path(__file__).resolve().parent)
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", tests, *sys.argv[2:]]))
