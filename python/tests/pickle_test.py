"""Results of generations, and the errors that they raise, can be pickled and copied."""

import copy
import inspect
import pickle

import numpy as np
import pytest
import tandem

PROMPT = "Once upon a time there lived an old king"
COPIES = [lambda value: pickle.loads(pickle.dumps(value)), copy.copy, copy.deepcopy]


def plain(value):
    """Converts a value of the module to plain Python values."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if type(value).__module__.startswith("tandem"):
        return {name: plain(getattr(value, name)) for name in dir(value)
                if not name.startswith("_") and not inspect.isroutine(getattr(value, name))}
    return value


@pytest.fixture(scope="module")
def values(engine):
    """One value of each class, with as few default members as the engine allows."""
    pieces = []
    completion = engine.generate(
        PROMPT, pieces.append, max_tokens=12, temperature=0.7, seed=2, logprobs=2, draft_tokens=3,
        drafter="model", prompt_logprobs=1, prediction="there lived", prompt_progress=True)
    return [completion, pieces[-1], pieces[-1].round, pieces[0], pieces[0].prompt_progress, completion.stats, completion.timings,
            completion.logprobs[0], engine.load, engine.target_info, engine.draft_info,
            tandem.LogprobOptions(3, processed=True)]


@pytest.mark.parametrize("copied", COPIES)
def test_results_are_copied_with_every_member(values, copied):
    for value in values:
        again = copied(value)
        assert type(again) is type(value)
        assert len(plain(value)) > 1
        assert plain(again) == plain(value)


def test_a_copied_constraint_constrains(engine):
    for constraint in (tandem.OutputConstraint.choice(["yes", "no"]),
                       tandem.OutputConstraint.json_schema({"enum": [1, 2]}, is_strict=False)):
        texts = {engine.generate(PROMPT, constraint=c, max_tokens=9, temperature=0.0).text
                 for c in [constraint, *(copied(constraint) for copied in COPIES)]}
        assert len(texts) == 1


@pytest.mark.parametrize("error", [tandem.EngineError("full", "RESOURCE_EXHAUSTED"),
                                   tandem.FieldError("top_p: found 2", "top_p")])
@pytest.mark.parametrize("copied", COPIES)
def test_errors_are_copied_with_every_member(error, copied):
    again = copied(error)
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_a_state_of_another_version_is_refused(values):
    with pytest.raises(tandem.FieldError, match="^state: found 1 members, allowed: 19"):
        type(values[0]).__new__(type(values[0])).__setstate__(("text",))
