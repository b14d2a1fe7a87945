"""The page of a server with several models."""

import os
import tempfile

from page_case import PageCase


class ModelsPage(PageCase):
    @classmethod
    def new_server(cls, *extra):
        from page_world import MODELS, Server
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = os.path.join(folder.name, 'models.toml')
        with open(path, 'w', encoding='utf-8') as file:
            for name, target in ('first', 'storyteller-7m'), ('org/second', 'storyteller-1m'):
                file.write(f'[[model]]\nname = "{name}"\ntarget = "{MODELS / target}"\n')
        return Server(cls.program, None, '--models', path)

    def test_loads_the_chosen_model(self):
        page = self.page
        page.open(self.server.origin)
        choice = page.find('model')
        self.assertTrue(choice.is_displayed())
        self.assertEqual(choice.text.split(), ['first', 'org/second'])
        page.until(lambda: 'context' in page.text('served'))
        self.assertEqual(page.script('return document.getElementById("model").value;'), 'first')
        page.set('model', 'org/second')  # opens the page again
        page.until(lambda: page.script(
            'return document.getElementById("model").value === "org/second" &&'
            ' document.getElementById("served").textContent.includes("context");'))
        page.keep_requests()
        page.set('max-tokens', 3)
        page.click('run')
        page.await_end()
        (_, body), = page.requests()
        self.assertEqual(body['model'], 'org/second')
        self.assertIn('"org/second"', self.server.get('/v1/models'))
        self.screenshot('models')
