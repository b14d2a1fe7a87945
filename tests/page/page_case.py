"""The base of all tests of the page: a server and a browser, and checks for every page."""

import os
import shutil
import unittest

KINDS = {'a': 'accepted', 'c': 'correction', 'b': 'bonus', 'p': 'plain'}


def find_browser():
    """Returns Chromium and its driver, or names the missing package."""
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
    """[kind, text] parts as one kind per letter, so that the comparison ignores how the parts are split
    and how lines break."""
    return [(kind, letter) for kind, text in parts for letter in text if not letter.isspace()]


def parts_of(chunks):
    """Returns the parts that the page must show for a stream: every token's text with its own letter."""
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
    """The contrast ratio of WCAG 2.1."""
    brighter, darker = sorted((luminance(a), luminance(b)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


# Finds every element with its own text, with the text's colour and its background colour.
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


# SHIFTED returns the elements that have moved since WATCH_SHIFTS, except tokens: an incomplete word
# can move to the next line when its end arrives.
WATCH_SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => shifts.push(...list.getEntries()))
    .observe({type: 'layout-shift'});
"""
SHIFTED = """
const elementOf = (node) => node?.nodeType === Node.TEXT_NODE ? node.parentElement : node;
return shifts.flatMap((shift) => shift.sources.map(({node}) => elementOf(node)))
    .filter((element) => !element?.matches('.accepted, .correction, .bonus, .plain'))
    .map((element) => element?.id || element?.className || element?.tagName);
"""


class PageCase(unittest.TestCase):
    program = None
    out = None  # the folder of screenshots

    @classmethod
    def setUpClass(cls):
        from page_world import Page
        cls.server = cls.new_server()
        cls.addClassCleanup(cls.server.close)
        cls.page = Page(*find_browser()[0])
        cls.addClassCleanup(cls.page.close)

    @classmethod
    def new_server(cls, *extra):
        raise NotImplementedError

    def tearDown(self):
        self.assertEqual(self.page.complaints(), [])

    def screenshot(self, name):
        self.page.screenshot(os.path.join(self.out, name + '.png'))

    def check_figures(self, chunks):
        """Expects that the figures, the chart and both caches agree with a stream."""
        page = self.page
        speculation = chunks[-1]['speculation']
        self.assertEqual(page.text('acceptance'), f"{speculation['acceptance_rate']:.0%}".replace('%', ' %'))
        for of in speculation['by_source']:
            self.assertIn(f"{of['source']} {of['accepted']} of {of['proposed']}", page.text('summary'))
        self.assertEqual(page.text('per-round'), f"{speculation['tokens_per_round']:.2f}")
        tokens = sum(len(chunk['choices'][0]['token_ids']) for chunk in chunks)
        self.assertEqual(page.text('tokens'), str(tokens))
        self.assertRegex(page.text('first-token'), r'^[\d.]+ m?s$')
        self.assertRegex(page.text('prompt-time'), r'^([\d.]+ m?s|–)$')
        self.assertRegex(page.text('speed'), r'^[\d,.]+$')
        bars = page.script("return [...document.querySelectorAll('#bars .value')].map((e) => e.textContent)")
        expected = [f'{100 * rate:.0f}' for rate in speculation['acceptance_per_position']]
        self.assertEqual(bars, expected + [''] * (len(bars) - len(expected)))
        # The lengths of both caches at the end, and the tokens that were rolled back.
        rounds = [chunk['round'] for chunk in chunks if 'round' in chunk]
        for name, lag in ('target', 0), ('draft', 1):
            length = rounds[-1][f'{name}_cached_tokens']
            rejected = sum(max(0, r['proposed'] - r['accepted'] - lag) for r in rounds)
            self.assertEqual(
                page.text(f'{name}-words'),
                f'{length} tokens in {-(-length // 16)} pages, {rejected} rolled back')
            # Colours of the background, of held and free pages, of the prompt and of at least two
            # kinds of tokens. Flashes may be over.
            self.assertGreaterEqual(page.script(
                "const c = document.getElementById(arguments[0]);"
                "const pixels = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
                'return new Set(new Uint32Array(pixels.buffer)).size;', f'{name}-pages'), 6)

    def check_contrast(self, scheme, fewest=40):
        rows = self.page.script(COLOURS_OF_WORDS)
        self.assertGreaterEqual(len(rows), fewest)
        for name, colour, behind in rows:
            self.assertGreaterEqual(contrast(colour, behind), 4.5, (scheme, name, colour, behind))
        paper = self.page.script('return getComputedStyle(document.body).backgroundColor')
        is_dark = luminance([int(v) for v in paper[4:-1].split(',')]) < 0.2
        self.assertEqual(is_dark, scheme == 'dark')

    def check_stays(self):
        """Expects that nothing has moved since WATCH_SHIFTS, not even after a click, and that the page
        fits the window."""
        self.assertEqual(self.page.script(SHIFTED), [])
        self.assertEqual(
            self.page.script('return document.documentElement.scrollWidth - innerWidth'), 0)
