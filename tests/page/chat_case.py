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

    def anew(self):
        """Begins a new conversation."""
        self.page.click('show-list')
        self.page.click('anew')
        self.page.until(lambda: self.page.find('welcome').is_displayed())

    def kept(self):
        """Returns the shown conversation as the browser keeps it, or None."""
        return self.page.script("""
            const id = JSON.parse(localStorage.getItem('tandem.current'));
            return JSON.parse(localStorage.getItem(`tandem.conversation.${id}`));""")

    def answer(self):
        """Returns the last finished answer as the model wrote it."""
        return ''.join(part[1] for part in self.kept()['turns'][-1]['parts'])

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

    # ---- Made-up answers ----

    def begin_reply(self):
        """From now on, a message is answered by the parts that send() gets, until end_reply()."""
        self.page.script("""
            const encoder = new TextEncoder();
            window.asked = [];
            window.send = (event) => stream.enqueue(encoder.encode(`data: ${event}\\n\\n`));
            window.sendPart = ([letter, text, draft], more = {}) => send(JSON.stringify({
              choices: [{delta: {content: text}, token_ids: [1], provenance: letter,
                         token_texts: [text], rejected_texts: letter === 'c' ? [draft ?? 'x'] : [],
                         finish_reason: null}],
              round: {proposed: 4, accepted: 3, target_cached_tokens: 9, draft_cached_tokens: 8},
              ...more,
            }));
            window.fetch = (path, options) => {
              asked.push([path, JSON.parse(options.body)]);
              const body = new ReadableStream({start(controller) { window.stream = controller; }});
              const {stream} = window;
              options.signal?.addEventListener('abort', () => stream.error(options.signal.reason));
              return Promise.resolve(new Response(body));
            };""")

    def send(self, letter, text, *draft):
        """Sends one part, and waits until it is drawn."""
        self.page.script('sendPart(arguments[0]);', [letter, text, *draft])
        self.page.await_frame()

    def end_reply(self):
        self.page.script("send('[DONE]');")
        self.page.await_end()

    def reply(self, parts, timings=None):
        """From now on, answers every message with [letter, text] parts. Corrections may have a third
        member, the text of the draft."""
        self.begin_reply()
        self.page.script("""
            const [parts, timings] = arguments;
            const ask = window.fetch;
            window.fetch = (...request) => {
              const answer = ask(...request);
              parts.forEach((part, i) => sendPart(part, {
                ...(i > 0 && {round: undefined}),
                ...(i === parts.length - 1 && timings && {timings})}));
              send('[DONE]');
              return answer;
            };""", parts, timings)

    def answered(self, text, letter='a'):
        self.reply([[letter, text]])
        self.say('Say it.')

    def look(self, selector, attribute='textContent'):
        return self.page.script(
            f"return [...document.querySelectorAll('{LAST_ANSWER} ' + arguments[0])]"
            '.map((e) => e[arguments[1]]);', selector, attribute)

    def call(self, module, source, *arguments):
        """Evaluates `source` with the exports of a module of the page as `m`."""
        return self.page.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            f"import('/page/{module}').then((m) => done((() => {{ {source} }})()));", *arguments)
