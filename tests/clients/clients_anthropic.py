"""The checks of check_clients.py with Anthropic's client for /v1/messages. clients_worker.py runs them.

The server's model thinks and calls functions (clients_models.py).
"""
import json

TOOL = {"name": "Weather", "description": "The weather of a city.", "cache_control": {"type": "ephemeral"}, "input_schema": {
    "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}}
USER = {"role": "user", "content": "Once upon a time"}
ASK = {"model": "story", "max_tokens": 120, "messages": [USER], "extra_body": {"temperature": 0}}
ENABLED = {"type": "enabled", "budget_tokens": 8}


def check_anthropic(anthropic, url, key, check):
    client = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)
    check_text(client, check)
    check_thinking(client, check)
    check_tools(client, check)
    check_errors(anthropic, client, url, check)


def without_signature(block):
    return {name: value for name, value in block.model_dump().items() if name != "citations"}


def check_text(client, check):
    system = [{"type": "text", "text": "A story.", "cache_control": {"type": "ephemeral"}}]
    ask = {**ASK, "max_tokens": 24, "system": system, "metadata": {"user_id": "u"}}
    whole = client.messages.create(**ask)
    text = "".join(block.text for block in whole.content)
    check("message", whole.type == "message" and whole.role == "assistant" and whole.stop_reason == "max_tokens" and len(text) > 10 and
          whole.usage.output_tokens == 24, whole)
    with client.messages.stream(**ask) as stream:
        joined = "".join(stream.text_stream)
        final = stream.get_final_message()
    check("message: the stream equals the whole answer", joined == text and final.usage.output_tokens == 24 and
          final.stop_reason == "max_tokens" and [*map(without_signature, final.content)] == [*map(without_signature, whole.content)], final)
    events = [event.type for event in client.messages.create(**ask, stream=True)]
    check("message: events", events[0] == "message_start" and events[-2:] == ["message_delta", "message_stop"], events)
    count = client.messages.count_tokens(model="story", messages=[USER], system=system).input_tokens
    cached = whole.usage.cache_read_input_tokens
    check("message: count_tokens", count == whole.usage.input_tokens + cached, (count, whole.usage))
    stop = text.split()[2]
    stopped = client.messages.create(**ask, stop_sequences=["xyzzy", stop])
    check("message: a stop sequence", stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == stop and
          stopped.content[0].text == text[:text.index(stop)], stopped)
    begun = client.messages.create(**{**ask, "messages": [USER, {"role": "assistant", "content": "there was"}]})
    check("message: an answer that has begun", begun.content[0].text, begun)


def check_thinking(client, check):
    ask = {**ASK, "thinking": ENABLED}
    whole = client.messages.create(**ask)
    kinds = [block.type for block in whole.content]
    check("thinking: a block with a signature", kinds[:2] == ["thinking", "text"] and whole.content[0].thinking and whole.content[0].signature, whole)
    with client.messages.stream(**ask) as stream:
        for _ in stream:
            pass
        final = stream.get_final_message()
    check("thinking: the stream equals the whole answer", [block.model_dump() for block in final.content] ==
          [block.model_dump() for block in whole.content], final)
    none = client.messages.create(**{**ask, "thinking": {"type": "enabled", "budget_tokens": 0}})
    check("thinking: a budget of 0", [block.type for block in none.content] == ["text"], none)
    disabled = client.messages.create(**{**ask, "thinking": {"type": "disabled"}})
    check("thinking: disabled", [block.type for block in disabled.content] == ["text"], disabled)
    turns = [USER, {"role": "assistant", "content": whole.content}, {"role": "user", "content": "And then?"}]
    check("thinking: the next turn", client.messages.create(**{**ask, "messages": turns}).content)


def check_tools(client, check):
    ask = {**ASK, "tools": [TOOL], "max_tokens": 200}
    named = {"type": "tool", "name": "Weather"}
    whole = client.messages.create(**ask, tool_choice=named)
    call = whole.content[-1]
    check("tools: named", whole.stop_reason == "tool_use" and call.type == "tool_use" and call.name == "Weather" and
          call.input["city"] in ("Paris", "Rome"), whole)
    with client.messages.stream(**ask, tool_choice=named) as stream:
        parts = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    check("tools: a stream's input", json.loads("".join(parts)) == call.input and final.content[-1].input == call.input and
          final.stop_reason == "tool_use", final)
    check("tools: any", client.messages.create(**ask, tool_choice={"type": "any"}).stop_reason == "tool_use")
    free = client.messages.create(**{**ask, "max_tokens": 24}, tool_choice={"type": "none"})
    check("tools: none", [block.type for block in free.content] == ["text"], free)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "Rain."}]}
    turns = [USER, {"role": "assistant", "content": whole.content}, {"role": "user", "content": [result]}]
    check("tools: the next turn", client.messages.create(**{**ask, "messages": turns, "max_tokens": 24}).content)


def check_errors(anthropic, client, url, check):
    def fails(name, kind, status, error_type, call):
        try:
            call()
        except kind as error:
            check(name, error.status_code == status and error.body["error"]["type"] == error_type, error.body)
        else:
            check(name, False, "no error")

    create = client.messages.create
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    fails("400 for an image", anthropic.BadRequestError, 400, "invalid_request_error",
          lambda: create(**{**ASK, "messages": [{"role": "user", "content": [image]}]}))
    fails("404 for another model", anthropic.NotFoundError, 404, "not_found_error", lambda: create(**{**ASK, "model": "other"}))
    stranger = anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0)
    fails("401 for another key", anthropic.AuthenticationError, 401, "authentication_error", lambda: stranger.messages.create(**ASK))
