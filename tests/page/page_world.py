"""`tandem serve` as a process, and a browser that shows its page."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import urllib.request

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

WAIT_SECONDS = 550  # ctest ends the test after 600
MODELS = pathlib.Path(__file__).resolve().parents[2] / 'models'
STORYTELLER = MODELS / 'storyteller-7m'
CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
          "message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
# The answer starts inside the thoughts.
THINKING = CHATML.replace("assistant\n", "assistant\n<think>\n")


def make_talker(folder, template=CHATML):
    """Makes a copy of the storyteller with a chat template. The model was not trained to chat."""
    for file in STORYTELLER.iterdir():
        if file.name != 'tokenizer_config.json':
            (folder / file.name).symlink_to(file)
    config = json.loads((STORYTELLER / 'tokenizer_config.json').read_text(encoding='utf-8'))
    config['chat_template'] = template
    (folder / 'tokenizer_config.json').write_text(json.dumps(config), encoding='utf-8')


class Server:
    """The program on its own port, until close(), with a target or, if that is None, as `extra` says."""

    def __init__(self, program, target, *extra):
        self._log = tempfile.NamedTemporaryFile(suffix='.log')
        pair = [] if target is None else ['--target', str(target), '--draft', str(MODELS / 'storyteller-1m')]
        words = [program, 'serve', *pair, '--port', '0', '--threads', '1', '--kv-memory', '64M', *extra]
        self._process = subprocess.Popen(words, stderr=self._log)
        self.origin = self._await_origin()

    def _await_origin(self):
        while True:
            with open(self._log.name, encoding='utf-8') as log:
                found = re.search(r'127\.0\.0\.1:(\d+) ', log.read())
            if found:
                return f'http://127.0.0.1:{found[1]}'
            if self._process.poll() is not None:
                break
            time.sleep(0.01)
        with open(self._log.name, encoding='utf-8') as log:
            raise RuntimeError('the server did not log its address:\n' + log.read())

    def close(self):
        self._process.terminate()
        self._process.wait()
        self._log.close()

    def get(self, path):
        with urllib.request.urlopen(self.origin + path) as answer:
            return answer.read().decode()


class Page:
    """The page in a headless browser."""

    def __init__(self, chromium, driver):
        options = Options()
        options.binary_location = chromium
        for word in ('--headless=new', '--disable-gpu', '--disable-dev-shm-usage', '--hide-scrollbars'):
            options.add_argument(word)
        if os.geteuid() == 0:
            options.add_argument('--no-sandbox')
        options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
        self.driver = webdriver.Chrome(service=Service(driver), options=options)
        self.driver.set_script_timeout(WAIT_SECONDS)

    def close(self):
        self.driver.quit()

    def open(self, origin, width=1280, height=980, scheme='light', keeping=False, path='/'):
        """Opens the page. Clears the data of earlier visits unless `keeping`."""
        self._command('Emulation.setDeviceMetricsOverride', width=width, height=height,
                      deviceScaleFactor=1, mobile=False)
        self._command('Emulation.setEmulatedMedia',
                      features=[{'name': 'prefers-color-scheme', 'value': scheme}])
        if not keeping:
            self._command('Storage.clearDataForOrigin', origin=origin, storageTypes='local_storage')
        self.driver.get('about:blank')
        self.driver.get_log('browser')
        self.driver.get(origin + path)
        if path == '/':
            self.until(lambda: self.text('served').strip() or self.find('gate').is_displayed())

    def _command(self, name, **parameters):
        self.driver.execute_cdp_cmd(name, parameters)

    def find(self, name):
        return self.driver.find_element(By.ID, name)

    def text(self, name):
        return self.find(name).get_property('textContent')

    def script(self, source, *arguments):
        return self.driver.execute_script(source, *arguments)

    def until(self, condition):
        WebDriverWait(self.driver, WAIT_SECONDS, poll_frequency=0.02).until(lambda _: condition())

    def set(self, name, value):
        """Sets a control like typing or choosing would."""
        self.script(
            "const control = document.getElementById(arguments[0]); control.value = arguments[1];"
            "control.dispatchEvent(new Event('input', {bubbles: true}));", name, str(value))

    def click(self, name):
        self.find(name).click()

    def await_frame(self):
        """Waits until what has happened so far is drawn."""
        self.driver.execute_async_script(
            'requestAnimationFrame(() => requestAnimationFrame(arguments[0]));')

    def await_end(self, begins='Done'):
        """Waits until a run has ended and its last frame was drawn."""
        self.until(lambda: self.find('run').is_enabled() and self.text('status').startswith(begins))
        self.await_frame()

    def parts(self, name, within=''):
        """Returns the shown text without the prompt, of the whole element or of a selector in it, as
        [kind, text] parts."""
        return self.script(
            "return [...document.querySelectorAll('#' + arguments[0] + ' span:not(.prompt)')]"
            '.map((span) => [span.className, span.textContent]);', f'{name} {within}')

    def stop_at_first_word(self, selector):
        """Presses Escape as soon as an element matches `selector`."""
        self.script("""
            const stop = new MutationObserver(() => {
              if (!document.querySelector(arguments[0])) return;
              stop.disconnect();
              document.activeElement.dispatchEvent(
                  new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}));
            });
            stop.observe(document.getElementById('text'), {childList: true, subtree: true});""",
                    selector)

    def keep_requests(self):
        """Records the page's requests and their answers from now on."""
        self.script("""
            window.asked = [];
            const ask = window.fetch;
            window.fetch = async (path, options) => {
              asked.push([path, JSON.parse(options.body)]);
              const answer = await ask(path, options);
              window.answered = answer.clone().text().catch(() => '');
              return answer;
            };""")

    def requests(self):
        return self.script('return window.asked;')

    def chunks(self):
        """The chunks of the last answer."""
        events = self.driver.execute_async_script('answered.then(arguments[0]);').split('\n\n')
        return [json.loads(event[6:]) for event in events if event.startswith('data: {')]

    def press(self, key, ctrl=False):
        """Presses a key in the focused element."""
        code = {'Enter': 13, 'Escape': 27, 'Tab': 9, 'ArrowLeft': 37, 'ArrowRight': 39}[key]
        for kind in ('rawKeyDown', 'keyUp'):
            self._command('Input.dispatchKeyEvent', type=kind, key=key, code=key,
                          windowsVirtualKeyCode=code, modifiers=2 if ctrl else 0)

    def point_at(self, selector):
        """Moves the mouse to the first element that matches, or away from everything."""
        x, y = self.script("""
            const at = document.querySelector(arguments[0])?.getClientRects()[0];
            return at ? [at.x + at.width / 2, at.y + at.height / 2] : [1, 1];""", selector)
        self._command('Input.dispatchMouseEvent', type='mouseMoved', x=x, y=y)

    def tap(self, selector):
        """Touches the first element that matches."""
        x, y = self.script("""
            const at = document.querySelector(arguments[0]).getClientRects()[0];
            return [at.x + at.width / 2, at.y + at.height / 2];""", selector)
        self._command('Emulation.setTouchEmulationEnabled', enabled=True)
        self._command('Input.dispatchTouchEvent', type='touchStart', touchPoints=[{'x': x, 'y': y}])
        self._command('Input.dispatchTouchEvent', type='touchEnd', touchPoints=[])
        self._command('Emulation.setTouchEmulationEnabled', enabled=False)

    def complaints(self):
        """Returns the messages on the browser's console since the last call."""
        return [entry['message'] for entry in self.driver.get_log('browser')
                if entry['level'] in ('SEVERE', 'WARNING')]

    def screenshot(self, path):
        """Saves a picture of the whole page in its full height."""
        width, height = self.script(
            'return [innerWidth, Math.ceil(document.body.getBoundingClientRect().height)];')
        self._command('Emulation.setDeviceMetricsOverride', width=width, height=height,
                      deviceScaleFactor=1, mobile=False)
        self.await_frame()
        self.driver.save_screenshot(path)
