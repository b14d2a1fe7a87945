"""A model for clients that use functions and reasoning: the shipped storyteller with a chat template that supports both.

Its token for a full stop is renamed to "</think>", so it thinks for one sentence wherever the template lets it think. It
was not trained on functions, and calls one only where the grammar forces it to.
"""
import json
import os

TEMPLATE = """
{%- if tools %}{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif %}
{%- for message in messages %}
{%- if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>
{{ call.function | tojson }}
</tool_call>{% endfor %}
{% endfor %}
{%- if add_generation_prompt %}<think>
{% if not enable_thinking %}
</think>

{% endif %}{% endif %}"""
MARK = "."


def make_thinking_model(source, folder):
    """Fills `folder` with links to the model in `source`, and with a changed template and tokenizer."""
    for name in os.listdir(source):
        if name != "tokenizer.json":
            os.symlink(os.path.join(source, name), os.path.join(folder, name))
    with open(os.path.join(source, "tokenizer.json"), encoding="utf-8") as file:
        tokenizer = json.load(file)
    model = tokenizer["model"]
    token = {"id": model["vocab"].pop(MARK), "content": "</think>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": False}
    parts = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]
    model["merges"] = [merge for merge in parts if MARK not in merge]
    tokenizer["added_tokens"].append(token)
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(tokenizer, file)
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as file:
        file.write(TEMPLATE)
