// The page's behaviour: its buttons, and a loop that draws once per frame.

import { Chat } from './chat.js';
import { BarsView, FiguresView, Meter, formatSpeed } from './figures.js';
import { markField, offer, prepareForm } from './form.js';
import { keep, readKept } from './kept.js';
import { CachePair, PagesView } from './pages.js';
import { Playback, Recording, isSameText, requestsOf } from './race.js';
import { Story } from './story.js';
import { fetchModel, streamText } from './stream.js';
import { TextByToken, TextView } from './text.js';

const byId = (id) => document.getElementById(id);

const ENDINGS = { length: 'at max tokens', stop: 'by the model', cancelled: 'by the server' };

const figures = new FiguresView();
const bars = new BarsView(byId('bars'));
const laneOf = (textId, name) => ({
  element: byId(textId),
  view: new TextView(byId(textId)),
  recording: new Recording(),
  speed: byId(`${name}-speed`),
  track: byId(`${name}-track`),
});
const lanes = { first: laneOf('text', 'first'), second: laneOf('plain-text', 'second') };

let model = null;
let telling = new Story(); // a Story or a Chat: makes the request, and shows the answer
let pages = null; // { target, draft }: views
let running = null; // AbortController
let ended = Promise.resolve(); // resolves when the last run has ended
let playback = null;
let recorded = null; // the recordings of the last run or race
let shown = { meter: new Meter(), caches: new CachePair() };

// ---- Drawing, once per frame while something changes ----

let isDrawing = false;

function drawSoon() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(draw);
}

function draw(now) {
  isDrawing = false;
  let isMoving = running !== null;
  if (playback !== null) {
    if (playback.draw(now)) isMoving = true;
    else endPlayback();
  }
  lanes.first.view.draw();
  lanes.second.view.draw();
  figures.draw(shown.meter);
  bars.draw(shown.meter);
  if (pages !== null) {
    const targetFades = pages.target.draw(shown.caches.target, now);
    const draftFades = pages.draft.draw(shown.caches.draft, now);
    isMoving ||= targetFades || draftFades;
  }
  if (isMoving) drawSoon();
}

function showLane(lane, { tokens, speed }, mostTokens) {
  lane.speed.textContent = speed === null ? '\u00a0' : `${formatSpeed(speed)} tokens/s`;
  lane.track.style.transform = `scaleX(${Math.min(1, tokens / mostTokens)})`;
}

function clearLane(lane) {
  lane.recording = new Recording();
  lane.view.clear();
  lane.speed.textContent = '\u00a0';
  lane.track.style.transform = 'scaleX(0)';
}

// ---- Status and errors ----

function say(words) {
  byId('status').textContent = words;
}

function showError(error) {
  const box = byId('error');
  box.replaceChildren();
  box.hidden = error === null;
  markField(error?.param ?? null);
  if (error === null) return;
  const title = document.createElement('b');
  title.textContent = error.status ? `The server refused (${error.status})` : 'That did not work';
  const words = document.createElement('p');
  words.textContent = error.message;
  box.append(title, words);
  const advice = telling.adviceOn(error);
  if (advice !== null) {
    const line = document.createElement('p');
    line.textContent = advice;
    box.append(line);
  }
  if (error.param) {
    const field = document.createElement('p');
    const name = document.createElement('code');
    name.textContent = error.param;
    field.append('Field: ', name);
    box.append(field);
  }
  box.scrollIntoView({ block: 'nearest' });
}

const isLocked = () => 'locked' in byId('main').dataset;

// Locks the page until the server accepts a key.
function askForKey(words) {
  byId('main').dataset.locked = '';
  byId('gate-error').hidden = words === '';
  byId('gate-error').textContent = words;
  byId('api-key').focus();
}

async function tryKey(event) {
  event.preventDefault();
  try {
    await loadModel();
    delete byId('main').dataset.locked;
    showError(null);
    byId('text').scrollTop = byId('text').scrollHeight;
    byId('prompt').focus({ preventScroll: true });
  } catch (error) {
    askForKey(error.status === 401 ? 'The server does not accept this key.' : error.message);
  }
  setRunning(null);
  drawSoon();
}

// ---- Runs ----

// Streams one generation into a lane. `watches`: whether the figures and caches show it.
async function generate(body, lane, { watches }) {
  const meter = new Meter();
  const caches = new CachePair();
  const text = new TextByToken();
  let ending = '';
  if (watches) shown = { meter, caches };
  clearLane(lane);
  const { recording } = lane;
  const stream = streamText(body, {
    key: byId('api-key').value,
    signal: running.signal,
    onChunk(chunk, time) {
      meter.add(chunk, time);
      caches.add(chunk, performance.now());
      const choice = chunk.choices[0];
      const parts = text.partsOf(choice);
      lane.view.add(parts);
      recording.add(chunk, time, parts, meter);
      ending = choice.finish_reason ?? ending;
      showLane(lane, meter, body.max_tokens);
      drawSoon();
    },
  });
  await stream.finally(() => lane.view.finish());
  return { meter, recording, ending };
}

function setRunning(controller) {
  running = controller;
  byId('run').disabled = controller !== null;
  byId('race').disabled = controller !== null || model === null || model.drafters.length === 0;
  byId('stop').disabled = controller === null && playback === null;
  byId('replay').disabled = controller !== null || playback !== null || recorded === null;
  byId('text').classList.toggle('busy', controller !== null);
}

function showColumns({ areTwo }) {
  byId('columns').classList.toggle('two', areTwo);
  byId('second').hidden = !areTwo;
  byId('verdict').hidden = !areTwo;
}

// Runs `work`, which may be stopped and may fail.
function run(work) {
  if (running !== null || isLocked() || !telling.isReady()) return;
  endPlayback();
  recorded = null;
  showError(null);
  setRunning(new AbortController());
  drawSoon();
  ended = tryTo(work).finally(() => {
    setRunning(null);
    bars.describe(shown.meter);
    drawSoon();
  });
}

async function tryTo(work) {
  try {
    if (model === null) {
      const before = telling;
      await loadModel();
      if (telling !== before) return;
    }
    await work();
    keepAnswer();
  } catch (error) {
    if (error.name === 'AbortError') {
      keepWritten();
      telling.takeBack(); // if there was nothing to keep
      say(`Stopped after ${shown.meter.tokens} tokens.`);
    } else if (error.status === 401) {
      telling.takeBack();
      say('Not done: the server requires a key.');
      askForKey(byId('api-key').value === '' ? '' : 'The server does not accept this key.');
    } else {
      telling.takeBack();
      say('Not done; see the message next to the buttons.');
      showError(error);
    }
  }
}

function keepAnswer() {
  telling.keep({ parts: lanes.first.recording.parts, figures: shown.meter.summary });
}

// Keeps an answer that was cut short, unless it is empty.
function keepWritten() {
  if (lanes.first.recording.parts.length > 0) keepAnswer();
}

function runOnce() {
  return run(async () => {
    showColumns({ areTwo: false });
    const body = telling.ask([lanes.first]);
    const isPlain = body.speculation.drafter === 'none' || body.speculation.draft_tokens === 0;
    byId('first-name').textContent = isPlain ? 'Plain' : 'Speculative';
    say('Writing…');
    byId('story').scrollIntoView({ block: 'nearest' });
    const { meter, recording, ending } = await generate(body, lanes.first, { watches: true });
    recorded = [recording];
    const tokens = meter.tokens === 1 ? '1 token' : `${meter.tokens} tokens`;
    say(`Done: ${tokens}, ended ${ENDINGS[ending] ?? ending}.`);
  });
}

function runRace() {
  return run(async () => {
    showColumns({ areTwo: true });
    const body = telling.ask([lanes.first, lanes.second]);
    const { drafted, plain } = requestsOf(body, drafterOf(model));
    byId('first-name').textContent = 'Speculative';
    byId('verdict-words').textContent = '\u00a0';
    clearLane(lanes.second);
    say('Warming up…');
    byId('story').scrollIntoView({ block: 'nearest' });
    for (const request of [drafted, plain]) {
      await generate({ ...request, max_tokens: 1 }, lanes.first, { watches: false });
    }
    say('First with drafts…');
    const a = await generate(drafted, lanes.first, { watches: true });
    say('…now without.');
    const b = await generate(plain, lanes.second, { watches: false });
    showVerdict(a, b, drafted);
    recorded = [a.recording, b.recording];
    if (!matchMedia('(prefers-reduced-motion: reduce)').matches) play();
  });
}

// Returns the drafter of a race, which is used even if the server drafts only on request.
function drafterOf({ drafter, drafters }) {
  return drafter === 'none' ? drafters[0] : drafter;
}

function showVerdict(drafted, plain, body) {
  const isSame = isSameText(drafted.recording, plain.recording);
  const factor = plain.meter.speed > 0 ? drafted.meter.speed / plain.meter.speed : 0;
  const rule = body.speculation.verifier;
  const mayDiffer = body.temperature !== 0 && (rule === 'block' || rule === 'token');
  const same = isSame ? 'Both texts are identical, token for token.'
    : mayDiffer ? `The texts differ: ${rule} keeps their distribution, not the draws of the seed.`
    : 'The texts differ.';
  byId('verdict').dataset.same = String(isSame);
  byId('verdict-words').textContent = `${factor.toFixed(2)} times as fast with drafts. ${same}`;
  say(`Race done: ${formatSpeed(drafted.meter.speed)} against ${formatSpeed(plain.meter.speed)} ` +
    'tokens a second.');
}

// ---- Playback ----

// Replays the text and caches of the recordings. The figures stay as they were measured.
function play() {
  const caches = new CachePair();
  shown = { ...shown, caches };
  playback = new Playback(recorded.map((recording, i) => {
    const lane = i === 0 ? lanes.first : lanes.second;
    const mostTokens = recording.frames.at(-1).tokens;
    lane.view.clear();
    const onFrame = ({ chunk, tokens }, now) => {
      if (i === 0) caches.add(chunk, now);
      showLane(lane, { tokens, speed: recording.speed }, mostTokens);
    };
    return { recording, view: lane.view, onFrame };
  }));
  const { factor } = playback;
  const pace = factor > 1.05 ? `${factor.toFixed(factor < 10 ? 1 : 0)} times slower than it was`
    : 'as fast as it was';
  byId('replay').textContent = 'Playing…';
  byId('pace').textContent = `Played back ${pace}.`;
  setRunning(running);
  drawSoon();
}

function endPlayback() {
  if (playback === null) return;
  playback.finish(performance.now());
  playback = null;
  byId('replay').textContent = 'Play slowly';
  byId('pace').textContent = '\u00a0';
  setRunning(running);
}

function stop() {
  if (running !== null) running.abort();
  endPlayback();
}

// Forgets the conversation and its text.
async function startAnew() {
  stop();
  await ended;
  telling.forget();
  recorded = null;
  shown = { meter: new Meter(), caches: new CachePair() };
  lanes.first.view = new TextView(lanes.first.element);
  lanes.first.speed.textContent = '\u00a0';
  lanes.first.track.style.transform = 'scaleX(0)';
  showColumns({ areTwo: false });
  showError(null);
  say('Ready.');
  setRunning(null);
  drawSoon();
}

// ---- Start ----

// The main element is hidden until it has a mode.
function tell(other) {
  telling = other;
  byId('main').dataset.mode = telling.mode;
  telling.arrange(model);
}

async function loadModel() {
  model = await fetchModel(byId('api-key').value);
  offer(model);
  if (model.has_chat_template && telling.mode !== 'chat') tell(new Chat(runOnce));
  const context = model.max_model_len.toLocaleString('en');
  byId('served').textContent = `${model.id} · drafter ${model.drafter} · context ${context}`;
  byId('draft-cache').hidden = !model.drafters.some((name) => name.includes('model'));
  byId('pages-hint').textContent =
    `A square is a page of ${model.page_size} tokens, coloured as the words are. ` +
    'Tokens that the target rejects flash and are rolled back.';
  const view = (name) =>
    new PagesView(byId(`${name}-pages`), byId(`${name}-words`), model.page_size);
  pages = { target: view('target'), draft: view('draft') };
}

// Sends a chat message on Enter, except while an input method composes text.
function sendByEnter(event) {
  const isPlain = !event.shiftKey && !event.ctrlKey && !event.metaKey && !event.altKey;
  if (telling.mode !== 'chat' || event.key !== 'Enter' || !isPlain || event.isComposing) return;
  event.preventDefault();
  runOnce();
}

function showColours(areShown) {
  byId('colours').checked = areShown;
  byId('main').dataset.colours = areShown ? 'on' : 'off';
}

function listen() {
  byId('gate').addEventListener('submit', tryKey);
  byId('colours').addEventListener('change', ({ target }) => {
    showColours(target.checked);
    keep('colours', target.checked);
  });
  addEventListener('pagehide', () => {
    if (running !== null) keepWritten();
  });
  byId('form').addEventListener('submit', (event) => event.preventDefault());
  byId('run').addEventListener('click', runOnce);
  byId('race').addEventListener('click', runRace);
  byId('stop').addEventListener('click', stop);
  byId('replay').addEventListener('click', play);
  byId('anew').addEventListener('click', startAnew);
  byId('prompt').addEventListener('keydown', sendByEnter);
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      runOnce();
    } else if (event.key === 'Escape') {
      stop();
      telling.cancelEdit();
    }
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    pages?.target.readColours();
    pages?.draft.readColours();
    drawSoon();
  });
  addEventListener('resize', drawSoon);
}

async function start() {
  prepareForm();
  listen();
  showColours(readKept('colours') ?? true);
  telling.arrange();
  setRunning(null);
  let error = null;
  try {
    await loadModel();
  } catch (caught) {
    error = caught;
  }
  byId('main').dataset.mode = telling.mode;
  if (error?.status === 401) askForKey('');
  else showError(error);
  setRunning(null);
  drawSoon();
}

start();
