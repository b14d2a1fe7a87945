#!/usr/bin/env python3
"""Compares our chat templates with those of transformers: every *.jinja in a folder, in conversations with and without a system message,
tools, tool calls, thoughts, and an answer to continue.

    python3 tests/clients/check_chat_templates.py FOLDER [--program build/release/text/chat/text_chat_test] [--show]

Needs jinja2 and transformers. The templates of published models are not part of this tree; the source distribution of llama.cpp has about
70 in models/templates. The cases are written to a file, which the test PublishedTemplates of text_chat_test reads and renders.
Both sides sort the keys of objects alphabetically, which is the order of nlohmann::json.
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from transformers.utils import chat_template_utils

NOW = 1741132800  # 2025-03-05, UTC
BOS, EOS = '<s>', '</s>'


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, datetime.timezone.utc)


def say(role, content, **more):
    return {'role': role, 'content': content, **more}


def tool(name, **properties):
    return {'type': 'function', 'function': {
        'name': name, 'description': f'Does {name} <now> & "here".',
        'parameters': {'type': 'object', 'properties': properties, 'required': list(properties)[:1]}}}


TOOLS = [tool('get_weather', city={'type': 'string', 'description': 'A city'}, unit={'type': 'string', 'enum': ['C', 'F']}),
         tool('add', numbers={'type': 'array', 'items': {'type': 'number'}}, exact={'type': 'boolean', 'default': False},
              scale={'type': ['number', 'null'], 'default': 1.5}, options={'type': 'object', 'properties': {'deep': {'type': 'integer'}}})]
SYSTEM = say('system', ' You are brief. ')
TALK = [say('user', 'Hi, who are you?'), say('assistant', 'Nobody.'), say('user', ' And I? é😀 <|im_end|> ')]


def calls(arguments):
    return [say('user', 'Weather in Paris?'),
            say('assistant', '', tool_calls=[{'id': 'abcdefghi', 'type': 'function', 'function': {'name': 'get_weather', 'arguments': arguments}}]),
            say('tool', '{"temperature": 21.5}', name='get_weather', tool_call_id='abcdefghi')]


ARGUMENTS = {'city': 'Paris "é"', 'days': 2, 'exact': True, 'none': None, 'ratio': 0.5, 'list': [1, 'a'], 'map': {'k': 1}}
THOUGHTS = [say('user', 'Hi'), say('assistant', 'Hello', reasoning_content='A greeting.\nSo greet.'), say('user', 'Bye')]
INLINE = [say('user', 'Hi'), say('assistant', '<think>\nA greeting.\n</think>\n\nHello'), say('user', 'Bye')]
CONVERSATIONS = {
    'question': dict(messages=[say('user', 'Hi')]),
    'question without prompt': dict(messages=[say('user', 'Hi')], add_generation_prompt=False),
    'system': dict(messages=[SYSTEM, say('user', ' Hi\n')]),
    'talk': dict(messages=TALK),
    'talk with system': dict(messages=[SYSTEM, *TALK]),
    'answered': dict(messages=TALK[:2], add_generation_prompt=False),
    'answered with system': dict(messages=[SYSTEM, *TALK[:2]], add_generation_prompt=False),
    'going on': dict(messages=TALK[:2], add_generation_prompt=False, continue_final_message=True),
    'going on with white space': dict(messages=[TALK[0], say('assistant', 'I am ')], add_generation_prompt=False, continue_final_message=True),
    'tools': dict(messages=TALK[:1], tools=TOOLS),
    'one tool': dict(messages=TALK[:1], tools=TOOLS[:1]),
    'tools with system': dict(messages=[SYSTEM, *TALK], tools=TOOLS),
    'call': dict(messages=calls(ARGUMENTS), tools=TOOLS),
    'call in words': dict(messages=calls(json.dumps(ARGUMENTS)), tools=TOOLS),
    'call with system': dict(messages=[SYSTEM, *calls({'city': 'Rome'}), say('assistant', 'Warm.'), say('user', 'Thanks')], tools=TOOLS),
    'call without content': dict(messages=[TALK[0], {**calls({'city': 'Rome'})[1], 'content': None}, calls({})[2]], tools=TOOLS),
    'two calls': dict(messages=[TALK[0], say('assistant', 'Let me see.', tool_calls=calls({'a': 1})[1]['tool_calls'] * 2), calls({})[2], calls({})[2]], tools=TOOLS),
    'thinking': dict(messages=TALK[:1], kwargs=dict(enable_thinking=True, thinking=True)),
    'not thinking': dict(messages=TALK[:1], kwargs=dict(enable_thinking=False, thinking=False)),
    'not thinking with tools': dict(messages=[SYSTEM, *TALK], tools=TOOLS, kwargs=dict(enable_thinking=False)),
    'thoughts': dict(messages=THOUGHTS),
    'thoughts at the end': dict(messages=THOUGHTS[:2], add_generation_prompt=False),
    'thoughts in words': dict(messages=INLINE),
    'thoughts in words at the end': dict(messages=INLINE[:2], add_generation_prompt=False),
    'thoughts and calls': dict(messages=[TALK[0], {**calls(ARGUMENTS)[1], 'reasoning_content': 'I need a tool.'}, calls({})[2]], tools=TOOLS),
    'effort': dict(messages=TALK[:1], kwargs=dict(reasoning_effort='high')),
    'developer': dict(messages=[say('developer', 'Be kind.'), *TALK]),
    'two questions': dict(messages=[say('user', 'a'), say('user', 'b')]),
    'answer first': dict(messages=[say('assistant', 'a'), say('user', 'b')]),
    'system alone': dict(messages=[SYSTEM]),
    'unknown role': dict(messages=[say('referee', 'a')]),
    'parts': dict(messages=[say('user', [{'type': 'text', 'text': 'one '}, {'type': 'text', 'text': 'two'}])]),
    'empty': dict(messages=[say('user', '')]),
}


def in_order(value):
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list) else value


def case(name, jinja, messages, tools=None, kwargs=None, add_generation_prompt=True, continue_final_message=False):
    given = dict(messages=in_order(messages), tools=in_order(tools), kwargs=kwargs or {}, add_generation_prompt=add_generation_prompt,
                 continue_final_message=continue_final_message)
    result = dict(given, name=name, jinja=jinja, bos_token=BOS, eos_token=EOS, now=NOW)
    try:
        rendered, _ = chat_template_utils.render_jinja_template(
            [given['messages']], tools=given['tools'], chat_template=jinja, add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message, bos_token=BOS, eos_token=EOS, **given['kwargs'])
        result['text'] = rendered[0]
    except Exception as error:  # any error: ours must fail as well
        result['fails'] = f'{type(error).__name__}: {error}'
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', type=pathlib.Path)
    parser.add_argument('--program', default='build/release/text/chat/text_chat_test')
    parser.add_argument('--show', action='store_true', help='prints the differences')
    arguments = parser.parse_args()
    chat_template_utils.datetime = Clock
    cases = [case(f'{path.stem}: {name}', path.read_text(encoding='utf-8'), **conversation)
             for path in sorted(arguments.folder.glob('*.jinja')) for name, conversation in CONVERSATIONS.items()]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / 'cases.jsonl'
        path.write_text(''.join(json.dumps(one) + '\n' for one in cases), encoding='utf-8')
        run = subprocess.run([arguments.program, '--gtest_filter=PublishedTemplates.*'], env={**os.environ, 'TANDEM_CHAT_CASES': str(path)},
                             stdout=subprocess.PIPE, text=True)
        lines = (path.parent / 'cases.jsonl.results').read_text(encoding='utf-8').splitlines()
    by_template = {}
    for one, result in zip(cases, map(json.loads, lines), strict=True):
        same = one['text'] == result.get('text') if 'text' in one else 'fails' in result
        template, conversation = one['name'].split(': ')
        by_template.setdefault(template, []).append((conversation, same, 'text' in one))
        if not same and arguments.show:
            print(f"--- {one['name']}\nreference: {one.get('text', one.get('fails'))!r}\nours:      {result.get('text', result.get('fails'))!r}")
    for template, results in by_template.items():
        wrong = [conversation for conversation, same, _ in results if not same]
        rendered = sum(is_rendered for _, _, is_rendered in results)
        print(f'{template}: identical ({rendered} rendered, {len(results) - rendered} refused by both)'
              if not wrong else f"{template}: differs in {', '.join(wrong)}")
    whole = sum(all(same for _, same, _ in results) for results in by_template.values())
    print(f'{whole} of {len(by_template)} templates are identical in all of {len(CONVERSATIONS)} conversations')
    return 0 if whole == len(by_template) and run.returncode == 0 else 1


if __name__ == '__main__':
    sys.exit(main())
