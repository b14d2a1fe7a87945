"""The printed form of the package's objects."""

import re

import pytest
import tandem

from conftest import TARGET

PROMPT = "Once upon a time there lived an old king"


def test_results_show_their_members(engine):
    pieces = []
    completion = engine.generate(PROMPT, pieces.append, max_tokens=4, temperature=0.0, logprobs=1,
                                 draft_tokens=2, drafter="model", prompt_progress=True)
    progress = pieces[0].prompt_progress
    piece = pieces[-1]
    shown = {
        completion: rf"Completion\(text={re.escape(repr(completion.text))}, finish_reason='length', "
                    rf"prompt_tokens={completion.prompt_tokens}, provenance='[pacb]{{4}}', "
                    r"stats=RoundStats\(.*\), timings=Timings\(.*\)\)",
        piece: rf"Piece\(text={re.escape(repr(piece.text))}, token_ids=\[\d+.*\], "
                   r"provenance='[pacb]+'\)",
        piece.round: r"RoundReport\(proposed=\d+, accepted=\d+, target_cached_tokens=\d+, "
                         r"draft_cached_tokens=\d+\)",
        progress: r"PromptProgress\(total=\d+, cached=\d+, processed=\d+, time=[\d.e-]+\)",
        completion.stats: r"RoundStats\(rounds=\d+, proposed=\d+, accepted=\d+, emitted=4, "
                          r"acceptance_rate=[\d.e-]+, tokens_per_round=[\d.]+, .*\)",
        completion.timings: r"Timings\(time_to_first_token=[\d.e-]{3,11}, end_to_end=.*\)",
        completion.logprobs[0]: r"TokenLogprobs\(id=\d+, logprob=-[\d.e-]+, top=\[\(\d+, .*\)\]\)",
        engine.target_info: rf"ModelInfo\(path='{TARGET}', family='llama', dtype='.*', "
                            r"parameters=\d+, .*\)",
        engine.load: r"EngineLoad\(num_running=\d+, num_waiting=0, .*stats=RoundStats\(.*\)\)",
        engine.tokenizer: rf"Tokenizer\(vocab_size={engine.tokenizer.vocab_size}\)",
        engine.chat_template: r"ChatTemplate\(is_plain=True, has_place_for_tools=False\)",
        tandem.LogprobOptions(3): r"LogprobOptions\(num_top=3, processed=False\)",
    }
    for value, pattern in shown.items():
        assert re.fullmatch(pattern, repr(value)), repr(value)


def test_constraints_show_how_they_are_made():
    kinds = tandem.OutputConstraint
    for shown in ("OutputConstraint.json_object()", "OutputConstraint.regex('[0-9]')",
                  "OutputConstraint.choice(['red', 'blue'])", "OutputConstraint.json_schema('{}')",
                  "OutputConstraint.grammar('root ::= \"a\"')",
                  "OutputConstraint.structural_tag('{}')"):
        assert repr(eval(shown, {"OutputConstraint": kinds})) == shown


def test_engines_and_streams_show_their_state():
    engine = tandem.Engine(TARGET)
    start = f"<tandem.Engine target='{TARGET}', drafter='{engine.drafter}'"
    assert repr(engine) == start + ">"
    stream = engine.stream(PROMPT, max_tokens=3, ignore_eos=True)
    stream.wait()
    assert repr(stream) == "<tandem.Stream ended: length, 3 tokens>"
    running = engine.stream(PROMPT, max_tokens=400, ignore_eos=True)
    assert repr(running) == "<tandem.Stream running>"
    engine.close()
    assert repr(engine) == start + ", closed>"


def test_engines_and_streams_belong_to_their_process(engine):
    import copy
    import pickle
    for value in (engine, engine.stream(PROMPT, max_tokens=1)):
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled or copied: it belongs to its process"):
                copied(value)


def test_every_public_type_has_a_readable_representation():
    for name in tandem.__all__:
        public = getattr(tandem, name)
        if isinstance(public, type) and not issubclass(public, (Exception, dict)):
            assert public.__repr__ is not object.__repr__, name
