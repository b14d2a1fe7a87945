"""The page of the API."""

import json
import subprocess

from page_case import PageCase


class DocsPage(PageCase):
    @classmethod
    def new_server(cls, *extra):
        from page_world import STORYTELLER, Server
        return Server(cls.program, STORYTELLER, *extra)

    def open(self, server=None, **window):
        self.page.open((server or self.server).origin, path='/docs', **window)
        self.page.until(lambda: self.page.script("return document.querySelector('section') !== null;"))

    def section(self, method, path):
        """Returns a selector of the section of an operation."""
        number = self.page.script("""
            return [...document.querySelectorAll('section')].findIndex(
                (e) => e.querySelector('h2').textContent === arguments[0]);""", f'{method} {path}')
        self.assertGreaterEqual(number, 0, path)
        return f'section:nth-of-type({number + 1})'

    def text_of(self, selector):
        return self.page.script('return document.querySelector(arguments[0]).textContent;', selector)

    def test_shows_every_path_with_its_fields(self):
        page = self.page
        self.open()
        api = json.loads(self.server.get('/openapi.json'))
        for path, methods in api['paths'].items():
            for method, operation in methods.items():
                text = self.text_of(self.section(method.upper(), path))
                self.assertIn(operation['summary'], text)
                self.assertIn(f'curl {self.server.origin}', text)
                for status in operation['responses']:
                    self.assertIn(status, text)
        fields = self.section('POST', '/v1/completions') + ' > .fields > table'
        shown = page.script("""
            return [...document.querySelector(arguments[0]).rows].map(
                (row) => [...row.cells].map((cell) => cell.textContent));""", fields)
        schema = api['components']['schemas']['CompletionRequest']
        self.assertEqual(sorted(row[0].replace(' required', '') for row in shown),
                         sorted(schema['properties']))
        self.assertEqual([row[0] for row in shown if row[0].endswith(' required')],
                         [f'{name} required' for name in schema['required']])
        top_p = next(row for row in shown if row[0] == 'top_p')
        self.assertEqual(top_p[1], 'number or null')
        self.assertIn(schema['properties']['top_p']['description'], top_p[2])
        self.assertIn('> 0, ≤ 1, default 1', top_p[2])
        self.screenshot('docs')

    def test_opens_the_fields_of_objects(self):
        page = self.page
        self.open()
        chat = self.section('POST', '/v1/chat/completions')
        self.assertNotIn('rejected_texts', self.text_of(chat))
        # Every object can be opened, also those within others.
        for _ in range(8):
            closed = page.script("""
                const closed = [...document.querySelectorAll(`${arguments[0]} details:not([open])`)];
                for (const details of closed) details.open = true;
                return closed.length;""", chat)
            page.await_frame()
        self.assertEqual(closed, 0)
        for name in 'rejected_texts', 'include_token_texts', 'draft_tokens', 'idle_reason', 'metadata':
            self.assertIn(name, self.text_of(chat))
        self.assertNotIn('[object Object]', self.text_of('main'))
        self.assertNotIn('undefined', self.text_of('main'))

    def test_examples_run(self):
        self.open()
        for method, path in ('POST', '/v1/completions'), ('POST', '/tokenize'), ('POST', '/detokenize'), \
                            ('GET', '/v1/models/{model}'), ('GET', '/version'), ('GET', '/page/{file}'):
            command = self.text_of(self.section(method, path) + ' pre')
            answer = subprocess.run(['bash', '-c', command.replace('curl ', 'curl -sSf ', 1)],
                                    capture_output=True, text=True)
            self.assertEqual((answer.returncode, answer.stderr), (0, ''), command)
            self.assertGreater(len(answer.stdout), 10)

    def test_says_when_a_key_is_needed(self):
        server = self.new_server('--api-key', 'secret')
        self.addCleanup(server.close)
        self.open(server)
        self.assertIn('requires a key', self.page.text('about'))
        self.assertIn('-H "Authorization: Bearer $KEY"', self.text_of(self.section('POST', '/tokenize')))
        health = self.text_of(self.section('GET', '/health'))
        self.assertIn('Needs no key', health)
        self.assertNotIn('Authorization', health)
        self.assertTrue(all('status of 401' in words for words in self.page.complaints()))

    def test_is_linked_and_links_to_paths(self):
        page = self.page
        page.open(self.server.origin)
        page.driver.find_element('css selector', "nav a[href='/docs']").click()
        page.until(lambda: page.script("return document.querySelector('section') !== null;"))
        page.driver.find_element('link text', 'POST /tokenize').click()
        top = page.script("return document.getElementById('post--tokenize').getBoundingClientRect().top;")
        self.assertTrue(-1 <= top < 200, top)

    def test_copies_commands(self):
        page = self.page
        self.open()
        page.script('navigator.clipboard.writeText = async (text) => { window.copied = text; };')
        selector = self.section('POST', '/tokenize')
        page.script("document.querySelector(arguments[0] + ' .code button').click();", selector)
        page.until(lambda: page.text('status') == 'Copied.')
        self.assertEqual(page.script('return copied;'), self.text_of(selector + ' pre'))

    def test_is_readable_everywhere(self):
        for scheme, width in ('light', 390), ('dark', 1200), ('dark', 390), ('light', 1600):
            self.open(width=width, height=900, scheme=scheme)
            self.check_contrast(scheme)
            self.assertEqual(
                self.page.script('return document.documentElement.scrollWidth - innerWidth'), 0, width)
        self.page.script("for (const e of document.querySelectorAll('details')) e.open = true;")
        self.page.await_frame()
        self.assertEqual(self.page.script('return document.documentElement.scrollWidth - innerWidth'), 0)

    def test_connects_only_to_its_own_server(self):
        self.open()
        urls = self.page.script("return performance.getEntriesByType('resource').map((e) => e.name)")
        self.assertGreaterEqual(len(urls), 5)
        for url in urls:
            self.assertTrue(url.startswith(self.server.origin + '/'), url)
