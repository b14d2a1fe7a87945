// The page's behaviour: its buttons, and a loop that draws once per frame.

import { Chat } from './chat.js';
import { BarsView, FiguresView, Meter, formatSeconds } from './figures.js';
import { markField, offer, prepareForm } from './form.js';
import { keep, readKept } from './kept.js';
import { CachePair, PagesView } from './pages.js';
import { TextByToken } from './parts.js';
import { Playback, Recording, requestsOf, verdictOf } from './race.js';
import { Story } from './story.js';
import { fetchModels, loadModel, streamText } from './stream.js';
import { TextView } from './text.js';
import { prepareTips } from './tip.js';

const byId = (id) => document.getElementById(id);

const ENDINGS = { length: 'at max tokens', stop: 'by the model', cancelled: 'by the server' };

const figures = new FiguresView();
const bars = new BarsView(byId('bars'));
const laneOf = (textId, name) => ({
  element: byId(textId),
  view: new TextView(byId(textId)),
  recording: new Recording(),
  time: byId(`${name}-time`),
  track: byId(`${name}-track`),
  tokens: 0,
  start: null, // when its run began, while it runs
});
const lanes = { first: laneOf('text', 'first'), second: laneOf('plain-text', 'second') };

let model = null;
let telling = new Story(); // a Story or a Chat: makes the request, and shows the answer
let pages = null; // { target, draft }: views
let running = null; // AbortController
let ended = Promise.resolve(); // resolves when the last run has ended
let playback = null;
let lastStatus = ''; // before the playback
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
  for (const lane of [lanes.first, lanes.second]) {
    lane.view.draw();
    if (lane.start !== null) showTime(lane, performance.now() - lane.start);
  }
  figures.draw(shown.meter);
  bars.draw(shown.meter);
  if (pages !== null) {
    const targetFades = pages.target.draw(shown.caches.target, now);
    const draftFades = pages.draft.draw(shown.caches.draft, now);
    isMoving ||= targetFades || draftFades;
  }
  if (isMoving) drawSoon();
}

function showTime(lane, ms) {
  lane.time.textContent = `${formatSeconds(ms)} · ${lane.tokens} tokens`;
}

function showTokens(lane, tokens, mostTokens) {
  lane.tokens = tokens;
  lane.track.style.transform = `scaleX(${Math.min(1, tokens / mostTokens)})`;
}

function clearLane(lane) {
  lane.recording = new Recording();
  lane.view.clear();
  lane.time.textContent = '\u00a0';
  showTokens(lane, 0, 1);
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
    await prepareModel();
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
  const caches = new CachePair(model.parallel_draft);
  const text = new TextByToken();
  let ending = '';
  if (watches) shown = { meter, caches };
  clearLane(lane);
  const { recording } = lane;
  lane.start = performance.now();
  const stream = streamText({ model: model.id, ...body }, {
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
      showTokens(lane, meter.tokens, body.max_tokens);
      drawSoon();
    },
  });
  await stream.finally(() => {
    lane.start = null;
    lane.view.finish();
    showTime(lane, recording.lastTime);
  });
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
  byId('text').scrollTop = areTwo ? 0 : byId('text').scrollHeight;
}

function showVerdict({ words, reason }) {
  byId('verdict-words').textContent = words;
  byId('verdict-reason').textContent = reason;
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
      await prepareModel();
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
    say('Writing…');
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
    clearLane(lanes.second);
    showVerdict({ words: 'First with drafts, then without…', reason: '\u00a0' });
    say('Warming up…');
    for (const request of [drafted, plain]) {
      await generate({ ...request, max_tokens: 1 }, lanes.first, { watches: false });
    }
    say('First with drafts…');
    const a = await generate(drafted, lanes.first, { watches: true });
    say('…now without.');
    const b = await generate(plain, lanes.second, { watches: false });
    showVerdict(verdictOf(a, b, drafted));
    recorded = [a.recording, b.recording];
    say('Race done.');
    if (!matchMedia('(prefers-reduced-motion: reduce)').matches) play();
  });
}

// Returns the drafter of a race, which is used even if the server drafts only on request.
function drafterOf({ drafter, drafters }) {
  return drafter === 'none' ? drafters[0] : drafter;
}

// ---- Playback ----

// Replays the text and caches of the recordings. The figures stay as they were measured.
function play() {
  const caches = new CachePair(model.parallel_draft);
  shown = { ...shown, caches };
  playback = new Playback(recorded.map((recording, i) => {
    const lane = i === 0 ? lanes.first : lanes.second;
    const mostTokens = recording.frames.at(-1).tokens;
    lane.view.clear();
    const onFrame = ({ chunk, tokens }, now) => {
      if (i === 0) caches.add(chunk, now);
      showTokens(lane, tokens, mostTokens);
    };
    return { recording, view: lane.view, onFrame, onTime: (ms) => showTime(lane, ms) };
  }));
  const { factor } = playback;
  const pace = factor > 1.05 ? `${factor.toFixed(factor < 10 ? 1 : 0)} times slower than it was`
    : 'as fast as it was';
  lastStatus = byId('status').textContent;
  say(`Playing, ${pace}.`);
  setRunning(running);
  drawSoon();
}

function endPlayback() {
  if (playback === null) return;
  playback.finish(performance.now());
  playback = null;
  say(lastStatus);
  setRunning(running);
}

function stop() {
  if (running !== null) running.abort();
  endPlayback();
}

// Shows another conversation, or a new one if `id` is null.
async function openConversation(id) {
  stop();
  await ended;
  if (byId('list').matches(':popover-open')) byId('list').hidePopover();
  telling.open(id);
  recorded = null;
  shown = { meter: new Meter(), caches: new CachePair(model.parallel_draft) };
  lanes.first.view = new TextView(lanes.first.element);
  showColumns({ areTwo: false });
  showError(null);
  say('Ready.');
  setRunning(null);
  drawSoon();
}

function endRace() {
  stop();
  showColumns({ areTwo: false });
  byId('prompt').focus({ preventScroll: true });
}

// ---- Start ----

// The main element is hidden until it has a mode.
function tell(other) {
  telling = other;
  byId('main').dataset.mode = telling.mode;
  telling.arrange(model);
}

// Offers the models of the server, and returns the one to use: that of the last visit, else one
// that is loaded.
async function chooseModel(key) {
  const models = await fetchModels(key);
  const isLoaded = ({ status }) => status.value === 'loaded';
  const chosen = models.find(({ id }) => id === readKept('model')) ?? models.find(isLoaded) ?? models[0];
  byId('model').replaceChildren(...models.map(({ id }) => new Option(id, id)));
  byId('model').value = chosen.id;
  byId('model').hidden = models.length === 1;
  if (isLoaded(chosen)) return chosen;
  say(`Loading ${chosen.id}…`);
  return loadModel(chosen.id, key);
}

async function prepareModel() {
  model = await chooseModel(byId('api-key').value);
  say('Ready.');
  offer(model);
  if (model.has_chat_template && telling.mode !== 'chat') {
    tell(new Chat({ onPick: runOnce, onOpen: openConversation }));
  }
  const context = model.max_model_len.toLocaleString('en');
  const drafter = model.parallel_draft ? `${model.drafter} (parallel)` : model.drafter;
  const name = byId('model').hidden ? `${model.id} · ` : '';
  byId('served').textContent = `${name}drafter ${drafter} · context ${context}`;
  byId('draft-cache').hidden = !model.drafters.some((name) => name.includes('model'));
  byId('pages-hint').textContent =
    `A square is a page of ${model.page_size} tokens. Refused tokens flash and are rolled back.`;
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
  byId('form').addEventListener('submit', (event) => {
    event.preventDefault();
    runOnce();
  });
  byId('model').addEventListener('input', ({ target }) => {
    keep('model', target.value);
    location.reload(); // a chat and a story have different pages
  });
  byId('race').addEventListener('click', runRace);
  byId('stop').addEventListener('click', stop);
  byId('replay').addEventListener('click', play);
  byId('anew').addEventListener('click', () => openConversation(null));
  byId('end-race').addEventListener('click', endRace);
  byId('prompt').addEventListener('keydown', sendByEnter);
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      runOnce();
    } else if (event.key === 'Escape' && !byId('list').matches(':popover-open')) {
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
  prepareTips();
  listen();
  showColours(readKept('colours') ?? true);
  telling.arrange();
  setRunning(null);
  let error = null;
  try {
    await prepareModel();
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
