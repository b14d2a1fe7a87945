"""The checks of check_clients.py for functions, objects of a schema and reasoning, by package. clients_worker.py runs them.

The text of the server's model (clients_models.py) does not make sense. The checks are that packages understand its form, and that
constrained output follows its schema. Schemas are narrow, so that random output ends.
"""
import json
from typing import Literal

from pydantic import BaseModel, Field


class Weather(BaseModel):
    """The weather of a city."""
    city: Literal["Paris", "Rome"]
    days: int = Field(ge=0, le=9)


class Note(BaseModel):
    """A note."""
    urgent: bool


def is_weather(arguments):
    return bool(Weather.model_validate_json(arguments if isinstance(arguments, str) else json.dumps(arguments)))


def function(kind, strict=True):
    """The function that makes an object of `kind`, in the format of chats."""
    schema = kind.model_json_schema()
    return {"type": "function", "function": {"name": kind.__name__, "description": kind.__doc__, "strict": strict,
                                             "parameters": {**schema, "additionalProperties": False}}}


TOOLS = [function(Weather), function(Note)]
ASK = [{"role": "user", "content": "Once upon a time"}]
THINKING = {"chat_template_kwargs": {"enable_thinking": True}}
NAMED = {"type": "function", "function": {"name": "Weather"}}


def check_openai(openai, client, check, fails_with):
    check_openai_calls(client, check)
    check_openai_parsed(openai, client, check)
    check_openai_reasoning(client, check)
    check_openai_responses(openai, client, check)
    create = client.chat.completions.create
    fails_with("400 for an unknown kind of tool", openai.BadRequestError, lambda: create(model="story", messages=ASK, tools=[{"type": "web_search"}]), 400,
               param="tools[0].type")
    fails_with("400 for calls without tools", openai.BadRequestError, lambda: create(model="story", messages=ASK, tool_choice="required"), 400,
               param="tool_choice")


def check_openai_calls(client, check):
    ask = {"model": "story", "messages": ASK, "tools": TOOLS, "max_tokens": 200, "temperature": 0}
    create = client.chat.completions.create
    choice = create(**ask, tool_choice=NAMED).choices[0]
    call = choice.message.tool_calls[0]
    check("tools: named", choice.finish_reason == "tool_calls" and choice.message.content is None and len(choice.message.tool_calls) == 1 and
          call.function.name == "Weather" and call.type == "function" and is_weather(call.function.arguments), choice)
    one = create(**ask, tool_choice="required", parallel_tool_calls=False).choices[0].message.tool_calls
    check("tools: required, one", len(one) == 1 and one[0].function.name in ("Weather", "Note"), one)
    several = create(**{**ask, "temperature": 1}, seed=1, tool_choice="required", n=3)
    calls = [call for choice in several.choices for call in choice.message.tool_calls[:1]]
    check("tools: in every choice", len(calls) == 3 and len({call.id for call in calls}) == 3, several)
    free = create(**{**ask, "max_tokens": 24}).choices[0]
    check("tools: auto may answer with text", free.message.tool_calls is None and free.message.content, free)
    none = create(**{**ask, "max_tokens": 24}, tool_choice="none").choices[0]
    check("tools: none", none.message.tool_calls is None and none.message.content, none)
    parts = list(create(**ask, tool_choice=NAMED, stream=True))
    deltas = [delta for part in parts for delta in part.choices[0].delta.tool_calls or []]
    check("tools: a stream's arguments", "".join(delta.function.arguments for delta in deltas) == call.function.arguments and len(deltas) > 3 and
          deltas[0].function.name == "Weather" and deltas[0].id and parts[-1].choices[0].finish_reason == "tool_calls", deltas)
    turns = [*ASK, choice.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "Rain."}]
    check("tools: the next turn", create(**{**ask, "messages": turns, "max_tokens": 16}).choices[0].message.content)


def check_openai_parsed(openai, client, check):
    ask = {"model": "story", "messages": ASK, "max_tokens": 200, "temperature": 0}
    parsed = client.chat.completions.parse(**ask, response_format=Weather).choices[0].message.parsed
    check("an object of a schema", isinstance(parsed, Weather), parsed)
    tools = [openai.pydantic_function_tool(Weather)]
    called = client.chat.completions.parse(**ask, tools=tools, tool_choice="required", parallel_tool_calls=False).choices[0].message.tool_calls
    check("tools: parsed", isinstance(called[0].function.parsed_arguments, Weather), called)
    with client.chat.completions.stream(**ask, tools=tools, tool_choice="required", parallel_tool_calls=False) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        check("tools: the stream helper", len(done) == 1 and isinstance(done[0].parsed_arguments, Weather), done)
    with client.chat.completions.stream(**ask, response_format=Weather) as stream:
        done = [event for event in stream if event.type == "content.done"]
        check("an object of a stream", len(done) == 1 and isinstance(done[0].parsed, Weather), done)


def check_openai_reasoning(client, check):
    ask = {"model": "story", "messages": ASK, "max_tokens": 120, "temperature": 0, "extra_body": THINKING}
    create = client.chat.completions.create
    whole = create(**ask)
    message, usage = whole.choices[0].message, whole.usage
    check("reasoning is separate", message.reasoning_content and message.content and "think>" not in message.reasoning_content + message.content.split("<")[0] and
          0 < usage.completion_tokens_details.reasoning_tokens < usage.completion_tokens, whole)
    parts = [part for part in create(**ask, stream=True, stream_options={"include_usage": True})]
    deltas = [part.choices[0].delta for part in parts if part.choices]
    check("reasoning of a stream", "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == message.reasoning_content and
          "".join(delta.content or "" for delta in deltas) == message.content and
          parts[-1].usage.completion_tokens_details.reasoning_tokens == usage.completion_tokens_details.reasoning_tokens, deltas)
    cut = create(**{**ask, "max_tokens": 1}).choices[0]
    check("reasoning that is cut", cut.finish_reason == "length" and cut.message.content is None and cut.message.reasoning_content, cut)
    for limit in (0, 3):
        short = create(**{**ask, "extra_body": {**THINKING, "max_thinking_tokens": limit}})
        check("limited reasoning", short.choices[0].message.content and
              0 < short.usage.completion_tokens_details.reasoning_tokens <= limit + 1, short)
    held = client.chat.completions.parse(**{**ask, "max_tokens": 400}, response_format=Weather).choices[0].message
    check("an object after reasoning", isinstance(held.parsed, Weather) and held.reasoning_content, held)
    called = create(**{**ask, "max_tokens": 400}, tools=TOOLS, tool_choice=NAMED)
    check("a call after reasoning", called.usage.completion_tokens_details.reasoning_tokens > 0 and
          is_weather(called.choices[0].message.tool_calls[0].function.arguments), called)
    plain = create(**{**ask, "extra_body": {**THINKING, "separate_reasoning": False}}).choices[0].message
    check("reasoning kept in the text", plain.content.startswith(message.reasoning_content) and "</think>" in plain.content, plain)
    without = create(**{**ask, "extra_body": {}}).choices[0].message
    check("no reasoning if the template ends it", getattr(without, "reasoning_content", None) is None and without.content, without)


def check_openai_responses(openai, client, check):
    flat = [{"type": "function", **{key: value for key, value in tool["function"].items()}} for tool in TOOLS]
    ask = {"model": "story", "input": "Once upon a time", "max_output_tokens": 200, "temperature": 0, "tools": flat}
    named = {"type": "function", "name": "Weather"}
    whole = client.responses.create(**ask, tool_choice=named)
    call = whole.output[0]
    check("response: a call", whole.status == "completed" and len(whole.output) == 1 and call.type == "function_call" and call.name == "Weather" and
          is_weather(call.arguments) and whole.tool_choice.name == "Weather" and whole.tools[0].name == "Weather", whole)
    events = list(client.responses.create(**ask, tool_choice=named, stream=True))
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    check("response: a call's events", "".join(deltas) == call.arguments and len(deltas) > 3 and
          [event.type for event in events][-3:] == ["response.function_call_arguments.done", "response.output_item.done", "response.completed"], events[-3:])
    tools = [openai.pydantic_function_tool(Weather)]
    with client.responses.stream(**{**ask, "tools": tools}, tool_choice="required", parallel_tool_calls=False) as stream:
        for _ in stream:
            pass
        parsed = stream.get_final_response().output[0].parsed_arguments
        check("response: the stream helper parses arguments", isinstance(parsed, Weather), parsed)
    turns = [{"role": "user", "content": "Once upon a time"}, *(item.model_dump(exclude_none=True) for item in whole.output),
             {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}]
    check("response: the next turn", client.responses.create(**{**ask, "input": turns, "max_output_tokens": 16}).output_text)
    parsed = client.responses.parse(**{**ask, "tools": []}, text_format=Weather).output_parsed
    check("response: an object of a schema", isinstance(parsed, Weather), parsed)
    thinking = {**ask, "tools": [], "extra_body": THINKING}
    thought = client.responses.create(**thinking)
    kinds = [item.type for item in thought.output]
    check("response: reasoning", kinds == ["reasoning", "message"] and thought.output[0].content[0].text and
          0 < thought.usage.output_tokens_details.reasoning_tokens < thought.usage.output_tokens, thought)
    events = list(client.responses.create(**thinking, stream=True))
    deltas = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
    check("response: reasoning of a stream", "".join(deltas) == thought.output[0].content[0].text and
          events[-1].response.output_text == thought.output_text, events[-1])
    with client.responses.stream(**{**thinking, "max_output_tokens": 400}, text_format=Weather) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
        check("response: an object after reasoning", isinstance(final.output_parsed, Weather) and final.output[0].type == "reasoning", final)


def check_litellm(litellm, known, check):
    ask = {**known, "messages": ASK, "max_tokens": 200, "temperature": 0, "tools": TOOLS, "tool_choice": NAMED}
    call = litellm.completion(**ask).choices[0].message.tool_calls[0]
    check("litellm tools", call.function.name == "Weather" and is_weather(call.function.arguments), call)
    chunks = list(litellm.completion(**ask, stream=True))
    joined = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls[0]
    check("litellm tools of a stream", joined.function.arguments == call.function.arguments, joined)
    whole = litellm.completion(**{**known, "model": "hosted_vllm/story"}, messages=ASK, max_tokens=120, temperature=0, extra_body=THINKING)
    message = whole.choices[0].message
    check("litellm reasoning", message.reasoning_content and message.content, message)
    parsed = litellm.completion(**known, messages=ASK, max_tokens=200, temperature=0, response_format=Weather).choices[0].message.content
    check("litellm's object of a schema", is_weather(parsed), parsed)


def check_langchain(known, check):
    from langchain_openai import ChatOpenAI
    chat = ChatOpenAI(**known, max_tokens=200)
    for name, bound in (("langchain tools", chat.bind_tools([Weather, Note], tool_choice="Weather", strict=True)),
                        ("langchain tools of responses", ChatOpenAI(**known, max_tokens=200, use_responses_api=True)
                         .bind_tools([Weather, Note], tool_choice="Weather", strict=True))):
        called = bound.invoke("Once upon a time")
        check(name, [call["name"] for call in called.tool_calls] == ["Weather"] and is_weather(called.tool_calls[0]["args"]), called)
        parts = None
        for part in bound.stream("Once upon a time"):
            parts = part if parts is None else parts + part
        check(f"{name}, streamed", [call["args"] for call in parts.tool_calls] == [called.tool_calls[0]["args"]], parts)
    for method in ("function_calling", "json_schema"):
        made = chat.with_structured_output(Weather, method=method, strict=True).invoke("Once upon a time")
        check(f"langchain structured output by {method}", isinstance(made, Weather), made)


def check_instructor(instructor, client, check):
    ask = {"model": "story", "messages": ASK, "response_model": Weather, "max_tokens": 200, "max_retries": 1, "temperature": 0}
    for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA):
        made = instructor.from_openai(client, mode=mode).chat.completions.create(**ask)
        check(f"instructor's {mode.name}", isinstance(made, Weather), made)
    # Any object is fine here: whether it is the right one depends on the model.
    try:
        instructor.from_openai(client, mode=instructor.Mode.JSON).chat.completions.create(**ask)
        outcome = "made"
    except Exception as error:  # noqa: BLE001: the check looks at the cause
        outcome = f"{type(error).__name__}: {error}"
    check("instructor's JSON", "Error code" not in outcome and "Connection" not in outcome, outcome)
