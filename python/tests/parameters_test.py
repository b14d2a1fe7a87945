"""Every parameter through Python: the values of tools/parameters_test.cc reach the library."""

import json

import pytest
import tandem
from conftest import ROOT
from tandem import _native
from tandem.parameters import options_of, request_of

VALUES = json.loads((ROOT / "tests/data/parameters.json").read_text())


def test_options_reach_the_engine():
    values = VALUES["engine"]
    params = {name: value for name, value in values.items() if name != "target"}
    options = options_of(values["target"], params)
    default = _native.EngineOptions()
    names = {name for name in vars(_native.EngineOptions) if not name.startswith("_")}
    assert names == set(values)
    for name, value in values.items():
        assert getattr(options, name) == value != getattr(default, name), name


def test_sampling_reaches_the_engine():
    values = VALUES["sampling"]
    sampling = request_of("a", values).sampling
    for name, value in values.items():
        assert getattr(sampling, name) == value != getattr(_native.SamplingParams(), name), name


def test_values_out_of_range_are_refused():
    with pytest.raises(tandem.FieldError, match="max_batch: must be from 1 to 65536, got 0"):
        tandem.Engine(ROOT / "models/storyteller-7m", max_batch=0)


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("compute", "f64", "auto, f32, bf16"),
        ("quantize", "auto", "none, q8_0, .*, int8, int4"),
        ("draft_quantize", "q9", "auto, none, q8_0, .*, int8, int4"),
        ("kv_cache", "", "auto, f32, bf16, int8"),
        ("draft_kv_cache", "int4", "auto, f32, bf16, int8"),
    ],
)
def test_unknown_names_are_refused(name, value, allowed):
    with pytest.raises(tandem.FieldError, match=f'^{name}: "{value}" is not one of {allowed}$'):
        options_of("storyteller-7m", {name: value})


def test_a_drafts_cache_is_by_default_the_same_as_its_targets():
    assert options_of("storyteller-7m", {}).draft_kv_cache == ""
    assert options_of("storyteller-7m", {"draft_kv_cache": ""}).draft_kv_cache == ""
