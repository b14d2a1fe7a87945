"""Where everything is, by the width of the window."""

from chat_case import ChatCase
from page_case import WATCH_SHIFTS

RECTANGLES = """
return Object.fromEntries(['story', 'figures', 'target-pages', 'draft-pages', 'list', 'prompt', 'run'].map(
    (id) => [id, document.getElementById(id).getBoundingClientRect().toJSON()]));"""


class LayoutPage(ChatCase):
    def test_fills_the_window_with_the_conversation(self):
        for width, height in (390, 844), (900, 900), (1099, 800), (1100, 800), (1600, 900):
            for scheme in 'light', 'dark':
                self.open(width=width, height=height, scheme=scheme)
                self.page.script(WATCH_SHIFTS)
                self.say('Who was the king?')
                at = self.page.script(RECTANGLES)
                story = at['story']
                self.assertGreater(story['height'], 0.85 * height, width)
                # The field and its buttons are on the first screen.
                self.assertLess(max(at['run']['bottom'], at['prompt']['bottom']), height, width)
                if width < 1100:
                    self.assertGreater(at['figures']['top'], story['bottom'], width)
                    self.assertGreater(story['width'], 0.9 * width)
                else:
                    self.assertGreater(at['figures']['left'], story['right'], width)
                    self.assertLess(at['draft-pages']['bottom'], height, width)
                    self.assertEqual(self.page.script(
                        'return document.documentElement.scrollHeight - innerHeight;'), 0, width)
                self.assertEqual(self.page.find('list').is_displayed(), width >= 1500, width)
                self.assertEqual(self.page.find('show-list').is_displayed(), width < 1500, width)
                self.check_stays()
                self.screenshot(f'layout-{width}-{scheme}')
