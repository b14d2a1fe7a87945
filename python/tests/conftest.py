"""The shipped pair, loaded once."""

import pathlib

import pytest
import tandem

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TARGET = ROOT / "models/storyteller-7m"
DRAFT = ROOT / "models/storyteller-1m"


@pytest.fixture(scope="session")
def engine():
    with tandem.Engine(TARGET, draft=DRAFT, all_drafters=True, max_generations=16) as made:
        yield made
        made.check_integrity()
