"""The page of `tandem serve` in a browser: page_test.py --program tandem --out FOLDER

Leaves screenshots in FOLDER. Exits with 77 where there is no Selenium, Chromium or its driver.
"""

import argparse
import os
import shutil
import sys
import unittest

SKIPPED = 77
KINDS = {'a': 'accepted', 'c': 'correction', 'b': 'bonus', 'p': 'plain'}
PROMPT = 'Once upon a time there lived an old king who had three sons.'

arguments = None


def find_browser():
    """Chromium and its driver, or what is missing."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return None, 'python3-selenium is not installed'
    chromium = shutil.which('chromium') or shutil.which('chromium-browser')
    driver = shutil.which('chromedriver')
    if chromium is None or driver is None:
        return None, 'chromium or chromium-driver is not installed'
    return (chromium, driver), None


def by_character(parts):
    """[kind, text] parts as one kind per character, so that how they are cut does not count."""
    return [(kind, character) for kind, text in parts for character in text]


def parts_of(chunks):
    """What the page ought to show of a stream: every token's text under its own letter."""
    parts = []
    for chunk in chunks:
        choice = chunk['choices'][0]
        letters = choice['provenance']
        parts += [(KINDS[letter], text) for letter, text in zip(letters, choice.get('token_texts', []))]
    return parts


def luminance(colour):
    def linear(value):
        value /= 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
    red, green, blue = (linear(value) for value in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a, b):
    """As WCAG 2.1 defines it."""
    brighter, darker = sorted((luminance(a), luminance(b)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


# Every element with words of its own: its colour, and that of what is painted behind it.
COLOURS_OF_WORDS = """
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const behind = (element) => {
  for (let at = element; at !== null; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const rows = [];
for (const element of document.querySelectorAll('body *')) {
  const hasWords = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const isControl = element.matches('input:not([type=range]), select, textarea');
  if (!(hasWords || isControl) || element.disabled || !element.checkVisibility()) continue;
  if (element.tagName === 'OPTION') continue;
  const style = getComputedStyle(element);
  rows.push([element.tagName + '.' + element.className + '#' + element.id,
             parse(style.color).slice(0, 3), behind(element).slice(0, 3)]);
}
return rows;
"""


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        from page_world import Page, Server
        (chromium, driver), _ = find_browser()
        cls.server = Server(arguments.program)
        cls.addClassCleanup(cls.server.close)
        cls.page = Page(chromium, driver)
        cls.addClassCleanup(cls.page.close)

    def tearDown(self):
        self.assertEqual(self.page.complaints(), [])

    def screenshot(self, name):
        self.page.screenshot(os.path.join(arguments.out, name + '.png'))

    def run_story(self, **settings):
        for name, value in {'prompt': PROMPT, 'temperature': 0, **settings}.items():
            self.page.set(name.replace('_', '-'), value)
        self.page.click('run')
        self.page.await_end()

    # ---- What is shown ----

    def test_shows_the_text_and_provenance_that_the_server_answers(self):
        page = self.page
        for name, draft_tokens in ('light', '4'), ('plain', '0'):
            page.open(self.server.origin)
            self.run_story(draft_tokens=draft_tokens, max_tokens=200)
            chunks = self.server.stream({
                'prompt': PROMPT, 'max_tokens': 200, 'temperature': 0, 'seed': 1,
                'speculation': {'draft_tokens': int(draft_tokens)}})
            text = ''.join(chunk['choices'][0]['text'] for chunk in chunks)
            shown = page.parts('text')
            self.assertGreater(len(text), 200)
            self.assertEqual(''.join(part for _, part in shown), text)
            self.assertEqual(by_character(shown), by_character(parts_of(chunks)))
            kinds = {kind for kind, _ in shown}
            if name == 'plain':
                self.assertEqual(kinds, {'plain'})
                continue
            self.assertTrue({'accepted', 'correction', 'bonus'} <= kinds, kinds)
            self.check_figures(chunks)
            self.screenshot(name)
            page.click('replay')
            page.until(lambda: page.parts('text') != shown)
            page.press('Escape')
            page.await_end()
            self.assertEqual(by_character(page.parts('text')), by_character(shown))
            self.check_figures(chunks)

    def check_figures(self, chunks):
        page = self.page
        speculation = chunks[-1]['speculation']
        self.assertEqual(page.text('acceptance'), f"{speculation['acceptance_rate']:.0%}".replace('%', ' %'))
        self.assertEqual(page.text('per-round'), f"{speculation['tokens_per_round']:.2f}")
        self.assertEqual(page.text('tokens'), '200')
        self.assertRegex(page.text('first-token'), r'^\d+\.\d ms$')
        self.assertRegex(page.text('speed'), r'^[\d,.]+$')
        bars = page.script("return [...document.querySelectorAll('#bars .value')].map((e) => e.textContent)")
        expected = [f'{100 * rate:.0f}' for rate in speculation['acceptance_per_position']]
        self.assertEqual(bars, expected + [''] * (len(bars) - len(expected)))
        # Both caches at the end, and what they forgot on the way.
        rounds = [chunk['round'] for chunk in chunks if 'round' in chunk]
        for name, lag in ('target', 0), ('draft', 1):
            length = rounds[-1][f'{name}_cached_tokens']
            rejected = sum(max(0, r['proposed'] - r['accepted'] - lag) for r in rounds)
            self.assertEqual(
                page.text(f'{name}-words'),
                f'{length} tokens in {-(-length // 16)} pages, {rejected} rolled back')
            self.assertTrue(page.script(
                "const c = document.getElementById(arguments[0]);"
                "const pixels = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
                'return new Set(new Uint32Array(pixels.buffer)).size > 8;', f'{name}-pages'))

    def test_races_to_identical_texts(self):
        page = self.page
        page.open(self.server.origin)
        for name, value in ('temperature', '0.8'), ('max-tokens', '150'), ('draft-tokens', '3'):
            page.set(name, value)
        page.click('race')
        page.until(lambda: 'Both texts are identical' in page.text('verdict-words'))
        self.assertIn('one after the other', page.text('verdict'))
        self.assertRegex(page.text('pace'), r'^Played back \d.* times slower than it was\.$')
        page.until(lambda: len(page.text('plain-text')) > 200)
        page.until(lambda: page.text('second-speed').endswith('tokens/s'))
        self.screenshot('race')
        page.press('Escape')  # ends the playback, not the texts
        page.await_end('Race done')
        drafted, plain = page.parts('text'), page.parts('plain-text')
        self.assertEqual(''.join(t for _, t in drafted), ''.join(t for _, t in plain))
        self.assertIn('accepted', {kind for kind, _ in drafted})
        self.assertEqual({kind for kind, _ in plain}, {'plain'})
        for name in 'first-speed', 'second-speed':
            self.assertRegex(page.text(name), r'^[\d,.]+ tokens/s$')
        self.assertTrue(page.find('replay').is_enabled())

    def test_says_when_texts_of_a_race_differ(self):
        page = self.page
        page.open(self.server.origin)
        for name, value in ('temperature', '1'), ('max-tokens', '150'), ('draft-tokens', '3'), \
                           ('verifier', 'block'), ('drafter', 'none'):
            page.set(name, value)
        page.click('race')
        page.until(lambda: 'The texts differ: block keeps their law' in page.text('verdict-words'))
        page.press('Escape')
        page.await_end('Race done')

    # ---- What goes wrong ----

    def test_shows_what_the_server_refuses_in_words(self):
        page = self.page
        page.open(self.server.origin)
        page.set('max-tokens', '5000')
        page.click('run')
        page.await_end('Not done')
        self.assertIn('refused (400)', page.text('error'))
        self.assertIn('more than the model\'s context', page.text('error'))
        self.assertIn('Field: max_tokens', page.text('error'))
        self.assertEqual(page.find('max-tokens').get_attribute('aria-invalid'), 'true')
        self.screenshot('error')
        page.set('max-tokens', '8')
        page.click('run')
        page.await_end()
        self.assertFalse(page.find('error').is_displayed())
        self.assertIsNone(page.find('max-tokens').get_attribute('aria-invalid'))
        # The browser itself notes every answer of 400.
        complaints = page.complaints()
        self.assertEqual(len(complaints), 1)
        self.assertIn('status of 400', complaints[0])

    def test_asks_for_a_key_where_the_server_does(self):
        from page_world import Server
        server = Server(arguments.program, '--api-key', 'secret')
        self.addCleanup(server.close)
        page = self.page
        page.open(server.origin)
        page.until(lambda: page.find('api-key').is_displayed())
        self.assertIn('refused (401)', page.text('error'))
        page.find('api-key').send_keys('secret')
        self.run_story(max_tokens=8)
        self.assertEqual(page.text('tokens'), '8')
        self.assertIn('storyteller', page.text('served'))
        self.assertTrue(all('status of 401' in words for words in page.complaints()))

    def test_takes_words_as_words(self):
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
        page.script("""
            const stop = new MutationObserver(() => {
              if (!document.querySelector('#text span:not(.prompt)')) return;
              stop.disconnect();
              document.activeElement.dispatchEvent(
                  new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}));
            });
            stop.observe(document.getElementById('text'), {childList: true});
            document.getElementById('prompt').focus();""")
        page.press('Enter', ctrl=True)
        page.await_end('Stopped after')
        self.assertLess(int(page.text('tokens')), 900)
        self.assertGreater(len(page.parts('text')), 0)
        self.assertFalse(page.find('stop').is_enabled())
        page.until(lambda: 'tandem_num_requests_running 0' in self.server.get('/metrics'))

    def test_leads_the_focus_through_all_controls(self):
        page = self.page
        page.open(self.server.origin)
        page.script("document.getElementById('prompt').focus()")
        reached = []
        for _ in range(17):
            page.press('Tab')
            name, label, outline = page.script("""
                const at = document.activeElement;
                const label = at.labels?.[0]?.textContent ?? at.ariaLabel ?? at.textContent;
                return [at.id, label, getComputedStyle(at).outlineStyle];""")
            self.assertTrue(label.strip(), name)
            self.assertEqual(outline, 'solid', name)
            reached += [name] if name else []
        self.assertEqual(reached[:11], [
            'draft-tokens', 'drafter', 'verifier', 'temperature', 'temperature-slider', 'max-tokens',
            'max-tokens-slider', 'seed', 'run', 'race', 'text'])

    # ---- How it looks ----

    def test_has_contrast_by_day_and_by_night(self):
        for scheme in 'light', 'dark':
            self.page.open(self.server.origin, scheme=scheme)
            self.run_story(draft_tokens='3', max_tokens=200)
            if scheme == 'dark':
                self.screenshot('dark')
            rows = self.page.script(COLOURS_OF_WORDS)
            self.assertGreater(len(rows), 40)
            for name, colour, behind in rows:
                self.assertGreaterEqual(contrast(colour, behind), 4.5, (scheme, name, colour, behind))
            paper = self.page.script('return getComputedStyle(document.body).backgroundColor')
            is_dark = luminance([int(v) for v in paper[4:-1].split(',')]) < 0.2
            self.assertEqual(is_dark, scheme == 'dark')

    def test_fits_a_narrow_window_and_stays_where_it_is(self):
        for name, width in ('narrow', 380), ('wide', 1600):
            self.page.open(self.server.origin, width=width, height=900)
            self.page.script("""
                window.shifts = [];
                new PerformanceObserver((list) => shifts.push(...list.getEntries()))
                    .observe({type: 'layout-shift'});""")
            self.run_story(draft_tokens='4', max_tokens=200)
            # Not even those that a click excuses.
            self.assertEqual(self.page.script("""
                return shifts.flatMap((shift) => shift.sources.map(({node}) =>
                    node?.id || node?.className || node?.parentElement?.className));"""), [])
            self.assertEqual(
                self.page.script('return document.documentElement.scrollWidth - innerWidth'), 0)
            if name == 'narrow':
                self.screenshot(name)

    # ---- Where it speaks to ----

    def test_speaks_to_its_own_server_alone(self):
        page = self.page
        page.open(self.server.origin)
        self.run_story(max_tokens=8)
        urls = page.script("return performance.getEntriesByType('resource').map((e) => e.name)")
        self.assertGreater(len(urls), 5)
        for url in urls:
            self.assertTrue(url.startswith(self.server.origin + '/'), url)
        self.assertEqual(page.complaints(), [])
        # The policy holds: neither another origin nor a script in the page's own text.
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


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--program', required=True)
    parser.add_argument('--out', required=True)
    arguments, others = parser.parse_known_args()
    browser, missing = find_browser()
    if browser is None:
        print(f'skipped: {missing} (./dev page installs it)')
        sys.exit(SKIPPED)
    os.makedirs(arguments.out, exist_ok=True)
    unittest.main(argv=[sys.argv[0], *others])
