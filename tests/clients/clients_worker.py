"""The checks of check_clients.py that need a package: `clients_worker.py openai`, `anthropic`, `metrics`, `litellm`, `langchain` or `instructor`,
each in its own environment's Python.

TANDEM_URL is the server, TANDEM_FULL_URL a server that holds a single request, and TANDEM_CALLS_URL one whose model thinks and calls
functions. TANDEM_KEY is the key of all three.
"""
import json
import os
import sys
import time
import urllib.request

URL, FULL_URL, CALLS_URL, KEY = (os.environ[name] for name in ("TANDEM_URL", "TANDEM_FULL_URL", "TANDEM_CALLS_URL", "TANDEM_KEY"))
GREEDY = {"model": "story", "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
failed = []


def check(name, passed, detail=""):
    print(f"{'ok    ' if passed else 'FAILED'} {name}{': ' + str(detail) if not passed else ''}", flush=True)
    if not passed:
        failed.append(name)


def fails_with(name, kind, call, status, **members):
    """Checks that `call` raises `kind` with this status and an error body with these members."""
    try:
        call()
    except kind as error:
        body = error.body if isinstance(error.body, dict) else {}
        got = {key: body.get(key) for key in members}
        check(name, error.status_code == status and got == members, f"{error.status_code} {error.body}")
    except Exception as error:  # noqa: BLE001: report any other error
        check(name, False, f"{type(error).__name__}: {error}")
    else:
        check(name, False, "no error")


def check_openai():
    import openai
    client = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)
    check_completions(client)
    check_chats(client)
    check_responses(openai, client)
    check_errors(openai, client)
    import clients_tools
    clients_tools.check_openai(openai, openai.OpenAI(base_url=CALLS_URL + "/v1", api_key=KEY, max_retries=0), check, fails_with)


def check_anthropic():
    import anthropic
    import clients_anthropic
    clients_anthropic.check_anthropic(anthropic, CALLS_URL, KEY, check)


def check_completions(client):
    whole = client.completions.create(**GREEDY)
    text = whole.choices[0].text
    check("completion", whole.object == "text_completion" and len(text) > 10 and whole.usage.completion_tokens > 0)
    check("speculation in the answer", 0 <= whole.speculation["acceptance_rate"] <= 1)
    counts = whole.metrics["speculative_decoding"]
    check("vLLM's counts in the answer", counts["num_draft_tokens"] == whole.speculation["proposed"] > 0 and
          sum(counts["acceptance_histogram"]) == counts["num_spec_steps"] and
          sum(i * n for i, n in enumerate(counts["acceptance_histogram"])) == counts["num_accepted_draft_tokens"], counts)
    parts = list(client.completions.create(**GREEDY, stream=True, stream_options={"include_usage": True}))
    check("joined stream equals the whole answer", "".join(p.choices[0].text for p in parts if p.choices) == text)
    check("stream's usage", parts[-1].usage.completion_tokens == whole.usage.completion_tokens)
    check("vLLM's counts in the stream's last chunk", parts[-1].metrics["speculative_decoding"]["num_draft_tokens"] > 0)
    several = client.completions.create(**{**GREEDY, "temperature": 1}, n=3, seed=5)
    again = client.completions.create(**{**GREEDY, "temperature": 1}, n=3, seed=5)
    check("n", [c.index for c in several.choices] == [0, 1, 2] and len({c.text for c in several.choices}) > 1)
    check("seed", [c.text for c in several.choices] == [c.text for c in again.choices])
    rows = client.completions.create(**GREEDY, logprobs=2).choices[0].logprobs
    check("logprobs", len(rows.tokens) == len(rows.token_logprobs) == len(rows.text_offset) == 24 and "".join(rows.tokens) == text and
          all(len(top) >= 2 and max(top.values()) >= one - 1e-6 for top, one in zip(rows.top_logprobs, rows.token_logprobs)))
    word = text.split()[3]
    stopped = client.completions.create(**GREEDY, stop=[word])
    check("stop", stopped.choices[0].text == text[:text.index(word)] and stopped.choices[0].finish_reason == "stop")
    prompts = client.completions.create(**{**GREEDY, "prompt": ["Once upon a time", "A dog"]})
    check("two prompts", len(prompts.choices) == 2 and prompts.choices[0].text == text)
    plain = client.completions.create(**GREEDY, extra_body={"speculation": {"draft_tokens": 0}})
    check("speculation off", plain.choices[0].text == text and plain.speculation["proposed"] == 0)
    check("models", [model.id for model in client.models.list()] == ["story"] and client.models.retrieve("story").id == "story")


def check_chats(client):
    ask = {"model": "story", "messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 16, "temperature": 0}
    whole = client.chat.completions.create(**ask, logprobs=True, top_logprobs=3)
    message = whole.choices[0].message
    check("chat", message.role == "assistant" and len(message.content) > 0)
    rows = whole.choices[0].logprobs.content
    check("chat logprobs", all(len(row.top_logprobs) == 3 and bytes(row.bytes).decode(errors="replace") == row.token for row in rows))
    deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**ask, stream=True)]
    check("chat stream", deltas[0].role == "assistant" and "".join(d.content or "" for d in deltas) == message.content)
    with client.chat.completions.stream(**ask) as stream:
        for _ in stream:
            pass
        check("chat stream helper", stream.current_completion_snapshot.choices[0].message.content == message.content)


def check_responses(openai, client):
    ask = {"model": "story", "input": "Once upon a time", "max_output_tokens": 16, "temperature": 0}
    whole = client.responses.create(**ask)
    check("response", whole.status in ("completed", "incomplete") and len(whole.output_text) > 0 and whole.usage.output_tokens > 0)
    same = {"messages": [{"role": "user", "content": "Once upon a time"}], "model": "story", "max_tokens": 16, "temperature": 0}
    check("a response equals a chat", client.chat.completions.create(**same).choices[0].message.content == whole.output_text)
    events = list(client.responses.create(**ask, stream=True))
    check("response stream", events[0].type == "response.created" and events[-1].response.output_text == whole.output_text and
          "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text)
    # The helper does not support answers that were cut, so this one ends by itself.
    with client.responses.stream(**{**ask, "max_output_tokens": 200}, extra_body={"stop": [whole.output_text.split()[-1]]}) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        check("response stream helper", len(text) > 0 and stream.get_final_response().output_text == text)
    items = [{"role": "user", "content": "Once upon a time"}, *(item.model_dump() for item in whole.output), {"role": "user", "content": "Then"}]
    check("a response continues", len(client.responses.create(**{**ask, "input": items}).output_text) > 0)
    fails_with("400 for stored responses", openai.BadRequestError, lambda: client.responses.create(**ask, previous_response_id=whole.id), 400,
               param="previous_response_id")


def check_errors(openai, client):
    create = client.completions.create
    fails_with("400", openai.BadRequestError, lambda: create(**{**GREEDY, "max_tokens": -2}), 400, param="max_tokens",
               code="invalid_value", type="invalid_request_error")
    raw = client.completions.with_raw_response.create(**GREEDY, extra_body={"nonsense": 1, "no_stop_trim": False})
    check("an unknown field is ignored and reported", raw.headers["x-tandem-ignored-fields"] == "nonsense" and raw.parse().choices[0].text)
    check("the answer's request id", raw.headers["x-request-id"] and raw.parse().system_fingerprint.startswith("fp_"))
    fails_with("400 for an unsupported field", openai.BadRequestError, lambda: create(**GREEDY, extra_body={"use_beam_search": True}), 400,
               param="use_beam_search", code="invalid_value")
    fails_with("404 for an unsupported path", openai.NotFoundError, lambda: client.embeddings.create(model="story", input="x"), 404, code="not_served")
    fails_with("400 for a long prompt", openai.BadRequestError, lambda: create(**{**GREEDY, "prompt": "long " * 3000}), 400,
               param="prompt", code="context_length_exceeded")
    fails_with("401", openai.AuthenticationError, client.with_options(api_key="other").models.list, 401, code="invalid_api_key")
    fails_with("404 for a model", openai.NotFoundError, lambda: create(**{**GREEDY, "model": "other"}), 404, param="model",
               code="model_not_found")
    fails_with("404 for a path", openai.NotFoundError, lambda: client.embeddings.create(model="story", input="a"), 404)
    fails_with("413", openai.APIStatusError, lambda: create(**{**GREEDY, "prompt": "a" * (5 << 20)}), 413, code="body_too_large")
    full = openai.OpenAI(base_url=FULL_URL + "/v1", api_key=KEY, max_retries=0)
    running = full.completions.create(**{**GREEDY, "max_tokens": 1000}, stream=True, extra_body={"ignore_eos": True})
    next(iter(running))
    fails_with("429 on a full queue", openai.RateLimitError, lambda: full.completions.create(**GREEDY), 429,
               type="rate_limit_error", code="queue_full")
    running.close()
    # The cut-off request ends with its round. After a 429 the package waits as long as the server
    # says, and tries again.
    patient = full.with_options(max_retries=5).completions.create(**GREEDY)
    check("tries again after a 429", len(patient.choices[0].text) > 0)


def check_litellm():
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it waits for the network
    import litellm
    litellm.suppress_debug_info = True
    known = {"model": "openai/story", "api_base": URL + "/v1", "api_key": KEY}
    ask = {**known, "messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 16, "temperature": 0}
    whole = litellm.completion(**ask).choices[0].message.content
    check("litellm chat", len(whole) > 0)
    parts = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(**ask, stream=True)]
    check("litellm stream", "".join(parts) == whole)
    hosted = litellm.completion(**{**ask, "model": "hosted_vllm/story"}, top_k=5, seed=1, user="me")
    check("litellm in vLLM's form", len(hosted.choices[0].message.content) > 0)
    text = litellm.text_completion(**{**known, "model": "text-completion-openai/story"}, prompt="Once upon a time", max_tokens=8, temperature=0)
    check("litellm text", len(text.choices[0].text) > 0)
    import clients_tools
    clients_tools.check_litellm(litellm, {**known, "api_base": CALLS_URL + "/v1"}, check)
    try:
        litellm.completion(**{**ask, "max_tokens": 100000})
    except litellm.ContextWindowExceededError:
        check("litellm recognises a prompt that is too long", True)
    except Exception as error:  # noqa: BLE001: report any other error
        check("litellm recognises an error of the request", isinstance(error, litellm.BadRequestError), f"{type(error).__name__}: {error}")
    else:
        check("litellm recognises an error of the request", False, "no error")


def check_langchain():
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
    from langchain_openai import ChatOpenAI, OpenAI
    known = {"model": "story", "base_url": URL + "/v1", "api_key": KEY, "temperature": 0, "max_retries": 0}
    chat = ChatOpenAI(**known, max_tokens=16)
    turns = [SystemMessage("Tell"), HumanMessage("Once upon a time"), AIMessage("there was"), HumanMessage("a dog")]
    answer = chat.invoke(turns)
    check("langchain chat", len(answer.content) > 0 and answer.usage_metadata["output_tokens"] > 0)
    parts = list(chat.stream(turns))
    check("langchain stream", "".join(part.content for part in parts) == answer.content)
    check("langchain batch", len(chat.batch(["Once", "A dog"])) == 2)
    respond = ChatOpenAI(**known, max_tokens=16, use_responses_api=True)
    check("langchain responses", respond.invoke("Once upon a time").text)
    check("langchain completion", len(OpenAI(**known, max_tokens=8).invoke("Once upon a time")) > 0)
    import clients_tools
    clients_tools.check_langchain({**known, "base_url": CALLS_URL + "/v1"}, check)


def check_instructor():
    import instructor
    import openai
    from pydantic import BaseModel

    class Story(BaseModel):
        title: str

    ask = {"model": "story", "messages": [{"role": "user", "content": "Once"}], "response_model": Story, "max_tokens": 16, "max_retries": 1}
    client = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)

    def outcome(mode):
        try:
            instructor.from_openai(client, mode=mode).chat.completions.create(**ask)
            return "answered"
        except Exception as error:  # noqa: BLE001: the check looks at the cause
            return f"{type(error).__name__}: {error}"

    # The shipped model writes stories and not JSON. Instructor must find that in the answer.
    by_text = outcome(instructor.Mode.MD_JSON)
    check("instructor reads an answer", "Error code" not in by_text and "Connection" not in by_text, by_text)
    import clients_tools
    clients_tools.check_instructor(instructor, openai.OpenAI(base_url=CALLS_URL + "/v1", api_key=KEY, max_retries=0), check)


def families():
    from prometheus_client.parser import text_string_to_metric_families
    request = urllib.request.Request(URL + "/metrics")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return {family.name: family for family in text_string_to_metric_families(answer.read().decode())}


def total(found, name, **labels):
    return sum(sample.value for family in found.values() for sample in family.samples
               if sample.name == name and labels.items() <= sample.labels.items())


def check_metrics():
    before = families()
    sent = [{"prompt": "Once", "max_tokens": 20, "ignore_eos": True, "speculation": {"draft_tokens": 4}}, {"prompt": "A dog", "n": 2, "max_tokens": 8,
            "ignore_eos": True}, {"prompt": ""}]
    proposed = accepted = prompts = generated = 0
    for body in sent:
        request = urllib.request.Request(URL + "/v1/completions", json.dumps(body).encode(), {"Authorization": f"Bearer {KEY}"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                reply = json.load(answer)
                proposed += reply["speculation"]["proposed"]
                accepted += reply["speculation"]["accepted"]
                generated += reply["usage"]["completion_tokens"]
                prompts += reply["usage"]["prompt_tokens"] * body.get("n", 1)
        except urllib.error.HTTPError as error:
            check("every request is answered", False, error)
    time.sleep(0.5)  # counts follow the last round, which can end after its answer is sent
    after = families()

    def grown(name, **labels):
        return total(after, name, **labels) - total(before, name, **labels)

    check("types", after["tandem_time_to_first_token_seconds"].type == "histogram" and
          after["tandem_num_requests_running"].type == "gauge" and after["tandem_generation_tokens"].type == "counter")
    check("generated tokens", grown("tandem_generation_tokens_total") == generated)
    check("prompt tokens", grown("tandem_prompt_tokens_total") == prompts)
    check("draft tokens", grown("tandem_spec_decode_num_draft_tokens_total") == proposed > 0)
    per_place = grown("tandem_spec_decode_num_accepted_tokens_per_pos_total")
    check("accepted tokens by position add up", per_place == grown("tandem_spec_decode_num_accepted_tokens_total") == accepted)
    check("first tokens and ends", grown("tandem_time_to_first_token_seconds_count") == grown("tandem_e2e_request_latency_seconds_count") == 4)
    answers = grown("tandem_http_responses_total", path="/v1/completions")
    check("answers by path and status", answers == 3, answers)
    for family in after.values():
        if family.type == "histogram":
            buckets = [sample.value for sample in family.samples if sample.name.endswith("_bucket")]
            check(f"buckets of {family.name} rise to its count", buckets == sorted(buckets) and buckets[-1] == total(after, family.name + "_count"))
    check("nothing runs, waits or holds pages", total(after, "tandem_num_requests_running") == total(after, "tandem_num_requests_waiting") ==
          total(after, "tandem_kv_cache_usage_ratio") == 0)


if __name__ == "__main__":
    {"openai": check_openai, "metrics": check_metrics, "litellm": check_litellm, "langchain": check_langchain,
     "instructor": check_instructor, "anthropic": check_anthropic}[sys.argv[1]]()
    sys.exit(1 if failed else 0)
