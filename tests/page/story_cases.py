"""The page for a model without a chat template, which continues stories."""

from page_case import WATCH_SHIFTS, PageCase, by_character, parts_of

PROMPT = 'Once upon a time there lived an old king who had three sons.'


class StoryPage(PageCase):
    @classmethod
    def new_server(cls, *extra):
        from page_world import STORYTELLER, Server
        return Server(cls.program, STORYTELLER, *extra)

    def run_story(self, **settings):
        for name, value in {'prompt': PROMPT, 'temperature': 0, 'drafter': 'model', **settings}.items():
            self.page.set(name.replace('_', '-'), value)
        self.page.click('run')
        self.page.await_end()

    # ---- Shown text ----

    def test_is_not_a_chat(self):
        page = self.page
        page.open(self.server.origin)
        self.assertEqual(page.find('main').get_attribute('data-mode'), 'story')
        for name in 'welcome', 'list', 'show-list', 'system':
            self.assertFalse(page.find(name).is_displayed(), name)
        self.assertEqual(page.find('run').text, 'Run')
        page.keep_requests()
        self.run_story(max_tokens=2)
        self.assertEqual([path for path, _ in page.requests()], ['/v1/completions'])

    def test_shows_the_text_and_provenance_of_the_answer(self):
        page = self.page
        for name, draft_tokens in ('light', '4'), ('plain', '0'):
            page.open(self.server.origin)
            page.keep_requests()
            self.run_story(draft_tokens=draft_tokens, max_tokens=200)
            chunks = page.chunks()
            text = ''.join(chunk['choices'][0]['text'] for chunk in chunks)
            shown = page.parts('text')
            self.assertGreater(len(text), 200)
            self.assertEqual(page.text('text'), PROMPT + text)
            self.assertEqual(by_character(shown), by_character(parts_of(chunks)))
            kinds = {kind for kind, _ in shown}
            if name == 'plain':
                self.assertEqual(kinds, {'plain'})
                continue
            self.assertTrue({'accepted', 'correction', 'bonus'} <= kinds, kinds)
            self.assertRegex(page.text('summary'), r'^\d+ % of drafts accepted \(model \d+ of \d+\) · '
                                                   r'[\d,.]+ tokens/s')
            self.check_figures(chunks)
            self.screenshot(name)
            page.click('replay')
            page.until(lambda: page.parts('text') != shown)
            page.press('Escape')
            page.await_end()
            self.assertEqual(by_character(page.parts('text')), by_character(shown))
            self.check_figures(chunks)

    def test_races_to_identical_texts(self):
        page = self.page
        page.open(self.server.origin)
        for name, value in ('temperature', '0.8'), ('seed', '1'), ('max-tokens', '150'), \
                           ('draft-tokens', '3'), ('drafter', 'model'):
            page.set(name, value)
        page.script("""
            window.times = {};
            for (const name of ['first-time', 'second-time']) {
              const element = document.getElementById(name);
              times[name] = [];
              new MutationObserver(() => {
                if (!document.getElementById('verdict-words').textContent.includes('identical')) {
                  times[name].push(parseFloat(element.textContent));
                }
              }).observe(element, {childList: true});
            }""")
        page.click('race')
        page.until(lambda: 'Both texts are identical' in page.text('verdict-words'))
        # Both times grow while they are measured. The first one also ran for the warm-up.
        for times in page.script('return times;').values():
            own = times[len(times) - times[::-1].index(None):] if None in times else times
            self.assertEqual(own, sorted(own))
            self.assertGreater(len(set(own)), 3)
        seconds = r'(\d+\.\d\d) s'
        self.assertRegex(page.text('verdict-words'),
                         rf'^\d+\.\d\d times as fast with drafts: {seconds} against {seconds}\.')
        self.assertGreater(len(page.text('verdict-reason')), 20)
        self.assertRegex(page.text('status'), r'^Playing, \d.* times slower than it was\.$')
        page.until(lambda: len(page.text('plain-text')) > 200)
        self.screenshot('race')
        page.press('Escape')  # ends the playback, but not the texts
        page.await_end('Race done')
        drafted, plain = page.parts('text'), page.parts('plain-text')
        self.assertEqual(page.text('text'), page.text('plain-text'))
        self.assertIn('accepted', {kind for kind, _ in drafted})
        self.assertEqual({kind for kind, _ in plain}, {'plain'})
        for name in 'first-time', 'second-time':
            self.assertRegex(page.text(name), rf'^{seconds} · 150 tokens$')
            self.assertIn(page.text(name).split(' ·')[0], page.text('verdict-words'))
        self.assertTrue(page.find('replay').is_enabled())

    def test_reports_when_texts_of_a_race_differ(self):
        page = self.page
        page.open(self.server.origin)
        for name, value in ('temperature', '1'), ('seed', '1'), ('max-tokens', '150'), \
                           ('draft-tokens', '3'), ('verifier', 'block'), ('drafter', 'model'):
            page.set(name, value)
        page.click('race')
        page.until(lambda: 'The texts differ: block keeps their distribution' in page.text('verdict-words'))
        page.press('Escape')
        page.await_end('Race done')

    # ---- Errors ----

    def test_shows_the_servers_refusal_as_text(self):
        page = self.page
        page.open(self.server.origin)
        page.set('max-tokens', '5000')
        page.click('run')
        page.await_end('Not done')
        self.assertIn('refused (400)', page.text('error'))
        self.assertIn('exceed the model\'s context', page.text('error'))
        self.assertIn('Field: max_tokens', page.text('error'))
        self.assertEqual(page.find('max-tokens').get_attribute('aria-invalid'), 'true')
        self.screenshot('error')
        page.set('max-tokens', '8')
        page.click('run')
        page.await_end()
        self.assertFalse(page.find('error').is_displayed())
        self.assertIsNone(page.find('max-tokens').get_attribute('aria-invalid'))
        # The browser itself logs every status 400.
        complaints = page.complaints()
        self.assertEqual(len(complaints), 1)
        self.assertIn('status of 400', complaints[0])

    def test_asks_for_a_key_first_if_the_server_requires_one(self):
        from selenium.webdriver.common.keys import Keys
        server = self.new_server('--api-key', 'secret')
        self.addCleanup(server.close)
        page = self.page
        page.open(server.origin)
        for name, is_there in ('gate', True), ('gate-error', False), ('form', False), ('story', False):
            self.assertEqual(page.find(name).is_displayed(), is_there, name)
        self.assertEqual(page.script('return document.activeElement.id;'), 'api-key')
        self.screenshot('key')
        self.check_contrast('light', fewest=5)
        page.press('Enter', ctrl=True)  # runs nothing
        page.find('api-key').send_keys('wrong', Keys.ENTER)
        page.until(lambda: page.find('gate-error').is_displayed())
        self.assertEqual(page.text('gate-error'), 'The server does not accept this key.')
        page.set('api-key', 'secret')
        page.find('api-key').send_keys(Keys.ENTER)
        page.until(lambda: page.find('form').is_displayed())
        self.assertFalse(page.find('gate').is_displayed())
        self.run_story(max_tokens=8)
        self.assertEqual(page.text('tokens'), '8')
        self.assertIn('storyteller', page.text('served'))
        complaints = page.complaints()
        self.assertEqual(len(complaints), 2)
        self.assertTrue(all('status of 401' in words for words in complaints))

    def test_offers_what_the_server_can_run(self):
        import json
        page = self.page
        page.open(self.server.origin)
        drafters = json.loads(self.server.get('/v1/models'))['data'][0]['drafters']
        self.assertGreater(len(drafters), 2)
        offered = page.script("return [...document.getElementById('drafter').options].map((o) => o.value);")
        self.assertEqual(sorted(offered), sorted([*drafters, 'none']))
        page.keep_requests()
        for drafter in drafters:
            self.run_story(drafter=drafter, draft_tokens=2, max_tokens=4)
            body = page.requests()[-1][1]
            self.assertEqual(body['speculation']['drafter'], drafter)
            self.assertNotIn('seed', body)  # no seed unless one is entered
        # A race needs drafts, and chooses one seed for both requests.
        page.set('drafter', 'none')
        page.script('asked.length = 0;')
        page.click('race')
        page.until(lambda: 'Both texts are identical' in page.text('verdict-words'))
        page.press('Escape')
        page.await_end('Race done')
        bodies = [body for _, body in page.requests()]
        default = json.loads(self.server.get('/v1/models'))['data'][0]['drafter']
        self.assertEqual([body['speculation']['drafter'] for body in bodies], [default, 'none'] * 2)
        self.assertEqual(len({body['seed'] for body in bodies}), 1)

    def test_shows_markup_in_prompts_as_text(self):
        page = self.page
        page.open(self.server.origin)
        markup = '<img src="/none" onerror="document.title = 1"><b>bold</b>'
        self.run_story(prompt=markup, max_tokens=8)
        self.assertTrue(page.text('text').startswith(markup))
        self.assertEqual(page.script("return document.querySelectorAll('#text *:not(span)').length"), 0)

    # ---- Keyboard ----

    def test_runs_and_stops_by_keyboard(self):
        page = self.page
        page.open(self.server.origin)
        for name, value in ('max-tokens', '900'), ('draft-tokens', '0'):
            page.set(name, value)
        page.stop_at_first_word('#text span:not(.prompt)')
        page.find('prompt').click()
        page.press('Enter', ctrl=True)
        page.await_end('Stopped after')
        self.assertLess(int(page.text('tokens')), 900)
        self.assertGreater(len(page.parts('text')), 0)
        self.assertFalse(page.find('stop').is_enabled())
        page.until(lambda: 'tandem_num_requests_running 0' in self.server.get('/metrics'))

    def test_moves_the_focus_through_all_controls(self):
        page = self.page
        page.open(self.server.origin)
        page.script("document.getElementById('prompt').focus()")
        reached = []
        for _ in range(12):
            page.press('Tab')
            name, label, outline = page.script("""
                const at = document.activeElement;
                const label = at.labels?.[0]?.textContent ?? at.ariaLabel ?? at.textContent;
                return [at.id, label, getComputedStyle(at).outlineStyle];""")
            self.assertTrue(label.strip(), name)
            self.assertEqual(outline, 'solid', name)
            reached += [name] if name else []
        self.assertEqual(reached, [
            'race', 'run', 'draft-tokens', 'drafter', 'verifier', 'temperature', 'max-tokens', 'seed'])

    # ---- Appearance ----

    def test_has_contrast_in_light_and_dark_mode(self):
        for scheme in 'light', 'dark':
            self.page.open(self.server.origin, scheme=scheme)
            self.run_story(draft_tokens='3', max_tokens=200)
            if scheme == 'dark':
                self.screenshot('dark')
            self.check_contrast(scheme)

    def test_fits_a_narrow_window_without_moving(self):
        for name, width in ('narrow', 380), ('wide', 1600):
            self.page.open(self.server.origin, width=width, height=900)
            self.page.script(WATCH_SHIFTS)
            self.run_story(draft_tokens='4', max_tokens=200)
            self.check_stays()
            if name == 'narrow':
                self.screenshot(name)

    # ---- Connections ----

    def test_connects_only_to_its_own_server(self):
        page = self.page
        page.open(self.server.origin)
        self.run_story(max_tokens=8)
        urls = page.script("return performance.getEntriesByType('resource').map((e) => e.name)")
        self.assertGreater(len(urls), 5)
        for url in urls:
            self.assertTrue(url.startswith(self.server.origin + '/'), url)
        self.assertEqual(page.complaints(), [])
        # The content security policy blocks other origins and inline scripts.
        said = page.driver.execute_async_script("""
            const done = arguments[0];
            const said = [];
            document.addEventListener('securitypolicyviolation', (event) => {
              said.push(event.effectiveDirective);
              if (said.length === 3) done(said.sort());
            });
            fetch('http://127.0.0.1:9/').catch(() => {});
            const script = document.createElement('script');
            try { script.text = 'document.title = 1'; } catch { /* trusted types */ }
            const style = document.createElement('style');
            style.textContent = 'body { display: none }';
            document.head.append(style);""")
        self.assertEqual(said, ['connect-src', 'require-trusted-types-for', 'style-src-elem'])
        page.complaints()
