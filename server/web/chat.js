// The page of a model that was trained to talk: a conversation, whose turns are sent again with
// every message.

import { offerExamples, readSettings, setNumber } from './form.js';
import { TextView } from './text.js';

const EXAMPLES = [
  ['What is gravity?', 'What is gravity?'],
  ['How do plants make food?', 'How do plants make food from sunlight?'],
  ['Three tips for sleeping well', 'Give me three tips for sleeping well.'],
];
const MOST_TOKENS = 512; // of an answer, unless the form says otherwise

const byId = (id) => document.getElementById(id);

// What somebody says, with a name for who cannot see whose it is.
function wordsOf(className, name, words = '') {
  const element = document.createElement('div');
  element.className = className;
  element.setAttribute('role', 'group');
  element.setAttribute('aria-label', name);
  element.textContent = words;
  return element;
}

export class Chat {
  mode = 'chat';
  #onPick;
  #turns = []; // { said, answer }
  #asked = null; // { said, elements }: the turn whose answer is being written
  #welcome = byId('welcome');

  // `onPick` is called when a message is in its field because somebody chose an example.
  constructor(onPick) {
    this.#onPick = onPick;
  }

  arrange(model) {
    const field = byId('prompt');
    field.value = '';
    field.placeholder = 'Write a message…';
    field.rows = 2;
    byId('text').setAttribute('aria-label', 'Conversation');
    byId('welcome-name').textContent = model.id;
    byId('welcome-drafts').hidden = model.drafter === 'none';
    byId('draft-tokens').value = 'auto'; // what a message says can be hard to draft for
    setNumber('max-tokens', Math.min(MOST_TOKENS, Math.floor(model.max_model_len / 2)));
    offerExamples(EXAMPLES, (message) => {
      field.value = message;
      this.#onPick();
    });
    // Who only talks needs no settings: they come last, but where there is room for both.
    byId('composer').append(byId('prompt-field'), byId('keys'), byId('buttons'), byId('error'));
    byId('welcome').append(byId('examples'));
    byId('main').append(byId('form'));
    this.forget();
  }

  // Begins anew.
  forget() {
    this.#turns = [];
    this.#asked = null;
    byId('text').replaceChildren(this.#welcome);
    this.#focus();
  }

  isReady() {
    const hasMessage = byId('prompt').value.trim() !== '';
    if (!hasMessage) this.#focus();
    return hasMessage;
  }

  // Takes the message out of its field. The first lane shows the conversation, another this turn.
  ask(lanes) {
    const said = byId('prompt').value;
    byId('prompt').value = '';
    this.#welcome.remove();
    const elements = lanes.map((lane, i) => {
      if (i > 0) lane.element.replaceChildren();
      const answer = wordsOf('answer', 'Answer');
      const turn = document.createElement('div');
      turn.className = 'turn';
      turn.append(wordsOf('said', 'You', said), answer);
      lane.element.append(turn);
      lane.element.scrollTop = lane.element.scrollHeight;
      lane.view = new TextView(answer, { scroller: lane.element });
      return turn;
    });
    this.#asked = { said, elements };
    this.#focus();
    // Every token is shown where it came, what was thought included.
    return { messages: this.#messages(said), separate_reasoning: false, ...readSettings() };
  }

  #messages(said) {
    const system = byId('system').value.trim();
    const messages = system === '' ? [] : [{ role: 'system', content: system }];
    for (const turn of this.#turns) {
      messages.push({ role: 'user', content: turn.said });
      messages.push({ role: 'assistant', content: turn.answer });
    }
    messages.push({ role: 'user', content: said });
    return messages;
  }

  // The turn counts as said, whole or cut short.
  keep(answer) {
    if (this.#asked === null) return;
    this.#turns.push({ said: this.#asked.said, answer });
    this.#asked = null;
  }

  // The turn counts as not said: its message is in its field again, before what is there by now.
  takeBack() {
    if (this.#asked === null) return;
    const { said, elements } = this.#asked;
    this.#asked = null;
    for (const element of elements) element.remove();
    const field = byId('prompt');
    field.value = field.value === '' ? said : `${said}\n${field.value}`;
    if (this.#turns.length === 0) byId('text').replaceChildren(this.#welcome);
  }

  adviceOn(error) {
    if (error.code !== 'context_length_exceeded') return null;
    return 'The conversation and its answer are more than the model can read at once. Begin a ' +
      'new conversation, or lower max tokens; your message is in its field again.';
  }

  // But not where fingers write: a keyboard would come up and hide the answer.
  #focus() {
    if (!matchMedia('(pointer: coarse)').matches) byId('prompt').focus({ preventScroll: true });
  }
}
