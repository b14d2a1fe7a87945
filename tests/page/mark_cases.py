"""How answers look while they come: their marks, the drafts of corrected words, Markdown in parts."""

from answer_cases import MARKDOWN
from chat_case import LAST_ANSWER, ChatCase

PARTS = [['a', 'The'], ['c', ' king', ' queen had\na'], ['b', ' said'], ['p', ' no'],
         ['c', ' more', ''], ['a', '.']]


class MarkPage(ChatCase):
    # ---- Marks ----

    def test_marks_drafts_with_a_tint_and_corrections_with_a_line(self):
        self.open()
        self.reply(PARTS)
        self.say('Who?')
        marks = self.page.script(f"""
            return Object.fromEntries([...document.querySelectorAll('{LAST_ANSWER} span')].map((e) => {{
              const style = getComputedStyle(e);
              return [e.className, [style.backgroundColor !== 'rgba(0, 0, 0, 0)',
                                    style.textDecorationLine !== 'none', style.borderStyle]];
            }}));""")
        self.assertEqual(marks, {
            'accepted': [True, False, 'none'], 'correction': [False, True, 'none'],
            'bonus': [True, False, 'none'], 'plain': [False, False, 'none']})
        # The space before a corrected word has no line.
        self.assertEqual(self.look('.correction'), ['king', 'more'])
        self.assertEqual(self.shown(), 'The king said no more.')

    # ---- Pointing at corrected words ----

    def tip(self):
        tip = self.page.find('tip')
        return tip.text if tip.is_displayed() else None

    def test_shows_what_the_draft_had(self):
        page = self.page
        self.open()
        self.reply(PARTS)
        self.say('Who?')
        first = LAST_ANSWER + ' .correction'
        self.assertIsNone(self.tip())
        page.point_at(first)
        page.until(lambda: self.tip() == 'The draft had queen had ↵ a')
        self.screenshot('tip')
        page.point_at('#tip')  # a pointer that moves onto the tip can read it
        page.await_frame()
        self.assertIsNotNone(self.tip())
        page.point_at(None)
        page.until(lambda: self.tip() is None)
        # With the keyboard.
        page.script("document.getElementById('text').focus();")
        for key, tip in [('ArrowRight', 'queen had ↵ a'), ('ArrowRight', '(the end)'),
                         ('ArrowRight', 'queen had ↵ a'), ('ArrowLeft', '(the end)')]:
            page.press(key)
            page.until(lambda: self.tip() == f'The draft had {tip}')
            self.assertEqual(page.script("return document.activeElement.getAttribute('aria-describedby');"),
                             'tip')
        page.press('Escape')
        page.until(lambda: self.tip() is None)
        page.press('ArrowLeft')
        page.until(lambda: self.tip() is not None)
        page.script("document.getElementById('prompt').focus();")
        self.assertIsNone(self.tip())
        # With a finger.
        page.tap(first)
        page.until(lambda: self.tip() == 'The draft had queen had ↵ a')
        # After a reload.
        self.open(keeping=True)
        page.point_at(first)
        page.until(lambda: self.tip() == 'The draft had queen had ↵ a')

    def test_keeps_tips_within_the_window(self):
        page = self.page
        self.open(width=380, height=800)
        self.reply([['a', 'word ' * 8], ['c', 'other', 'a long draft ' * 30], ['a', ' words' * 8]])
        self.say('Who?')
        page.point_at(LAST_ANSWER + ' .correction')
        page.until(lambda: self.tip() is not None)
        left, right, top = page.script("""
            const at = document.getElementById('tip').getBoundingClientRect();
            return [at.left, innerWidth - at.right, at.top];""")
        self.assertGreaterEqual(min(left, right, top), 0)

    # ---- Markdown that is being written ----

    def await_look(self, selector, *texts):
        """Waits until the answer is formatted again, which takes at most a quarter of the time."""
        self.page.until(lambda: self.look(selector) == list(texts))

    def test_renders_markdown_while_it_comes(self):
        page = self.page
        self.open()
        self.begin_reply()
        page.set('prompt', 'Go.')
        page.press('Enter')
        page.until(lambda: page.script('return window.stream !== undefined;'))
        self.send('a', 'Some **bo')
        self.await_look('strong', 'bo')
        self.assertEqual(self.shown(), 'Some bo')
        self.send('c', 'ld** and *i', 'rder')
        self.await_look('strong', 'bold')
        self.assertEqual(self.look('em'), ['i'])
        self.send('a', '*.\n\n```py\nx = 1')
        self.await_look('pre', 'x = 1')
        self.send('b', '\ny = 2\n``')
        self.await_look('pre', 'x = 1\ny = 2')
        page.script(f"document.querySelector('{LAST_ANSWER} p').isFirst = true;")
        self.send('a', '`\n\nThen:\n-')
        self.await_look('p', 'Some bold and i.', 'Then:')
        self.assertEqual(self.look('h3, h4, h5'), [])
        self.send('a', ' a [link](https://exa')
        self.await_look('li', 'a link')
        self.screenshot('markdown-unfinished')
        self.send('p', 'mple.org)\n- b')
        self.await_look('li', 'a link', 'b')
        self.assertEqual(self.look('a', 'href'), ['https://example.org/'])
        self.end_reply()
        self.assertEqual(self.look('li'), ['a link', 'b'])
        self.assertEqual(self.look('.correction'), ['ld', 'and ', 'i'])
        # Finished blocks are not made anew, so that a selection in them stays.
        self.assertTrue(page.script(f"return document.querySelector('{LAST_ANSWER} p').isFirst;"))

    def test_never_shows_unfinished_marks(self):
        self.open()
        source = MARKDOWN + '\n~~gone~~ a_b_c 2 * 3 **bold `code *x*` and _under_** ***both***\n'
        shown = self.call('unfinished.js', """
            const source = arguments[0];
            return [...source].map((_, i) => m.completed(source.slice(0, i + 1)));""", source)
        texts = self.call('markdown.js', """
            return arguments[0].map(
                (source) => m.elementsOf(m.blocksOf(source), (text) => text).textContent);""", shown)
        for i, text in enumerate(texts):
            for mark in '**', '``', '](', '~~', '##', '[link]':
                self.assertNotIn(mark, text, (source[:i + 1], shown[i]))
        self.assertIn('a_b_c 2 * 3 bold code *x* and under both', texts[-1].replace('\n', ' '))

    def test_formats_the_end_as_if_it_had_come_at_once(self):
        page = self.page
        self.open()
        html = f"return document.querySelector('{LAST_ANSWER}').innerHTML;"
        # A definition after its use, a list that goes on, a paragraph that becomes a heading.
        for source in (MARKDOWN, '[a][b] c\n\ntext\n\n[b]: https://example.org/ "t"\n',
                       '1. a\n\n2. b\n\n   c\n', 'a\n\nb\n===\nc', '- a\n\n- b\n\n  - c\n\nd'):
            self.reply([['a', source]])
            self.say('At once.')
            whole = page.script(html)
            self.reply([['a', letter] for letter in source])
            self.say('By letters.')
            self.assertEqual(page.script(html), whole, source)
