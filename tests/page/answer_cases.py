"""Answers on the page: their Markdown, figures and buttons."""

from chat_case import LAST_ANSWER, ChatCase, assistant, user
from page_case import WATCH_SHIFTS, by_character

MARKDOWN = """\
## Sums & more

Two *words*, **one [link](https://example.org/a?b=1&c=2)** and `a < b && c`.
A line of its own.

1. One
   - inner
2. Two

> Quoted
> twice

```python
def add(a, b):
    return a + b  # <b>
```

| x | y |
|--:|---|
| 1 | `2` |

- [x] done
"""
# The elements and attributes that an answer can contain.
ELEMENTS = ('a blockquote br button code del div em h3 h4 h5 h6 hr li ol p pre span strong table tbody '
            'td th thead tr ul').split()
ATTRIBUTES = 'aria-label class data-draft href rel role start style tabindex target title type'.split()
HOSTILE = [
    '<script>document.title = "run"</script>',
    '<img src="/none" onerror="document.title = \'run\'">',
    '<svg onload="document.title = \'run\'"><style>body { display: none }</style></svg>',
    '<iframe srcdoc="<script>parent.document.title = \'run\'</script>"></iframe>',
    '<form action="https://example.org/"><input name="a"></form>',
    '<a href="javascript:document.title=1">a</a>',
    '[a](javascript:document.title=1)',
    '[b](JaVaScRiPt&colon;alert(1)) [c]( java\nscript:alert(1)) [d](data:text/html,<script>1</script>)',
    '[e](//example.org/) [f](/metrics) [g](vbscript:x) <javascript:alert(1)>',
    '![h](/none.png "x\\" onerror=alert(1)") ![i](javascript:alert(1)) ![](https://example.org/j.png)',
    '[k][m]\n\n[m]: javascript:alert(1) "t"',
    '# <b onclick=alert(1)>heading</b>',
    '| <i>x</i> |\n|---|\n| <img src=x onerror=alert(1)> |',
    '```"><script>document.title="run"</script>\n</code></pre><script>document.title="run"</script>\n```',
    '`<img src=x onerror=alert(1)>` &lt;script&gt; &#60;script&#62;',
    '- <details open ontoggle=alert(1)>\n  <summary>n</summary>',
    '<math><mtext><table><mglyph><style><!--</style><img title="--><img src=1 onerror=alert(1)>">',
]
# Lists the elements, attributes and links of the last answer.
LOOK = f"""
const all = [...document.querySelectorAll('{LAST_ANSWER} *')];
const values = (get) => [...new Set(all.flatMap(get))].sort();
return [values((e) => e.localName), values((e) => e.getAttributeNames()),
        values((e) => e.href === undefined ? [] : e.href)];
"""


class AnswerPage(ChatCase):
    # ---- Markdown ----

    def test_renders_the_markdown_of_finished_answers(self):
        self.open()
        self.answered(MARKDOWN)
        for selector, texts in [
                ('h4', ['Sums & more']), ('em', ['words']), ('strong', ['one link']),
                (':not(pre) > code', ['a < b && c', '2']), ('ol > li > ul > li', ['inner']),
                ('blockquote p', ['Quotedtwice']), ('th', ['x', 'y']), ('td', ['1', '2']),
                ('pre', ['def add(a, b):\n    return a + b  # <b>']), ('ul > li', ['inner', '☑ done'])]:
            self.assertEqual(self.look(selector), texts, selector)
        self.assertEqual(self.look('a', 'href'), ['https://example.org/a?b=1&c=2'])
        self.assertEqual(self.look('a', 'rel'), ['noreferrer'])
        self.assertEqual(self.page.script(
            f"return document.querySelectorAll('{LAST_ANSWER} p br').length;"), 2)
        self.assertEqual(self.page.script(
            f"return document.querySelector('{LAST_ANSWER} th').style.textAlign;"), 'right')
        self.screenshot('markdown')
        # The model gets its answer as it wrote it.
        self.say('And?')
        self.assertEqual(self.messages()[1], assistant(MARKDOWN))

    def test_keeps_the_colours_of_words(self):
        page = self.page
        self.open()
        parts = [['a', 'Some **bo'], ['c', 'ld** words:\n\n- o'], ['b', 'ne\n- two\n'],
                 ['p', '\n```\n'], ['a', '\tif x:\n'], ['c', '\t\ty()\n'], ['b', '```\n> x\n'],
                 ['c', '> y `x`']]
        self.reply(parts)
        self.say('Colours?')
        shown = page.parts('text', LAST_ANSWER)
        expected = [('accepted', 'Somebo'), ('correction', 'ldwords:o'), ('bonus', 'netwo'),
                    ('accepted', 'ifx:'), ('correction', 'y()'), ('bonus', 'x'), ('correction', 'yx')]
        self.assertEqual(by_character(shown), by_character(expected))
        # Colours can be turned off, stay off on the next visit, and can be turned on again.
        colour_of = ("return getComputedStyle(document.querySelector('#text .accepted'))"
                     '.backgroundColor;')
        coloured = page.script(colour_of)
        page.click('colours')
        self.assertEqual(page.script(colour_of), 'rgba(0, 0, 0, 0)')
        self.assertFalse(page.find('provenance').is_displayed())
        self.screenshot('without-colours')
        self.open(keeping=True)
        self.assertFalse(page.find('colours').is_selected())
        self.assertEqual(page.script(colour_of), 'rgba(0, 0, 0, 0)')
        self.assertEqual(by_character(page.parts('text', LAST_ANSWER)), by_character(expected))
        page.click('colours')
        self.assertEqual(page.script(colour_of), coloured)

    def test_does_not_run_or_load_anything_in_an_answer(self):
        page = self.page
        self.open()
        page.script("document.title = 'Tandem';")
        for text in [*HOSTILE, '\n\n'.join(HOSTILE)]:
            loaded = page.script("return performance.getEntriesByType('resource').length;")
            self.answered(text)
            elements, attributes, links = page.script(LOOK)
            self.assertLessEqual(set(elements), set(ELEMENTS), text)
            self.assertLessEqual(set(attributes), set(ATTRIBUTES), text)
            self.assertLessEqual(set(links), {'https://example.org/j.png'}, text)
            self.assertEqual(page.script('return [document.title, frames.length];'), ['Tandem', 0], text)
            self.assertEqual(
                page.script("return performance.getEntriesByType('resource').length;"), loaded, text)
        # HTML is shown as text, also in messages.
        markup = '<img src="/none" onerror="document.title = 1"><b>bold</b>'
        self.reply([['a', markup]])
        self.say(markup)
        self.assertEqual(self.said()[-1], markup)
        self.assertEqual(self.shown(), markup)
        self.assertEqual(
            page.script("return document.querySelectorAll('#text img, #text b').length;"), 0)
        # The same holds for the kept conversation.
        self.open(keeping=True)
        self.assertEqual(self.said()[-1], markup)
        self.assertEqual(
            page.script("return document.querySelectorAll('#text img, #text b').length;"), 0)

    def test_shows_too_long_or_too_deep_markdown_as_plain_text(self):
        self.open()
        for text in '> ' * 4900 + 'x', '- ' * 4900 + 'x', '*a ' * 100000, '[' * 100000:
            self.answered(text)
            self.assertEqual(self.shown(), text)
            self.assertEqual(self.answer(), text)
        self.answered('*a* ' + 'b ' * 4900)
        self.assertEqual(self.look('em'), ['a'])

    # ---- Buttons ----

    def test_copies_messages_answers_and_code(self):
        page = self.page
        self.open()
        self.answered(MARKDOWN)
        page.script("""
            window.copied = [];
            navigator.clipboard.writeText = async (text) => { copied.push(text); };""")
        for label in 'Copy the message', 'Copy the answer', 'Copy the code':
            self.turn_button(label)
            page.until(lambda: page.text('status') == 'Copied.')
            self.assertEqual(page.script(
                f"return document.querySelector(`#text [aria-label='{label}']`).textContent;"), 'Copied')
        code = 'def add(a, b):\n    return a + b  # <b>'
        self.assertEqual(page.script('return copied;'), ['Say it.', MARKDOWN, code])
        # Pages that were loaded over http from another machine do not have a clipboard: the
        # selection is copied.
        page.script("""
            Object.defineProperty(navigator, 'clipboard', {value: undefined});
            document.execCommand = (name) => {
              copied.push([name, document.activeElement.value]);
              return true;
            };""")
        self.turn_button('Copy the code')
        self.assertEqual(page.script('return copied.at(-1);'), ['copy', code])
        page.script('document.execCommand = () => false;')
        self.turn_button('Copy the code')
        page.until(lambda: page.text('status') == 'Not copied.')

    def test_regenerates_the_last_answer(self):
        page = self.page
        self.open()
        self.say('Who was the king?')
        self.say('And then?')
        page.set('prompt', 'something else')
        before = page.requests()[-1]
        page.set('max-tokens', 9)
        self.turn_button('Regenerate the answer')
        page.await_end()
        path, body = page.requests()[-1]
        self.assertEqual(body['messages'], before[1]['messages'])
        self.assertEqual(page.text('tokens'), '9')
        self.assertEqual(self.said(), ['Who was the king?', 'And then?'])
        self.assertEqual(page.find('prompt').get_property('value'), 'something else')
        # Only the last answer has the button. If the server refuses, the old answer is restored.
        self.assertEqual(page.script(
            "return [...document.querySelectorAll('#text .again')]"
            '.map((e) => e.checkVisibility({checkVisibilityCSS: true}));'),
            [False, True])
        kept, answer = self.kept(), self.shown()
        page.set('max-tokens', 5000)
        self.turn_button('Regenerate the answer')
        page.await_end('Not done')
        self.assertEqual((self.kept(), self.shown()), (kept, answer))
        self.assertEqual(page.find('prompt').get_property('value'), 'something else')
        self.assertEqual(len(page.complaints()), 1)  # the browser logs the status 400

    def test_edits_an_earlier_message(self):
        page = self.page
        self.open(width=380, height=900)
        self.say('Who was the king?')
        self.say('And then?')
        page.script(WATCH_SHIFTS)
        page.set('prompt', 'not sent yet')
        self.turn_button('Edit the message', 0)
        self.assertEqual(page.find('prompt').get_property('value'), 'Who was the king?')
        self.assertEqual(page.script('return document.activeElement.id;'), 'prompt')
        self.assertTrue(page.find('editing').is_displayed())
        faded = "return document.querySelectorAll('#text .faded').length;"
        self.assertEqual(page.script(faded), 2)
        page.press('Escape')
        self.assertFalse(page.find('editing').is_displayed())
        self.assertEqual(page.script(faded), 0)
        self.assertEqual(page.find('prompt').get_property('value'), 'not sent yet')
        self.check_stays()
        # A refused edit does not change the conversation.
        kept = self.kept()
        self.turn_button('Edit the message', 0)
        self.screenshot('chat-edit')
        page.set('prompt', 'Who was the queen?')
        page.set('max-tokens', 5000)
        page.press('Enter')
        page.await_end('Not done')
        self.assertEqual(self.said(), ['Who was the king?', 'And then?'])
        self.assertEqual(self.kept(), kept)
        self.assertEqual(page.find('prompt').get_property('value'), 'Who was the queen?')
        self.assertTrue(page.find('editing').is_displayed())
        page.set('max-tokens', 8)
        page.press('Enter')
        page.await_end()
        self.assertEqual(self.said(), ['Who was the queen?'])
        self.assertEqual(self.messages(), [user('Who was the queen?')])
        self.assertEqual(len(self.kept()['turns']), 1)
        self.assertEqual(page.find('prompt').get_property('value'), 'not sent yet')
        self.assertEqual(len(page.complaints()), 1)

    # ---- Figures ----

    def test_shows_figures_next_to_the_answer(self):
        page = self.page
        self.open()
        timings = {'ttft_ms': 131.0, 'tokens_per_second': 12.0, 'prefill_ms': 7.0}
        tokens = [['a', 'One '], ['c', 'two.']]
        figures = "return [...document.querySelectorAll('#text .turn-figures')].at(-1).textContent;"
        self.reply(tokens, timings)
        self.say('Old?')
        self.assertEqual(page.script(figures),
                         '75 % of drafts accepted (3 of 4) · 12.0 tokens/s · prompt in 7.0 ms')
        self.assertEqual(page.text('first-token'), '131 ms')
        self.reply(tokens, {**timings, 'prompt_tokens': 961, 'prompt_ms': 1987.0,
                            'prompt_tokens_per_second': 483.6, 'decode_ms': 400.0,
                            'decode_tokens_per_second': 50.0})
        self.say('New?')
        self.assertEqual(page.script(figures), '75 % of drafts accepted (3 of 4) · 50.0 tokens/s · '
                                               'prompt of 961 tokens in 1.99 s (484 tokens/s)')
        self.assertEqual(page.text('prompt-time'), '1.99 s')
        self.assertEqual(page.text('speed'), '50.0')
        self.reply(tokens, {**timings, 'prompt_tokens': 1})
        self.say('Short?')
        self.assertIn('prompt of 1 token in 7.0 ms', page.script(figures))

    def test_is_readable_in_light_and_dark_mode(self):
        for scheme in 'light', 'dark':
            self.open(scheme=scheme)
            self.answered(MARKDOWN)
            self.check_contrast(scheme)
            self.screenshot(f'markdown-{scheme}')
