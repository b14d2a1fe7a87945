"""Whole generations."""

import math
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tandem

from conftest import DRAFT, TARGET

PROMPT = "Once upon a time there lived an old king"
SEEDED = {"max_tokens": 48, "temperature": 0.7, "seed": 11}


def ids(completion):
    return completion.token_ids.tolist()


def test_seeded_output_matches_the_command_line(engine):
    command = [sys.executable, "-m", "tandem", "generate", "--target", TARGET, "--draft", DRAFT,
               "--prompt", PROMPT, "--max-tokens", "48", "--temperature", "0.7", "--seed", "11"]
    program = subprocess.run(command, capture_output=True, text=True, check=True)
    text = engine.generate(PROMPT, **SEEDED).text
    assert len(text) > 40
    assert program.stdout.removesuffix("\n") == text.removesuffix("\n")


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("drafter", ["model", "ngram", "model+ngram"])
def test_speculative_output_equals_plain_output_bit_for_bit(engine, drafter, temperature):
    params = {**SEEDED, "temperature": temperature, "logprobs": 3, "verifier": "exact_match"}
    plain = engine.generate(PROMPT, drafter="none", **params)
    drafted = engine.generate(PROMPT, drafter=drafter, draft_tokens=4, **params)
    assert ids(drafted) == ids(plain)
    assert [(p.id, p.logprob, p.top) for p in drafted.logprobs] == [
        (p.id, p.logprob, p.top) for p in plain.logprobs]
    assert set(plain.provenance) == {"p"}
    assert plain.stats.proposed == 0
    if drafter != "ngram":
        assert drafted.stats.accepted == drafted.provenance.count("a") > 0


def test_other_seeds_give_other_output(engine):
    assert ids(engine.generate(PROMPT, **SEEDED)) != ids(
        engine.generate(PROMPT, **{**SEEDED, "seed": 12}))


def test_statistics_match_the_provenance(engine):
    completion = engine.generate(PROMPT, draft_tokens=3, **SEEDED)
    stats = completion.stats
    assert len(completion.provenance) == len(completion.token_ids) == stats.emitted == 48
    assert set(completion.provenance) <= set("pacb")
    assert stats.proposed_at.sum() == stats.proposed
    assert stats.accepted_at.sum() == stats.accepted
    assert stats.acceptance_rate == stats.accepted / stats.proposed
    assert [sorted(of) for of in stats.by_source] == [["accepted", "proposed", "source"]] * len(stats.by_source)
    assert {of["source"] for of in stats.by_source} <= {"model", "lookup", "memory", "successors"}
    assert sum(of["proposed"] for of in stats.by_source) == stats.proposed
    assert sum(of["accepted"] for of in stats.by_source) == stats.accepted
    assert completion.idle_reason == ""
    assert stats.tokens_per_round == stats.emitted / stats.rounds
    times = completion.timings
    assert 0 < times.time_to_first_token <= times.end_to_end
    assert times.prompt > 0 and times.prefill == times.prompt and min(times.queue, times.other) >= 0
    assert times.queue + times.prompt + times.decode == pytest.approx(times.end_to_end)
    assert times.draft + times.verify + times.other == pytest.approx(times.decode)
    read = completion.prompt_tokens - completion.cached_tokens
    assert completion.prompt_tokens_per_second == pytest.approx(read / times.prompt)
    decoded = len(completion.token_ids) - completion.first_round_tokens
    assert completion.decode_tokens_per_second == pytest.approx(decoded / times.decode)
    assert completion.tokens_per_second == pytest.approx(48 / (times.end_to_end - times.queue))
    assert completion.finish_reason == "length"
    assert completion.draft_tokens == 3


def test_prompts_are_text_lists_or_arrays(engine):
    prompt = engine.tokenizer.encode(PROMPT, parse_special=True, add_template=True)
    assert prompt.dtype == np.int32 and prompt.ndim == 1
    expected = ids(engine.generate(PROMPT, **SEEDED))
    for given in (prompt, prompt.tolist(), prompt.astype(np.uint16), prompt.astype(np.int64),
                  np.repeat(prompt, 2)[::2]):
        completion = engine.generate(given, **SEEDED)
        assert ids(completion) == expected
        assert completion.prompt_tokens == len(prompt)
    assert completion.token_ids.dtype == np.int32


def test_arrays_of_a_completion_outlive_it(engine):
    completion = engine.generate(PROMPT, **SEEDED)
    array, copy = completion.token_ids, ids(completion)
    del completion
    engine.generate(PROMPT, **SEEDED)
    assert array.tolist() == copy


def test_log_probabilities(engine):
    scored = engine.generate(
        PROMPT, max_tokens=4, temperature=0.0, logprobs=tandem.LogprobOptions(2),
        prompt_logprobs=0)
    for token, entry in zip(ids(scored), scored.logprobs):
        assert entry.id == token == entry.top[0][0]
        assert entry.logprob == entry.top[0][1] <= 0
        assert len(entry.top) == 2
    assert len(scored.prompt_logprobs) == scored.prompt_tokens
    assert scored.prompt_logprobs[0] is None
    assert all(math.isfinite(entry.logprob) for entry in scored.prompt_logprobs[1:])
    assert engine.generate(PROMPT, max_tokens=1).logprobs == []


def test_stop_strings_end_and_are_left_out(engine):
    whole = engine.generate(PROMPT, **SEEDED).text
    stop = whole[10:14]
    completion = engine.generate(PROMPT, stop=stop, **SEEDED)
    assert completion.text == whole[: whole.index(stop)]
    assert completion.finish_reason == "stop"


def test_a_bias_forces_a_token(engine):
    token = engine.tokenizer.id_of("!")
    assert token is not None
    completion = engine.generate(PROMPT, max_tokens=3, temperature=0.0, logit_bias={token: 100.0})
    assert ids(completion) == [token] * 3


BAD = [
    ({"max_tokens": -1}, ValueError, "max_tokens"),
    ({"temperature": -0.5}, ValueError, "temperature"),
    ({"top_p": 0.0}, ValueError, "top_p"),
    ({"drafter": "oracle"}, ValueError, "drafter"),
    ({"verifier": "hope"}, ValueError, "verifier"),
    ({"logit_bias": {1: 1000.0}}, ValueError, "logit_bias"),
    ({"stop_tokens": [1.5]}, ValueError, "stop_tokens"),
    ({"time_limit": float("nan")}, ValueError, "time_limit"),
    ({"temperature": "warm"}, TypeError, "temperature"),
    ({"seed": -1}, TypeError, "seed"),
    ({"max_tokens": 2**40}, TypeError, "max_tokens"),
    ({"best_of": 2}, TypeError, "best_of"),
]


@pytest.mark.parametrize("params, kind, field", BAD)
def test_bad_parameters_are_errors_that_name_them(engine, params, kind, field):
    for ask in (engine.generate, engine.stream):
        with pytest.raises(kind, match=f"^{field}: ") as caught:
            ask(PROMPT, **params)
        if kind is ValueError:
            assert caught.value.field == field


@pytest.mark.parametrize("prompt", [[1.5], [2**31], [-1], [10**6], np.array(3), [], "", "\ud800",
                                    None, b"a", {"a": 1}, np.array([[1, 2]]), [1, "a"]])
def test_bad_prompts_are_errors(engine, prompt):
    with pytest.raises(tandem.FieldError, match="^prompt: ") as caught:
        engine.generate(prompt, max_tokens=1)
    assert caught.value.field == "prompt"


def test_errors_say_what_was_found_and_what_is_allowed(engine):
    tokens = "token ids, as a list of integers or an array of them with one dimension"
    for ask, message in [
            (lambda: engine.generate(None), f"prompt: found None, allowed: text, or {tokens}"),
            (lambda: engine.generate(["a", 5]), f"prompt[1]: found 5, allowed: text, or {tokens}"),
            (lambda: engine.tokenizer.decode([1.5]), f"ids: found [1.5], allowed: {tokens}"),
            (lambda: engine.generate("a", max_token=5),
             "max_token: not a parameter of a generation; did you mean max_tokens?"),
            (lambda: engine.generate("a", threads=5),
             "threads: not a parameter of a generation; it is an option of engines"),
            (lambda: tandem.Engine(TARGET, temperature=1),
             "temperature: not an option of an engine; it is a parameter of generations"),
            (lambda: engine.generate("a", time_limit="1h"),
             "time_limit: found '1h', allowed: float or None"),
            (lambda: engine.generate("a", logprobs="all"),
             "logprobs: found 'all', allowed: int or tandem.LogprobOptions"),
            (lambda: engine.generate("a", on_piece=5),
             "on_piece: found 5, allowed: a function of a piece, or None"),
            (lambda: engine.generate(["a"], on_piece=print),
             "on_piece: found a function, allowed: None with a list of prompts"),
            (lambda: engine.chat("Hi"), "messages: found 'Hi', allowed: a list of messages, "
             '{"role": "user", "content": "Hi"} and so on')]:
        with pytest.raises((ValueError, TypeError)) as caught:
            ask()
        assert str(caught.value) == message
    with pytest.raises(TypeError, match="^zzz: .*allowed: max_tokens, time_limit, temperature"):
        engine.generate("a", zzz=1)


def test_a_list_of_prompts_gives_a_list_of_completions(engine):
    prompts = [PROMPT, engine.tokenizer.encode("The wolf"), [5, 6, 7]]
    alone = [ids(engine.generate(prompt, **SEEDED)) for prompt in prompts]
    assert [ids(completion) for completion in engine.generate(prompts, **SEEDED)] == alone
    assert [ids(completion) for completion in engine.generate((PROMPT,), **SEEDED)] == alone[:1]
    one = tandem.generate(TARGET, [PROMPT], engine={"draft": str(DRAFT)}, **SEEDED)
    assert [ids(completion) for completion in one] == alone[:1]


def test_a_list_may_have_more_prompts_than_the_engine_accepts_at_once(engine):
    prompts = [[5 + index] for index in range(40)]  # max_generations is 16
    completions = engine.generate(prompts, max_tokens=3, seed=1, ignore_eos=True)
    assert [len(completion.token_ids) for completion in completions] == [3] * 40
    assert ids(completions[-1]) == ids(
        engine.generate(prompts[-1], max_tokens=3, seed=1, ignore_eos=True))


def test_an_error_of_one_prompt_names_it_and_cancels_the_others(engine):
    with pytest.raises(tandem.FieldError, match=r"^prompt\[1\]: ") as caught:
        engine.generate([[5], [10**6]], max_tokens=400, ignore_eos=True)
    assert caught.value.field == "prompt[1]"
    while engine.load.num_running > 0:
        pass


def test_bad_options_and_files_are_errors():
    with pytest.raises(FileNotFoundError, match="nowhere"):
        tandem.Engine("nowhere")
    with pytest.raises(ValueError, match="^threads: "):
        tandem.Engine(TARGET, threads=-2)
    with pytest.raises(TypeError, match="^threads: "):
        tandem.Engine(TARGET, threads="two")
    with pytest.raises(TypeError, match="^gpus: "):
        tandem.Engine(TARGET, gpus=2)
    with pytest.raises(TypeError, match="^target: "):
        tandem.Engine(7)
    with pytest.raises(ValueError, match="^drafter: "):
        tandem.Engine(TARGET, drafter="oracle")


def test_two_threads_get_the_same_output_as_one(engine):
    prompts = [PROMPT, "The old woman went into the wood"]
    alone = [ids(engine.generate(prompt, **SEEDED)) for prompt in prompts]
    together = [[], []]

    def run(index):
        for _ in range(3):
            together[index].append(ids(engine.generate(prompts[index], **SEEDED)))

    threads = [threading.Thread(target=run, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [[alone[0]] * 3, [alone[1]] * 3]


def test_the_gil_is_free_while_the_engine_works(engine):
    """The generation waits for its callback, which runs only if the waiting one frees the GIL."""
    seen = []
    engine.generate(PROMPT, lambda piece: seen.append(threading.get_ident()), **SEEDED)
    assert seen and threading.get_ident() not in seen


def test_an_exception_in_a_callback_is_raised_and_ends_the_generation(engine):
    class Unforeseen(Exception):
        pass

    pieces = []

    def fail(piece):
        pieces.append(piece)
        raise Unforeseen("by the callback")

    with pytest.raises(Unforeseen, match="by the callback"):
        engine.generate(PROMPT, fail, max_tokens=400, ignore_eos=True, seed=1)
    assert len(pieces) == 1
    assert ids(engine.generate(PROMPT, **SEEDED))  # others go on


def test_a_callback_that_returns_false_ends_the_generation(engine):
    pieces = []

    def first_only(piece):
        pieces.append(piece.text)
        return False

    completion = engine.generate(PROMPT, first_only, max_tokens=400, ignore_eos=True)
    assert completion.finish_reason == "cancelled"
    assert [completion.text] == pieces


def test_pieces_join_to_the_completion(engine):
    pieces = []
    completion = engine.generate(PROMPT, pieces.append, **SEEDED)  # None goes on
    assert "".join(piece.text for piece in pieces) == completion.text
    assert np.concatenate([piece.token_ids for piece in pieces]).tolist() == ids(completion)
    assert "".join(piece.provenance for piece in pieces) == completion.provenance
    assert sum(piece.round.accepted for piece in pieces) == completion.stats.accepted


def test_a_time_limit_ends_a_generation(engine):
    assert engine.generate(PROMPT, time_limit=1e-9).finish_reason == "deadline"


def test_an_interrupt_cancels():
    """Runs in a separate process, which gets a signal after its generation has begun."""
    script = (f"import os, signal, tandem\n"
              f"signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job ignores it
              f"sent = []\n"
              f"engine = tandem.Engine({str(TARGET)!r}, draft={str(DRAFT)!r})\n"
              f"def interrupt(piece):\n"
              f"    if not sent: sent.append(os.kill(os.getpid(), signal.SIGINT))\n"
              f"try:\n"
              f"    while True: engine.generate('Once', interrupt, max_tokens=400,"
              f" ignore_eos=True)\n"
              f"except KeyboardInterrupt:\n"
              f"    engine.check_integrity()\n"
              f"    print('interrupted')\n")
    program = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (program.stdout, program.returncode) == ("interrupted\n", 0), program.stderr


def test_a_closed_engine_says_so():
    engine = tandem.Engine(TARGET)
    tokenizer = engine.tokenizer
    engine.close()
    engine.close()
    for ask in (lambda: engine.generate(PROMPT), lambda: engine.stream(PROMPT),
                lambda: engine.load, lambda: engine.tokenizer):
        with pytest.raises(tandem.EngineError, match="closed") as caught:
            ask()
        assert caught.value.code == "CANCELLED"
    assert tokenizer.decode(tokenizer.encode("a king")) == "a king"


def test_closing_ends_a_generation_in_another_thread():
    engine = tandem.Engine(TARGET)
    begun, outcome = threading.Event(), []

    def run():
        completion = engine.generate(PROMPT, lambda piece: begun.set() or time.sleep(0.01),
                                     max_tokens=1000, ignore_eos=True)
        outcome.append(completion.finish_reason)

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    engine.close()
    thread.join()
    assert outcome == ["cancelled"]


def test_a_callback_cannot_close_its_engine_but_may_drop_it(engine):
    with pytest.raises(tandem.EngineError, match="callback"):
        engine.generate(PROMPT, lambda piece: engine.close(), max_tokens=4)
    held = [tandem.Engine(TARGET)]
    dropped = threading.Event()

    def drop(piece):
        held.clear()
        dropped.set()

    held[0]._native.submit(  # the only reference to the engine is in `held`
        _request(), drop, lambda completion, error: None)
    assert dropped.wait()


def _request():
    from tandem.parameters import request_of
    return request_of(PROMPT, {"max_tokens": 30})


def test_one_call_makes_its_own_engine(engine):
    completion = tandem.generate(TARGET, PROMPT, engine={"draft": str(DRAFT)}, **SEEDED)
    assert ids(completion) == ids(engine.generate(PROMPT, **SEEDED))


def test_an_engine_describes_its_parts(engine):
    assert engine.target_info.parameters > engine.draft_info.parameters > 0
    assert engine.target_info.vocab_size >= engine.tokenizer.vocab_size > 1000
    assert engine.drafter == "model+ngram"
    assert set(engine.drafters) >= {"model", "ngram", "model+ngram"}
    assert " thread" in engine.device_description
    engine.generate(PROMPT, max_tokens=4)
    assert engine.stats.rounds > 0 and engine.load.stats.rounds > 0
    assert engine.load.prompt_tokens > 0


def test_a_builtin_error_in_a_callback_is_raised(engine):
    # Python 3.11 raises these without an object, which it creates on demand.
    for callback, error in ((lambda piece: 1 / 0, ZeroDivisionError), (lambda piece: {}["key"], KeyError)):
        with pytest.raises(error) as caught:
            engine.generate(PROMPT, callback, max_tokens=4)
        assert caught.value.__traceback__ is not None
