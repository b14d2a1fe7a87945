"""The page for a model with a chat template."""

import pathlib
import tempfile

from chat_case import LAST_ANSWER, SETTINGS, ChatCase, assistant, user
from page_case import WATCH_SHIFTS, by_character, parts_of


class ChatPage(ChatCase):
    # ---- A conversation ----

    def test_sends_the_conversation_and_shows_provenance(self):
        page = self.page
        self.open()
        self.assertEqual(page.find('main').get_attribute('data-mode'), 'chat')
        self.assertIn('talker', page.find('welcome').text)
        self.screenshot('chat-first')
        page.press('Enter')  # an empty message is not sent
        self.assertEqual(page.requests(), [])
        page.set('system', 'Tell stories.')
        self.say('Who was the king?')
        self.assertFalse(page.script("return document.getElementById('welcome') !== null;"))
        system = {'role': 'system', 'content': 'Tell stories.'}
        first = self.answer()
        self.assertGreater(len(first), 60)
        self.assertEqual(self.messages(), [system, user('Who was the king?')])
        self.say('And then?')
        self.assertEqual(self.said(), ['Who was the king?', 'And then?'])
        self.assertEqual(self.messages(), [
            system, user('Who was the king?'), assistant(first), user('And then?')])
        self.assertEqual(page.requests()[-1][1]['speculation']['draft_tokens'], 3)
        chunks = page.chunks()
        shown = page.parts('text', LAST_ANSWER)
        self.assertEqual(by_character(shown), by_character(parts_of(chunks)))
        self.assertTrue({'accepted', 'correction'} <= {kind for kind, _ in shown})
        # A corrected word has what the draft had in its place.
        rejected = [draft for chunk in chunks for draft in chunk['choices'][0].get('rejected_texts', [])]
        corrections = [text for kind, text in parts_of(chunks) if kind == 'correction']
        self.assertEqual(
            page.script(f"return [...document.querySelectorAll('{LAST_ANSWER} .correction')]"
                        '.map((e) => e.dataset.draft ?? null);'),
            [draft if text.strip() else None for text, draft in zip(corrections, rejected)])
        self.check_figures(chunks)
        self.screenshot('chat')
        page.click('replay')
        page.until(lambda: page.parts('text', LAST_ANSWER) != shown)
        page.press('Escape')
        page.await_end()
        self.assertEqual(by_character(page.parts('text', LAST_ANSWER)), by_character(shown))

    def test_a_click_sends_an_example(self):
        page = self.page
        self.open()
        page.script("document.querySelector('#examples button').click();")
        page.await_end()
        self.assertEqual(self.messages(), [user(self.said()[0])])
        self.assertNotEqual(self.answer(), '')

    def test_begins_a_new_conversation(self):
        page = self.page
        self.open()
        page.set('system', 'Be kind.')
        self.say('Who was the king?')
        self.anew()
        self.assertEqual(self.said(), [])
        self.assertEqual(page.text('tokens'), '0')
        self.assertEqual(page.text('target-words'), 'empty')
        self.say('Who was the fox?')
        self.assertEqual(self.messages(), [
            {'role': 'system', 'content': 'Be kind.'}, user('Who was the fox?')])
        # An answer that is being written is stopped.
        page.set('max-tokens', 700)
        page.set('draft-tokens', 0)
        page.set('prompt', 'And then?')
        page.press('Enter')
        page.until(lambda: self.shown())
        self.anew()
        page.until(lambda: 'tandem_num_requests_running 0' in self.server.get('/metrics'))
        page.set('max-tokens', 8)
        self.say('Who was it?')
        self.assertEqual(self.messages()[1:], [user('Who was it?')])

    def test_races_and_continues(self):
        page = self.page
        self.open()
        self.say('Who was the king?')
        before = self.answer()
        page.set('temperature', 0.8)
        page.set('seed', 1)
        page.set('prompt', 'And then?')
        page.click('race')
        page.until(lambda: 'Both texts are identical' in page.text('verdict-words'))
        page.until(lambda: page.parts('plain-text', LAST_ANSWER) and page.parts('text', LAST_ANSWER))
        # Both answers start on the same line, below the verdict. The earlier turn is not in the way.
        top = ("return [...document.querySelectorAll(arguments[0])].map((e) => "
               'Math.round(e.getBoundingClientRect().top)).filter((y) => y !== 0);')
        [first] = page.script(top, '#text .answer')
        self.assertEqual(page.script(top, '#plain-text .answer'), [first])
        self.assertGreater(first, page.script(
            "return document.getElementById('verdict').getBoundingClientRect().bottom;"))
        self.assertEqual(page.text('race-said'), 'And then?')
        self.screenshot('chat-race')
        page.press('Escape')
        page.await_end('Race done')
        answer = self.answer()
        self.assertEqual(
            page.script(f"return document.querySelector('#plain-text .answer').textContent;"),
            self.shown())
        self.assertEqual({kind for kind, _ in page.parts('plain-text', LAST_ANSWER)}, {'plain'})
        page.click('end-race')
        for name in 'plain-text', 'verdict', 'race-said':
            self.assertFalse(page.find(name).is_displayed(), name)
        self.assertEqual(page.script('return document.activeElement.id;'), 'prompt')
        self.say('Why?')
        self.assertEqual(self.messages(), [
            user('Who was the king?'), assistant(before), user('And then?'), assistant(answer),
            user('Why?')])

    # ---- Keyboard ----

    def test_sends_begins_lines_and_stops_by_keyboard(self):
        from selenium.webdriver.common.keys import Keys
        page = self.page
        self.open()
        self.assertEqual(page.script('return document.activeElement.id;'), 'prompt')
        page.set('max-tokens', 900)
        page.set('draft-tokens', 0)
        page.stop_at_first_word('#text .answer span')
        page.find('prompt').send_keys('Who was', Keys.SHIFT, Keys.ENTER, Keys.NULL, 'the king?')
        self.assertEqual(page.requests(), [])
        page.press('Enter')
        page.await_end('Stopped after')
        cut_short = self.answer()
        self.assertEqual(self.said(), ['Who was\nthe king?'])
        self.assertLess(int(page.text('tokens')), 900)
        self.assertNotEqual(cut_short, '')
        page.until(lambda: 'tandem_num_requests_running 0' in self.server.get('/metrics'))
        # An answer that was cut short is part of the conversation.
        page.set('max-tokens', 8)
        page.set('prompt', 'Go on.')
        page.press('Enter', ctrl=True)
        page.await_end()
        self.assertEqual(self.messages(), [
            user('Who was\nthe king?'), assistant(cut_short), user('Go on.')])

    def test_moves_the_focus_from_the_message_to_the_settings(self):
        page = self.page
        self.open()
        page.script("document.getElementById('show-list').focus();")
        reached = []
        for _ in range(15):
            page.press('Tab')
            reached.append(page.script('return document.activeElement.id;'))
        self.assertEqual([name for name in reached if name], [
            'colours', 'text', 'prompt', 'race', 'run', 'draft-tokens', 'drafter', 'verifier',
            'temperature', 'max-tokens', 'seed', 'system'])

    # ---- Errors ----

    def test_keeps_a_message_that_the_server_refuses(self):
        page = self.page
        self.open()
        self.say('Who was the king?')
        first = self.answer()
        page.set('prompt', 'word ' * 1500)
        page.press('Enter')
        page.await_end('Not done')
        self.assertIn('refused (400)', page.text('error'))
        self.assertIn('model\'s context of 1024 must include one more', page.text('error'))
        self.assertIn('Begin a new conversation', page.text('error'))
        self.assertEqual(page.find('prompt').get_property('value'), 'word ' * 1500)
        self.assertEqual(page.find('prompt').get_attribute('aria-invalid'), 'true')
        self.assertEqual(self.said(), ['Who was the king?'])
        page.set('prompt', 'And then?')
        page.set('max-tokens', 5000)
        page.press('Enter')
        page.await_end('Not done')
        self.assertIn('Field: max_tokens', page.text('error'))
        self.assertEqual(page.find('prompt').get_property('value'), 'And then?')
        self.screenshot('chat-error')
        page.set('max-tokens', 8)
        page.press('Enter')
        page.await_end()
        self.assertFalse(page.find('error').is_displayed())
        self.assertEqual(self.messages(), [
            user('Who was the king?'), assistant(first), user('And then?')])
        self.assertEqual(['status of 400' in words for words in page.complaints()], [True, True])

    def test_becomes_a_chat_once_the_key_is_right(self):
        from selenium.webdriver.common.keys import Keys
        server = self.new_server('--api-key', 'secret')
        self.addCleanup(server.close)
        page = self.page
        page.open(server.origin)
        self.assertTrue(page.find('gate').is_displayed())
        page.find('api-key').send_keys('secret', Keys.ENTER)
        page.until(lambda: page.find('welcome').is_displayed())
        self.assertFalse(page.find('gate').is_displayed())
        self.assertEqual(page.script('return document.activeElement.id;'), 'prompt')
        page.set('temperature', 0)
        page.set('max-tokens', 8)
        self.say('Who was the king?')
        self.assertEqual(page.text('tokens'), '8')
        # If the key becomes wrong, the page asks for it again, and no text is lost.
        page.set('api-key', 'other')
        page.set('prompt', 'And then?')
        page.press('Enter')
        page.until(lambda: page.find('gate').is_displayed())
        self.assertIn('does not accept this key', page.text('gate-error'))
        page.set('api-key', 'secret')
        page.find('api-key').send_keys(Keys.ENTER)
        page.until(lambda: page.find('prompt').is_displayed())
        self.assertEqual(page.find('prompt').get_property('value'), 'And then?')
        self.assertEqual(self.said(), ['Who was the king?'])
        page.press('Enter')
        page.await_end()
        self.assertEqual(self.said(), ['Who was the king?', 'And then?'])
        self.assertTrue(all('status of 401' in words for words in page.complaints()))

    # The thoughts are shown like all other tokens, in the same colours.
    def test_shows_the_reasoning_of_a_model(self):
        from page_world import THINKING, Server, make_talker
        folder = self.enterContext(tempfile.TemporaryDirectory())
        make_talker(pathlib.Path(folder), THINKING)
        server = Server(self.program, folder, '--model-name', 'thinker')
        self.addCleanup(server.close)
        page = self.page
        page.open(server.origin)
        for name, value in SETTINGS.items():
            page.set(name, value)
        page.keep_requests()
        self.say('Who was the king?')
        self.assertGreater(len(self.answer()), 60)
        first = self.answer()
        self.say('And then?')
        self.assertEqual(self.messages()[1], assistant(first))

    def test_limits_the_reasoning_of_a_model_that_has_some(self):
        from page_world import THINKING, Server, make_talker
        page = self.page
        page.open(self.server.origin)
        self.assertFalse(page.find('thinking').is_displayed())
        folder = self.enterContext(tempfile.TemporaryDirectory())
        make_talker(pathlib.Path(folder), THINKING)
        server = Server(self.program, folder, '--model-name', 'thinker')
        self.addCleanup(server.close)
        page.open(server.origin)
        for name, value in SETTINGS.items():
            page.set(name, value)
        self.assertEqual(page.text('thinking-words'), 'no limit')
        self.say('Who was the king?')
        self.assertNotIn('</think>', self.answer())
        page.set('thinking', 0)
        self.assertEqual(page.text('thinking-words'), 'none')
        self.say('Who was the king?')
        self.assertTrue(self.answer().startswith('</think>'))
        self.screenshot('thinking')

    # ---- Appearance ----

    def test_has_contrast_in_light_and_dark_mode(self):
        for scheme in 'light', 'dark':
            self.open(scheme=scheme)
            self.check_contrast(scheme)
            self.say('Who was the king?')
            self.check_contrast(scheme)
            if scheme == 'dark':
                self.screenshot('chat-dark')

    def test_fits_a_narrow_window_without_moving(self):
        for name, width in ('narrow', 380), ('wide', 1600):
            self.open(width=width, height=900)
            self.page.script(WATCH_SHIFTS)
            self.say('Who was the king?')
            self.say('And then?')
            self.check_stays()
            if name == 'narrow':
                self.screenshot('chat-narrow')
