// The page for a chat model: a conversation, whose turns are sent again with every message.

import { copyButton, smallButton } from './copy.js';
import { offerExamples, readSettings, setNumber } from './form.js';
import { keep, readKept } from './kept.js';
import { TextView, textOf } from './text.js';

const EXAMPLES = [
  ['What is gravity?', 'What is gravity?'],
  ['How do plants make food?', 'How do plants make food from sunlight?'],
  ['Three tips for sleeping well', 'Give me three tips for sleeping well.'],
];
const MOST_TOKENS = 512; // per answer, unless the form says otherwise

const byId = (id) => document.getElementById(id);

const KEPT = 'conversation'; // its name in kept.js

function elementOf(name, className, ...content) {
  const element = document.createElement(name);
  element.className = className;
  element.append(...content);
  return element;
}

// Returns a message with a name for screen readers.
function messageOf(className, name, words = '') {
  const element = elementOf('div', className, words);
  element.setAttribute('role', 'group');
  element.setAttribute('aria-label', name);
  return element;
}

// A message and its answer, finished or being written.
class Turn {
  said;
  parts = []; // of the answer: [kind, text] each
  figures = ''; // in words
  view;
  element;
  #figures = elementOf('p', 'turn-figures');

  // `buttons` is { onEdit, onRegenerate }. Without it the turn is read-only.
  constructor(said, scroller, buttons = null) {
    this.said = said;
    const answer = messageOf('answer', 'Answer');
    this.view = new TextView(answer, { scroller, isMarkdown: true });
    this.element = elementOf('div', 'turn', messageOf('said', 'You', said));
    if (buttons !== null) {
      this.element.append(elementOf('div', 'turn-buttons',
        copyButton('Copy the message', () => this.said),
        smallButton('Edit', 'Edit the message', () => buttons.onEdit(this), 'when-idle')));
    }
    this.element.append(answer);
    if (buttons === null) return;
    const again = 'Regenerate the answer';
    this.element.append(elementOf('div', 'turn-foot', this.#figures, elementOf('div', 'turn-buttons',
      copyButton('Copy the answer', () => this.answer),
      smallButton('Regenerate', again, buttons.onRegenerate, 'when-idle again'))));
  }

  get answer() {
    return textOf(this.parts);
  }

  // Ends the answer with `parts`, complete or cut short.
  end({ parts, figures }) {
    this.parts = parts;
    this.figures = figures;
    this.view.following(() => { this.#figures.textContent = figures; });
  }
}

export class Chat {
  mode = 'chat';
  #onPick;
  #turns = [];
  #asked = null; // { turn, others, replaced, isAgain }: being answered, in place of `replaced`
  #edit = null; // { from, draft }: the field has the message of turn `from`; `draft` was there before
  #isAgain = false; // the next request repeats the last message
  #welcome = byId('welcome');

  // `onPick` is called to send a message other than with the button next to the field.
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
    byId('welcome-drafts').hidden = model.drafters.length === 0;
    byId('draft-tokens').value = 'auto'; // drafts for chat messages may rarely be accepted
    setNumber('max-tokens', Math.min(MOST_TOKENS, Math.floor(model.max_model_len / 2)));
    offerExamples(EXAMPLES, (message) => {
      field.value = message;
      this.#onPick();
    });
    // On narrow screens the settings come last, because a chat does not need them.
    byId('composer').prepend(byId('prompt-field'), byId('keys'));
    byId('composer').append(byId('buttons'), byId('error'));
    byId('welcome').append(byId('examples'));
    byId('main').append(byId('form'));
    byId('cancel-edit').addEventListener('click', () => this.cancelEdit());
    byId('system').addEventListener('change', () => this.#keep());
    this.#clear();
    this.#restore();
  }

  // ---- Storage ----

  #keep() {
    const system = byId('system').value;
    const turns = this.#turns.map(({ said, parts, figures }) => ({ said, parts, figures }));
    keep(KEPT, { system, turns });
  }

  // An entry that another version of the page has written may be unreadable.
  #restore() {
    const kept = readKept(KEPT);
    if (kept === null) return;
    try {
      const turns = kept.turns.map(({ said, parts, figures }) => {
        const turn = this.#newTurn(said);
        turn.end({ parts, figures });
        turn.view.add(parts);
        turn.view.finish();
        return turn;
      });
      byId('system').value = kept.system;
      this.#append(turns);
    } catch {
      keep(KEPT, null);
    }
  }

  // Begins a new conversation and deletes the stored one.
  forget() {
    keep(KEPT, null);
    this.#clear();
  }

  #clear() {
    this.cancelEdit();
    this.#turns = [];
    this.#asked = null;
    byId('text').replaceChildren(this.#welcome);
    this.#focus();
  }

  // ---- Turns ----

  #newTurn(said) {
    return new Turn(said, byId('text'), {
      onEdit: (turn) => this.#beginEdit(turn),
      onRegenerate: () => {
        this.cancelEdit();
        this.#isAgain = true;
        this.#onPick();
        this.#isAgain = false;
      },
    });
  }

  // Adds turns to the end of the conversation.
  #append(turns) {
    this.#turns.push(...turns);
    this.#show(turns);
  }

  #show(turns) {
    if (turns.length === 0) return;
    this.#welcome.remove();
    byId('text').append(...turns.map(({ element }) => element));
    byId('text').scrollTop = byId('text').scrollHeight;
  }

  #beginEdit(turn) {
    const field = byId('prompt');
    this.#edit = { from: this.#turns.indexOf(turn), draft: this.#edit?.draft ?? field.value };
    field.value = turn.said;
    this.#showEdit();
    field.focus({ preventScroll: true });
  }

  cancelEdit() {
    if (this.#edit === null) return;
    byId('prompt').value = this.#edit.draft;
    this.#edit = null;
    this.#showEdit();
  }

  // Fades the turns that an edited message will replace.
  #showEdit() {
    const from = this.#edit?.from ?? Infinity;
    this.#turns.forEach(({ element }, i) => element.classList.toggle('faded', i >= from));
    byId('composer').classList.toggle('edits', this.#edit !== null);
  }

  isReady() {
    const hasMessage = this.#isAgain || byId('prompt').value.trim() !== '';
    if (!hasMessage) this.#focus();
    return hasMessage;
  }

  // Takes the message from its field and returns the request. The first lane shows the
  // conversation, and each further lane a copy of this turn.
  ask([lane, ...lanes]) {
    const field = byId('prompt');
    const isAgain = this.#isAgain;
    const said = isAgain ? this.#turns.at(-1).said : field.value;
    if (!isAgain) field.value = this.#edit?.draft ?? '';
    const from = isAgain ? this.#turns.length - 1 : this.#edit?.from ?? this.#turns.length;
    this.#edit = null;
    this.#showEdit();
    const replaced = this.#turns.splice(from);
    for (const { element } of replaced) element.remove();
    const turn = this.#newTurn(said);
    this.#show([turn]);
    lane.view = turn.view;
    const others = lanes.map((other) => {
      const copy = new Turn(said, other.element);
      other.element.replaceChildren(copy.element);
      other.view = copy.view;
      return copy;
    });
    this.#asked = { turn, others, replaced, isAgain };
    this.#focus();
    // All tokens are shown in order, including those of the reasoning.
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

  // Adds the turn to the conversation, complete or cut short.
  keep(answer) {
    if (this.#asked === null) return;
    const { turn } = this.#asked;
    this.#asked = null;
    turn.end(answer);
    this.#turns.push(turn);
    this.#keep();
  }

  // Removes the turn, and restores the turns that it replaced. Its message returns to the field,
  // before any text entered since then.
  takeBack() {
    if (this.#asked === null) return;
    const { turn, others, replaced, isAgain } = this.#asked;
    this.#asked = null;
    for (const { element } of [turn, ...others]) element.remove();
    this.#append(replaced);
    if (this.#turns.length === 0) byId('text').replaceChildren(this.#welcome);
    if (isAgain) return;
    const field = byId('prompt');
    if (replaced.length > 0) {
      this.#edit = { from: this.#turns.length - replaced.length, draft: field.value };
      field.value = turn.said;
      this.#showEdit();
    } else {
      field.value = field.value === '' ? turn.said : `${turn.said}\n${field.value}`;
    }
  }

  adviceOn(error) {
    if (error.code !== 'context_length_exceeded') return null;
    return 'The conversation and its answer exceed the context of the model. Begin a ' +
      'new conversation, or lower max tokens; your message is back in its field.';
  }

  // Not on touch screens, where a keyboard would appear and hide the answer.
  #focus() {
    if (!matchMedia('(pointer: coarse)').matches) byId('prompt').focus({ preventScroll: true });
  }
}
