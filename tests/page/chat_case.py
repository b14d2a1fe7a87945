"""The base of tests that talk on the page: a server whose model has a chat template."""

import pathlib
import tempfile

from page_case import PageCase

LAST_ANSWER = '.turn:last-child .answer'
SETTINGS = {'temperature': 0, 'max-tokens': 60, 'draft-tokens': 3, 'drafter': 'model'}


def user(words):
    return {'role': 'user', 'content': words}


def assistant(words):
    return {'role': 'assistant', 'content': words}


class ChatCase(PageCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        from page_world import make_talker
        make_talker(pathlib.Path(cls.folder.name))
        super().setUpClass()

    @classmethod
    def new_server(cls, *extra):
        from page_world import Server
        return Server(cls.program, cls.folder.name, '--model-name', 'talker', *extra)

    def open(self, **window):
        """Opens the page with SETTINGS. requests() returns the page's requests from now on."""
        self.page.open(self.server.origin, **window)
        for name, value in SETTINGS.items():
            self.page.set(name, value)
        self.page.keep_requests()

    def say(self, message):
        self.page.set('prompt', message)
        self.page.press('Enter')
        self.page.await_end()

    def kept(self):
        """Returns the conversation that the browser keeps, or None."""
        return self.page.script("return JSON.parse(localStorage.getItem('tandem.conversation'));")

    def answer(self):
        """Returns the last finished answer as the model wrote it."""
        return ''.join(text for _, text in self.kept()['turns'][-1]['parts'])

    def shown(self):
        """Returns the text of the last answer as shown on the page."""
        return self.page.script(f"return document.querySelector('{LAST_ANSWER}')?.textContent ?? '';")

    def turn_button(self, label, turn=-1):
        """Clicks the button of a turn that has this label."""
        self.page.script(
            "[...document.querySelectorAll('#text .turn')].at(arguments[1])"
            ".querySelector(`[aria-label='${arguments[0]}']`).click();", label, turn)

    def said(self):
        """Returns the messages of the shown conversation, turn by turn."""
        return self.page.script(
            "return [...document.querySelectorAll('#text .said')].map((e) => e.textContent);")

    def messages(self):
        """Returns the messages of the last request."""
        path, body = self.page.requests()[-1]
        self.assertEqual(path, '/v1/chat/completions')
        return body['messages']
