"""Tokenizers, conversations, constraints."""

import json
import math
import re

import numpy as np
import pytest
import tandem

from conftest import TARGET

TURN = [{"role": "user", "content": "Who lived in the wood?"}]


def test_a_tokenizer_round_trip(engine):
    tokenizer = tandem.Tokenizer.load(str(TARGET))
    text = "The fox said: na\u00efve geese, \U0001f98a!"
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int32
    assert tokenizer.decode(ids) == text
    assert np.array_equal(engine.tokenizer.encode(text), ids)
    assert tokenizer.id_of("no such token") is None
    for given in (ids.tolist(), tuple(ids.tolist()), ids.astype(np.int64)):
        assert tokenizer.decode(given) == text
    assert tokenizer.decode([]) == ""
    for wrong in ([1.5], ["a"], [[1, 2]], 5, None, [2**40]):
        with pytest.raises(tandem.FieldError, match="^ids: found ") as caught:
            tokenizer.decode(wrong)
        assert caught.value.field == "ids"


def test_models_can_be_given_by_name(engine, tmp_path, monkeypatch):
    with tandem.Engine("storyteller-7m", drafter="none") as named:
        monkeypatch.chdir(tmp_path)
        assert named.tokenizer.vocab_size == engine.tokenizer.vocab_size
        assert named.chat_template.is_plain
    assert tandem.Tokenizer.load("storyteller-1m").vocab_size == engine.tokenizer.vocab_size
    assert tandem.ChatTemplate.load("storyteller-1m").is_plain
    for load in (tandem.Tokenizer.load, tandem.ChatTemplate.load, tandem.Engine):
        with pytest.raises(FileNotFoundError, match=r"nowhere: no such model, allowed: .*`tandem fetch`"):
            load("nowhere")


def test_models_of_a_hub_are_found_in_its_cache(engine, tmp_path, monkeypatch):
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = tmp_path / "models--Org--Story"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text(commit)
    (folder / "snapshots").mkdir()
    (folder / "snapshots" / commit).symlink_to(TARGET)
    with pytest.raises(FileNotFoundError, match="Org/Story: was not fetched yet.*`tandem fetch Org/Story`"):
        tandem.Engine(target="Org/Story")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with tandem.Engine(target="Org/Story", drafter="none") as named:
        assert named.target_info.path.endswith(commit)
        assert named.tokenizer.vocab_size == engine.tokenizer.vocab_size


def test_special_tokens_are_plain_text_unless_asked_for(engine):
    tokenizer = engine.tokenizer
    special = next(i for i in range(tokenizer.vocab_size) if tokenizer.is_special(i))
    text = tokenizer.decode(np.array([special], dtype=np.int32))
    assert tokenizer.encode(text, parse_special=True).tolist() == [special]
    assert special not in tokenizer.encode(text).tolist()
    assert tokenizer.decode(np.array([special], dtype=np.int32), skip_special=True) == ""


def test_a_conversation_becomes_a_prompt_of_the_template(engine):
    prompt = engine.chat_prompt(TURN)
    assert "Who lived in the wood?" in engine.tokenizer.decode(prompt)
    answer = engine.chat(TURN, max_tokens=12, seed=5)
    again = engine.generate(prompt, max_tokens=12, seed=5,
                            stop_tokens=engine.chat_template.end_token_ids(engine.tokenizer))
    assert answer.token_ids.tolist() == again.token_ids.tolist()
    streamed = "".join(p.text for p in engine.stream_chat(TURN, max_tokens=12, seed=5))
    assert streamed == answer.text


def test_a_template_can_be_parsed(engine):
    template = tandem.ChatTemplate.parse(
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{{ mood }}")
    parts = template.render(json.dumps(TURN), variables=json.dumps({"mood": "gay"}))
    assert "".join(text for text, _ in parts) == "<user>Who lived in the wood?\ngay"
    assert [own for text, own in parts if "Who" in text] == [False]
    dated = tandem.ChatTemplate.parse("{{ strftime_now('%Y-%m-%d') }}")
    assert dated.render(json.dumps(TURN), now=86400.0 * 365)[0][0] == "1971-01-01"
    with pytest.raises(ValueError, match="chat_template"):
        tandem.ChatTemplate.parse("{% for %}")


def test_tools_reach_templates_without_a_place_for_them(engine):
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
    assert not engine.chat_template.has_place_for_tools
    prompt = engine.tokenizer.decode(engine.chat_prompt(TURN, tools=tools))
    assert json.dumps(tools[0]) in prompt and "<tool_call>" in prompt
    call = {"id": "1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    told = engine.tokenizer.decode(engine.chat_prompt(TURN + [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "a fox"}]))
    assert '<tool_call>\n{"name": "find", "arguments": {}}\n</tool_call>' in told
    assert '<tool_response>\n{"name": "find", "content": "a fox"}\n</tool_response>' in told
    parts = engine.chat_template.render(json.dumps(TURN), tools=json.dumps(tools))
    assert json.dumps(tools[0]) in "".join(text for text, _ in parts)


@pytest.mark.parametrize("messages", [[{"role": "user", "content": float("nan")}],
                                      [{"role": "user", "content": object()}], ["a"], []])
def test_bad_conversations_are_errors(engine, messages):
    with pytest.raises(ValueError, match="messages"):
        engine.chat(messages, max_tokens=1)


def constrained(engine, constraint, **params):
    try:
        return engine.generate("Say: ", constraint=constraint, seed=2, **params).text
    except NotImplementedError as error:
        pytest.skip(f"constraints are not built: {error}")
    except tandem.FieldError as error:
        if "XGrammar" not in str(error):
            raise
        pytest.skip(f"constraints are not built: {error}")


def test_choices_come_with_their_probabilities(engine):
    params = {"constraint": tandem.OutputConstraint.choice([" red", " blue"]),
              "choice_law": "conditional", "seed": 2}
    completion = engine.generate("The ball was", **params)
    assert [choice.text for choice in completion.choice_logprobs] == [" red", " blue"]
    assert completion.text in (" red", " blue")
    total = sum(math.exp(choice.normalized_logprob) for choice in completion.choice_logprobs)
    assert total == pytest.approx(1.0)
    with pytest.raises(tandem.FieldError, match="choice_law"):
        engine.generate("The", choice_law="conditional")
    with pytest.raises(ValueError, match="masked, conditional"):
        engine.generate("The", choice_law="fair")


def test_texts_are_drafted_from(engine):
    params = {"temperature": 0.0, "max_tokens": 40, "drafter": "ngram", "cache_salt": "texts"}
    plain = engine.generate("Once upon a time", **{**params, "draft_tokens": 0})
    info = engine.add_draft_text("Once upon a time" + plain.text, name="story", cache_salt="texts")
    assert [text.name for text in engine.draft_texts(cache_salt="texts")] == ["story"]
    assert engine.draft_texts() == []
    drafted = engine.generate("Once upon a time", draft_tokens=6, **params)
    assert drafted.text == plain.text
    assert any(one["source"] == "text" for one in drafted.stats.by_source)
    engine.remove_draft_text(info.id, cache_salt="texts")
    assert engine.draft_texts(cache_salt="texts") == []
    with pytest.raises(ValueError, match="texts"):
        engine.add_draft_text("")


def test_constraints_hold(engine):
    kinds = tandem.OutputConstraint
    assert constrained(engine, kinds.choice(["red", "blue"])) in ("red", "blue")
    assert re.fullmatch("[0-9]{3}", constrained(engine, kinds.regex("[0-9]{3}")))
    assert constrained(engine, kinds.grammar('root ::= "yes" | "no"')) in ("yes", "no")
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
    for given in (schema, json.dumps(schema)):
        text = constrained(engine, kinds.json_schema(given), max_tokens=64)
        assert json.loads(text)["n"] in (1, 2)
    with pytest.raises(ValueError):
        constrained(engine, kinds.regex("("))
