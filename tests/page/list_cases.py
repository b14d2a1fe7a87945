"""The conversations that the browser keeps: their list, and the files that carry them."""

import json

from chat_case import ChatCase, assistant, user
from page_case import by_character

ENTRIES = '#conversations .open'


class ListPage(ChatCase):
    def open(self, **window):
        super().open(**{'width': 1600, 'height': 900, **window})

    def names(self):
        return self.page.script(
            f"return [...document.querySelectorAll('{ENTRIES}')].map((e) => e.textContent);")

    def press_button(self, label):
        self.page.script("document.querySelector(`#list [aria-label='${arguments[0]}']`).click();", label)

    def have_two(self):
        for name in 'First', 'Second':
            self.reply([['a', f'{name} answer.'], ['c', ' Ended', ' and'], ['p', '.']])
            self.say(name)
            self.page.click('anew')
            self.page.until(lambda: self.page.find('welcome').is_displayed())

    def import_text(self, text, name='file.json'):
        self.page.script("""
            const files = new DataTransfer();
            files.items.add(new File([arguments[0]], arguments[1]));
            const input = document.getElementById('import-file');
            input.files = files.files;
            input.dispatchEvent(new Event('change'));""", text, name)

    def exported(self):
        self.page.script("""
            URL.createObjectURL = (blob) => { window.saved = blob.text(); return 'about:blank#'; };
            HTMLAnchorElement.prototype.click = function() { window.savedAs = this.download; };""")
        self.page.click('export')
        self.assertEqual(self.page.script('return savedAs;'), 'tandem-conversations.json')
        return json.loads(self.page.driver.execute_async_script('saved.then(arguments[0]);'))

    # ---- The list ----

    def test_lists_opens_and_continues_conversations(self):
        page = self.page
        self.open()
        self.assertEqual(self.names(), [])
        self.assertFalse(page.find('export').is_enabled())
        self.have_two()
        self.assertEqual(self.names(), ['Second', 'First'])
        self.assertEqual(page.text('conversation-name'), 'New conversation')
        self.press_button('Open First')
        page.until(lambda: self.said() == ['First'])
        self.assertEqual(self.shown(), 'First answer. Ended.')
        self.assertEqual(page.text('conversation-name'), 'First')
        self.assertEqual(page.script(
            f"return document.querySelector('{ENTRIES}[aria-current=true]').textContent;"), 'First')
        self.screenshot('list')
        page.set('system', 'Be kind.')
        self.reply([['a', 'More.']])
        self.say('And then?')
        self.assertEqual(self.messages(), [
            {'role': 'system', 'content': 'Be kind.'}, user('First'), assistant('First answer. Ended.'),
            user('And then?')])
        self.assertEqual(self.names(), ['First', 'Second'])
        # The page shows the same conversation after a reload.
        self.open(keeping=True)
        self.assertEqual(self.said(), ['First', 'And then?'])
        self.press_button('Open Second')
        page.until(lambda: self.said() == ['Second'])
        self.assertEqual(page.find('system').get_property('value'), '')

    def test_stops_an_answer_before_it_opens_another_conversation(self):
        page = self.page
        self.open()
        self.have_two()
        self.begin_reply()
        page.set('prompt', 'Third')
        page.press('Enter')
        page.until(lambda: page.script('return window.stream !== undefined;'))
        self.send('a', 'Third answer')
        self.press_button('Open First')
        page.until(lambda: self.said() == ['First'])
        self.assertEqual(self.names(), ['Third', 'Second', 'First'])
        self.press_button('Open Third')
        page.until(lambda: self.shown() == 'Third answer')

    def test_renames_and_deletes_conversations(self):
        from selenium.webdriver.common.keys import Keys
        page = self.page
        self.open()
        self.have_two()
        for end, name in ((Keys.ESCAPE, 'First'), (Keys.ENTER, 'The king')):
            self.press_button('Rename First')
            page.driver.switch_to.active_element.send_keys('The king', end)
            page.until(lambda: self.names() == ['Second', name])
        self.press_button('Rename The king')
        page.driver.switch_to.active_element.send_keys(Keys.BACKSPACE, '  ', Keys.ENTER)
        self.assertEqual(self.names(), ['Second', 'The king'])
        self.press_button('Open The king')
        page.until(lambda: page.text('conversation-name') == 'The king')
        # A first click only asks; leaving the button takes it back.
        page.driver.find_element('css selector', "[aria-label='Delete Second']").click()
        page.find('prompt').click()
        page.driver.find_element('css selector', "[aria-label='Delete Second']").click()
        self.assertEqual(self.names(), ['Second', 'The king'])
        page.driver.find_element('css selector', "[aria-label='Delete Second']").click()
        self.assertEqual((self.names(), self.said()), (['The king'], ['First']))
        # To delete the shown one begins a new one.
        for _ in range(2):
            self.press_button('Delete The king')
        page.until(lambda: page.find('welcome').is_displayed())
        self.assertEqual(self.names(), [])
        self.assertEqual(page.script("return Object.keys(localStorage).filter((k) => /convers/.test(k));"),
                         ['tandem.conversations'])

    def test_opens_the_list_in_narrow_windows(self):
        page = self.page
        self.open(width=380)
        self.reply([['a', 'First answer.']])
        self.say('First')
        self.assertFalse(page.find('list').is_displayed())
        page.find('show-list').click()
        self.assertTrue(page.find('list').is_displayed())
        self.screenshot('list-narrow')
        self.assertEqual(page.script('return document.documentElement.scrollWidth - innerWidth'), 0)
        page.press('Escape')
        self.assertFalse(page.find('list').is_displayed())
        self.anew()
        self.assertFalse(page.find('list').is_displayed())
        page.find('show-list').click()
        self.press_button('Open First')
        page.until(lambda: self.said() == ['First'])
        self.assertFalse(page.find('list').is_displayed())

    def test_has_contrast_in_light_and_dark_mode(self):
        for scheme in 'light', 'dark':
            self.open(scheme=scheme)
            self.have_two()
            self.import_text('{')
            self.page.until(lambda: self.page.find('list-error').is_displayed())
            self.check_contrast(scheme)

    # ---- Files ----

    def test_exports_and_imports_conversations(self):
        page = self.page
        self.open()
        self.have_two()
        file = self.exported()
        self.assertEqual([each['name'] for each in file['conversations']], ['Second', 'First'])
        self.assertEqual(file['conversations'][1]['turns'][0]['parts'],
                         [['accepted', 'First answer.'], ['correction', ' Ended', ' and'], ['plain', '.']])
        # Conversations that are here already are not added again.
        self.import_text(json.dumps(file))
        page.until(lambda: page.text('status') == 'Imported 0 conversations.')
        self.open()  # forgets everything
        self.assertEqual(self.names(), [])
        self.import_text(json.dumps(file))
        page.until(lambda: page.text('status') == 'Imported 2 conversations.')
        self.assertEqual(self.names(), ['Second', 'First'])
        self.press_button('Open First')
        page.until(lambda: self.shown() == 'First answer. Ended.')
        self.assertEqual([{**each, 'id': 0} for each in self.exported()['conversations']],
                         [{**each, 'id': 0} for each in file['conversations']])

    def test_says_what_is_wrong_with_a_file(self):
        page = self.page
        self.open()
        self.have_two()
        good = self.exported()
        turn = good['conversations'][0]['turns'][0]

        def with_turn(changed):
            return {**good, 'conversations': [good['conversations'][1],
                                              {**good['conversations'][0], 'id': 'x', 'turns': [changed]}]}
        for content, reason in [
                ('{"format": ', 'it is not JSON'),
                ('[]', 'this page has not exported it'),
                ('null', 'this page has not exported it'),
                ({**good, 'version': 2}, 'its version is 2, not 1'),
                ({**good, 'conversations': [{}]}, 'conversation 1 has no turns'),
                ({**good, 'conversations': [{'turns': [], 'id': 'x', 'name': ' '}]},
                 'conversation 1 has no name'),
                (with_turn({**turn, 'said': 1}), 'conversation 2 has a turn without a message'),
                (with_turn({'said': 'x'}), 'conversation 2 has a turn without an answer'),
                (with_turn({**turn, 'parts': [['script', 'x']]}),
                 'conversation 2 has an answer of another form')]:
            self.import_text(content if isinstance(content, str) else json.dumps(content), 'my.json')
            words = f'my.json cannot be imported: {reason}.'
            page.until(lambda: page.find('list-error').is_displayed() and page.text('list-error') == words)
            self.assertEqual(self.names(), ['Second', 'First'], reason)
        self.import_text(json.dumps(good))
        page.until(lambda: not page.find('list-error').is_displayed())

    # ---- Storage ----

    def test_keeps_the_conversation(self):
        page = self.page
        self.open()
        self.assertIsNone(self.kept())
        page.set('system', 'Be kind.')
        self.say('Who was the king?')
        self.say('And then?')
        said, parts = self.said(), page.parts('text')
        figures = page.script("return document.querySelector('#text .turn-figures').textContent;")
        answers = [''.join(part[1] for part in turn['parts']) for turn in self.kept()['turns']]
        self.open(keeping=True)
        self.assertEqual(self.said(), said)
        self.assertEqual(by_character(page.parts('text')), by_character(parts))
        self.assertEqual(
            page.script("return document.querySelector('#text .turn-figures').textContent;"), figures)
        self.say('Why?')
        self.assertEqual(self.messages(), [
            {'role': 'system', 'content': 'Be kind.'}, user(said[0]), assistant(answers[0]),
            user(said[1]), assistant(answers[1]), user('Why?')])
        page.click('anew')
        page.until(lambda: page.find('welcome').is_displayed())
        self.open(keeping=True)
        self.assertTrue(page.find('welcome').is_displayed())
        self.assertEqual(page.find('system').get_property('value'), '')

    def test_keeps_a_partial_answer_when_the_page_is_left(self):
        page = self.page
        self.open()
        page.set('max-tokens', 900)
        page.set('draft-tokens', 0)
        page.set('prompt', 'Who was the king?')
        page.press('Enter')
        page.until(lambda: self.shown())
        self.open(keeping=True)
        self.assertEqual(self.said(), ['Who was the king?'])
        self.assertNotEqual(self.answer(), '')
        self.assertEqual(self.shown().split(), self.answer().split())

    def test_starts_again_if_the_kept_copy_is_unreadable(self):
        page = self.page
        self.open()
        for text in '{', '7', '{"turns": [{"said": 1}]}', '{"turns": 3}':
            page.script("""
                localStorage.setItem('tandem.conversations', '[{"id": "a", "name": "A"}]');
                localStorage.setItem('tandem.current', '"a"');
                localStorage.setItem('tandem.conversation.a', arguments[0]);""", text)
            self.open(keeping=True)
            self.assertTrue(page.find('welcome').is_displayed(), text)
            self.assertEqual(self.names(), [])
        page.script("localStorage.setItem('tandem.conversations', '{');")
        self.open(keeping=True)
        self.assertEqual(self.names(), [])

    def test_works_if_the_browser_keeps_nothing(self):
        page = self.page
        self.open()
        page.script("Storage.prototype.setItem = () => { throw new DOMException('full'); };")
        self.say('Who was the king?')
        self.say('And then?')
        self.assertEqual(self.said(), ['Who was the king?', 'And then?'])
        self.assertIsNone(self.kept())
        self.assertIn('no room', page.text('list-hint'))
