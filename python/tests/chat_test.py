"""The answers to conversations: separate reasoning, content and function calls."""

import asyncio
import copy
import json
import pickle
import shutil

import pytest
import tandem

from conftest import ROOT

MODEL = ROOT / "tests/data/models/llama-gqa"
MESSAGES = [{"role": "user", "content": "How is it?"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}]
ARGUMENTS = '{"city": "Rome"}'
ANSWER = ("<think>\nThey ask.\n</think>\n\nLet me look.\n<tool_call>\n"
          '{"name": "weather", "arguments": ' + ARGUMENTS + "}\n</tool_call>")
CHAT = {"tools": TOOLS, "temperature": 0.0, "max_tokens": 1}


def made(folder):
    return tandem.Engine(folder, device="cpu", threads=1, compute="f32", kv_memory_bytes=1 << 26)


@pytest.fixture(scope="module")
def thinking(tmp_path_factory):
    """A model whose first token is the text ANSWER, with a template that mentions reasoning."""
    folder = tmp_path_factory.mktemp("thinking") / "model"
    shutil.copytree(MODEL, folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = (
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}\n{% endfor %}"
        "{{ '<think>' if false }}<|assistant|>{{ '<think></think>' if enable_thinking is false }}")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    model = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**model, "max_position_embeddings": 1024}))
    with made(folder) as engine:
        first = int(engine.chat(MESSAGES, **CHAT).token_ids[0])
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    old = next(text for text, id in tokenizer["model"]["vocab"].items() if id == first)
    del tokenizer["model"]["vocab"][old]
    tokenizer["model"]["vocab"][ANSWER.replace(" ", "\u0120").replace("\n", "\u010a")] = first
    tokenizer["model"]["merges"] = [
        merge for merge in tokenizer["model"]["merges"]
        if "".join(merge.split(" ") if isinstance(merge, str) else merge) != old]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with made(folder) as engine:
        yield engine


def test_answers_separate_reasoning_and_calls(thinking):
    pieces = []
    answer = thinking.chat(MESSAGES, pieces.append, **CHAT)
    assert isinstance(answer, tandem.Completion)
    assert answer.text == ANSWER
    assert (answer.reasoning, answer.content) == ("They ask.", "Let me look.")
    assert [(call.index, call.name, call.arguments) for call in answer.tool_calls] == [
        (0, "weather", ARGUMENTS)]
    assert "".join(piece.text for piece in pieces) == ANSWER
    assert "".join(piece.reasoning for piece in pieces) == answer.reasoning
    assert "".join(piece.content for piece in pieces) == answer.content

    plain = thinking.chat([{"role": "user", "content": "Why?"}], max_tokens=4, temperature=0.0)
    assert (plain.reasoning, plain.content, plain.tool_calls) == ("", plain.text, [])
    assert plain.message == {"role": "assistant", "content": plain.text}
    variables = {"enable_thinking": False}
    assert "</think>" in thinking.tokenizer.decode(thinking.chat_prompt(MESSAGES, variables=variables))
    assert thinking.chat(MESSAGES, variables=variables, max_tokens=2).reasoning == ""


def test_reasoning_is_limited(thinking):
    # The answer has one token of reasoning, which also ends it: nothing is forced.
    assert thinking.chat(MESSAGES, max_thinking_tokens=0, **CHAT).text == ANSWER
    for limit, variables in ((7, None), (0, {"reasoning_effort": "none"})):
        asked = limit if variables is None else None
        request, _ = thinking._of_chat(MESSAGES, None, variables, asked, {})
        assert request.thinking_budget.max_tokens == limit
    request, _ = thinking._of_chat(MESSAGES, None, None, None, {})
    assert request.thinking_budget is None
    with pytest.raises(tandem.FieldError, match="^max_thinking_tokens: must be at least 0, got -1"):
        thinking.chat(MESSAGES, max_thinking_tokens=-1)
    with pytest.raises(tandem.FieldError, match="^max_thinking_tokens: .* next to a constraint"):
        thinking.chat(MESSAGES, max_thinking_tokens=1,
                      constraint=tandem.OutputConstraint.choice(["a"]))


def test_messages_continue_the_conversation(thinking):
    message = thinking.chat(MESSAGES, **CHAT).message
    assert message["reasoning_content"] == "They ask."
    call, = message["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": {"city": "Rome"}}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "warm"}
    told = thinking.tokenizer.decode(thinking.chat_prompt([*MESSAGES, message, result]))
    assert "Let me look.\n<tool_call>" in told and "They ask." not in told
    assert '{"name": "weather", "content": "warm"}' in told


def test_streams_separate_the_parts(thinking):
    with thinking.stream_chat(MESSAGES, **CHAT) as stream:
        pieces = list(stream)
        answer = stream.wait()
    assert all(isinstance(piece, tandem.ChatPiece) for piece in pieces)
    assert isinstance(answer, tandem.ChatCompletion)
    calls = [call for piece in pieces for call in piece.tool_calls]
    assert calls[0].name == "weather"
    assert "".join(call.arguments for call in calls) == answer.tool_calls[0].arguments == ARGUMENTS
    assert "".join(piece.content for piece in pieces) == answer.content == "Let me look."
    assert repr(stream).startswith("<tandem.ChatStream ended: ")
    first, *_ = thinking.stream_chat(MESSAGES, prompt_progress=True, **CHAT)
    assert first.prompt_progress.total == answer.prompt_tokens

    async def read():
        async with thinking.stream_chat(MESSAGES, **CHAT) as stream:
            parts = [piece.reasoning async for piece in stream]
            return "".join(parts), (await stream.wait_async()).content

    assert asyncio.run(read()) == ("They ask.", "Let me look.")
    # Text that was held back until the end is a piece without tokens.
    held = list(thinking.stream_chat([{"role": "user", "content": "Why?"}], tools=TOOLS,
                                     temperature=0.0, max_tokens=3))
    assert "".join(p.content for p in held) == "".join(p.text for p in held)


def test_a_function_that_raises_or_stops_ends_the_answer(thinking):
    with pytest.raises(ZeroDivisionError):
        thinking.chat(MESSAGES, lambda piece: 1 / 0, **CHAT)
    seen = []
    answer = thinking.chat(MESSAGES, lambda piece: bool(seen.append(piece)), temperature=0.0, max_tokens=400,
                           ignore_eos=True)
    assert answer.finish_reason == "cancelled" and len(seen) == 1


@pytest.mark.parametrize("tools, field", [
    ([{"type": "search"}], "tools[0].type"), ([5], "tools[0]"),
    ([{"type": "function", "function": {"name": "a b"}}], "tools[0].function.name"),
    ([*TOOLS, *TOOLS], "tools[1].function.name"), ([float("nan")], "tools")])
def test_invalid_tools_are_errors(thinking, tools, field):
    for ask in (thinking.chat, thinking.stream_chat):
        with pytest.raises(tandem.FieldError) as caught:
            ask(MESSAGES, tools=tools, max_tokens=1)
        assert caught.value.field == field
        assert field in str(caught.value)


def test_answers_can_be_copied_and_shown(thinking):
    pieces = []
    answer = thinking.chat(MESSAGES, pieces.append, **CHAT)
    for value in (answer, pieces[0], answer.tool_calls[0]):
        for again in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
            assert type(again) is type(value)
            assert repr(again) == repr(value)
    assert repr(answer.tool_calls[0]) == (
        f"ToolCall(index=0, name='weather', arguments={ARGUMENTS!r})")
    assert repr(answer).startswith(f"ChatCompletion(text={ANSWER!r}, reasoning='They ask.', content=")
