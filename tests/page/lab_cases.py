"""The page of `tandem lab`: one real report, and others made from it."""

import copy
import json
import pathlib
import re
import subprocess
import tempfile

from page_case import PageCase

REPORT = re.compile(r'(?<=id="report">).*?(?=</script>)', re.DOTALL)
# The boxes of the elements of a drawing that match a selector.
BOXES = """
const element = document.getElementById('findings');
element.innerHTML = escape(drawing(arguments[0], arguments[1]));
return [...element.querySelectorAll(arguments[2])].map((e) => e.getBoundingClientRect().toJSON());"""


class Nothing:
    def close(self):
        pass


def overlap(a, b):
    return (a['left'] < b['right'] and b['left'] < a['right'] and
            a['top'] < b['bottom'] and b['top'] < a['bottom'])


def two_lines(is_log):
    axis = {'isLog': is_log, 'base': 2}
    points = [[{'x': 16, 'y': y, 'title': 'a'}, {'x': 512, 'y': 890 + y, 'title': 'b'}] for y in (10, 11)]
    return {'title': 'A chart', 'x': {'title': 'tokens', **axis}, 'y': {'title': 'ms', **axis}, 'mark': 'above',
            'series': [{'form': 'dotted', 'colour': i, 'label': label, 'points': points[i]}
                       for i, label in enumerate(['first', 'second'])]}


class LabPage(PageCase):
    @classmethod
    def new_server(cls, *extra):
        from page_world import MODELS
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.file = pathlib.Path(folder.name, 'lab.html')
        subprocess.run([cls.program, 'lab', '--seconds', '1', '-o', str(cls.file), '-m',
                        str(MODELS / 'storyteller-7m'), '-md', str(MODELS / 'storyteller-1m')],
                       check=True, capture_output=True)
        cls.html = cls.file.read_text(encoding='utf-8')
        cls.contents = json.loads(REPORT.search(cls.html)[0])
        for part in 'phases', 'passes', 'speculation':
            cls.contents['report'][part]['disturbed'] = False
        return Nothing()

    def open(self, change=lambda contents: None, **window):
        contents = copy.deepcopy(self.contents)
        change(contents)
        data = json.dumps(contents).replace('<', '\\u003c')
        self.file.write_text(REPORT.sub(lambda _: data, self.html), encoding='utf-8')
        self.page.open(self.file.as_uri(), path='', keeping=True, **window)
        return self.page.script("return document.querySelector('main').textContent")

    def of_all(self, selector, what='textContent'):
        return self.page.script('return [...document.querySelectorAll(arguments[0])].map((e) => e[arguments[1]]);',
                                selector, what)

    def test_has_each_finding_with_a_picture_and_its_figures(self):
        text = self.open()
        report = self.contents['report']
        self.assertEqual(self.of_all('#findings h2'), self.contents['findings'])
        self.assertEqual(self.of_all('svg', 'role'), 12 * ['img'])
        self.assertNotIn('', self.of_all('svg', 'ariaLabel'))
        for part in ('tokens of the prompt', 'position of the token', 'tokens in the pass',
                     'operations per byte read', 'draft tokens per pass, k', 'share of the draft', 'memory ',
                     'times faster to read than to write', report['command'], report['date'],
                     report['program'], report['machine']['cpu'], 'k = 6', 'storyteller-7m'):
            self.assertIn(part, text)
        for never in 'NaN', 'undefined', 'Infinity', '[object', 'Disturbed':
            self.assertNotIn(never, self.page.script("return document.querySelector('main').innerHTML"))
        runs = [(task['task'], run) for task in report['speculation']['tasks'] for run in task['runs']]
        tables = self.page.script("""
            return [...document.querySelectorAll('tbody')].map((body) => [...body.rows].map(
                (row) => [...row.cells].map((cell) => cell.textContent)));""")
        self.assertEqual(len(tables), 5)
        self.assertEqual([row[0] for row in tables[0]], [str(r['prompt_tokens']) for r in report['phases']['prefill']])
        for row, figures in zip(tables[1], report['phases']['decode'], strict=True):
            self.assertAlmostEqual(float(row[1]), figures['ms'], delta=0.0051)
            self.assertAlmostEqual(float(row[3]), figures['bytes'] * 1e-6, delta=0.051)
            self.assertEqual(row[-1], figures['bound'])
        self.assertEqual([row[:2] for row in tables[4]], [[task, str(run['draft_tokens'])] for task, run in runs])
        self.screenshot('lab')

    def test_shows_names_as_they_are(self):
        name = '<script>alert(\'x\')&"'

        def change(contents):
            contents['report']['target']['path'] = name
            contents['report']['command'] = 'tandem lab -m <b>'
        text = self.open(change)
        self.assertIn(f'What limits {name} on this machine', text)
        self.assertIn('tandem lab -m <b>', text)

    def test_marks_what_exceeds_a_limit(self):
        # A ring in the roofline, or one more in the times, each with its explanation, in both widths.
        for rate, flops, rings, expected in ((0, 0, 0, None), (1.1e15, 1, 4, 'of memory: served by cache'),
                                             (1.1e15, 2e15, 8, 'as measured: it varies')):
            def change(contents):
                contents['roofs'].update(memory=1e15, reading=1e15, cache=None, peak=1e15)
                contents['report']['phases']['decode'][0].update(bytes_per_second=rate, flops=flops)
            text = self.open(change)
            self.assertEqual('above the limit' in text, expected is not None)
            self.assertEqual(len(self.of_all('circle.mark')), rings)
            self.assertIn(expected or '', text)

    def test_says_which_figures_were_disturbed(self):
        def change(contents):
            contents['report']['passes'].update(disturbed=True, share_of_others=0.31)
        self.open(change)
        warnings = self.of_all('.error')
        self.assertEqual(len(warnings), 2)  # of passes and of the roofline
        self.assertTrue(all('other programs took 31\u00a0%' in warning for warning in warnings))

    def test_leaves_out_what_was_not_measured(self):
        def without_draft(contents):
            contents['report'].update(draft=None, speculation=None)
            contents['pays'] = False

        def failed(contents):
            contents['report']['speculation'] = {'error': 'prompt: has 85 tokens'}
            contents['pays'] = False

        def nothing(contents):
            contents['report'].update(interrupted=True, phases={}, passes={}, speculation=None)
            contents['pays'] = False
        for change, charts, expected in ((without_draft, 8, 'Give one with -md'), (failed, 8, 'has 85 tokens'),
                                         (nothing, 0, ' s, ended by Ctrl-C')):
            text = self.open(change)
            self.assertEqual(len(self.of_all('svg')), charts)
            self.assertIn(expected, text)
            self.assertNotIn('times faster to write with a draft', text)

    def test_is_readable_everywhere(self):
        for scheme, width in ('light', 390), ('dark', 1300), ('dark', 390), ('light', 900):
            self.open(width=width, height=900, scheme=scheme)
            self.check_contrast(scheme)
            self.assertEqual(self.page.script('return document.documentElement.scrollWidth - innerWidth'), 0, width)
            self.assertEqual(self.page.find('findings').size['width'] >= 720, width > 800)

    def test_axes_have_few_ticks(self):
        self.open()
        for is_log in False, True:
            for width in 360, 720:
                self.assertTrue(6 <= len(self.page.script(BOXES, two_lines(is_log), width, '.axis')) <= 16)
        self.assertIn('64', self.of_all('.axis'))

    def test_points_that_a_logarithmic_axis_lacks_are_left_out(self):
        self.open()
        chart = two_lines(True)
        chart['series'][0]['points'][0]['y'] = 0
        self.assertEqual(len(self.page.script(BOXES, chart, 720, 'circle')), 3)

    def test_rings_mark_points_and_are_explained(self):
        self.open()
        chart = two_lines(True)
        self.assertEqual(self.page.script(BOXES, chart, 720, '.marked'), [])
        chart['series'][0]['points'][1]['isMarked'] = True
        self.assertEqual(len(self.page.script(BOXES, chart, 720, '.mark')), 2)
        self.assertEqual(self.of_all('.marked'), ['above'])

    def test_labels_do_not_overlap(self):
        self.open()
        first, second = self.page.script(BOXES, two_lines(False), 720, 'text[class^=c]')
        self.assertFalse(overlap(first, second))
        points = [{'x': 100 + i, 'y': 100, 'title': '', 'label': 'a long label of a point'} for i in range(40)]
        chart = {'title': '', 'x': {'title': ''}, 'y': {'title': ''},
                 'series': [{'form': 'dots', 'colour': 0, 'points': points}]}
        labels = self.page.script(BOXES, chart, 720, 'text.c0')
        self.assertTrue(2 <= len(labels) <= 12, len(labels))
        dots = self.page.script(BOXES, chart, 720, 'circle.c0')
        for i, label in enumerate(labels):
            self.assertFalse(any(overlap(label, other) for other in labels[:i] + dots))
