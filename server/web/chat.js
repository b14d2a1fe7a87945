// The page for a chat model: a conversation, whose turns are sent again with every message.

import { ConversationList } from './conversation_list.js';
import * as conversations from './conversations.js';
import { copyButton, smallButton } from './copy.js';
import { offerExamples, readSettings } from './form.js';
import { textOf } from './parts.js';
import { TextView } from './text.js';

const EXAMPLES = [
  ['What is gravity?', 'What is gravity?'],
  ['How do plants make food?', 'How do plants make food from sunlight?'],
  ['Three tips for sleeping well', 'Give me three tips for sleeping well.'],
];
const MOST_TOKENS = 512; // per answer, unless the form says otherwise

const byId = (id) => document.getElementById(id);

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
  parts = []; // of the answer
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
    const ofAnswer = elementOf('div', 'turn-buttons',
      copyButton('Copy the answer', () => this.answer),
      smallButton('Regenerate', again, buttons.onRegenerate, 'when-idle again'));
    this.element.append(elementOf('div', 'turn-foot', this.#figures, ofAnswer));
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
  #list;
  #id = null; // of the kept conversation
  #turns = [];
  #asked = null; // { turn, others, replaced, isAgain }: being answered, in place of `replaced`
  #edit = null; // { from, draft }: the field has the message of turn `from`, and had `draft` before
  #isAgain = false; // the next request repeats the last message
  #welcome = byId('welcome');

  // `onPick` is called to send a message other than with the button next to the field, and `onOpen`
  // with the id of a conversation to open.
  constructor({ onPick, onOpen }) {
    this.#onPick = onPick;
    const onRemove = (id) => {
      conversations.remove(id);
      if (id === this.#id) onOpen(null);
      else this.#list.show();
    };
    this.#list = new ConversationList({ onOpen, onRemove });
  }

  arrange(model) {
    const field = byId('prompt');
    field.value = '';
    field.placeholder = 'Write a message…';
    byId('text').setAttribute('aria-label', 'Conversation');
    byId('welcome-name').textContent = model.id;
    byId('welcome-drafts').hidden = model.drafters.length === 0;
    byId('draft-tokens').value = 'auto'; // drafts for chat messages may rarely be accepted
    byId('max-tokens').value = Math.min(MOST_TOKENS, Math.floor(model.max_model_len / 2));
    offerExamples(EXAMPLES, (message) => {
      field.value = message;
      this.#onPick();
    });
    byId('welcome').append(byId('examples'));
    byId('cancel-edit').addEventListener('click', () => this.cancelEdit());
    byId('system').addEventListener('change', () => this.#keep());
    this.open(conversations.currentId());
  }

  // ---- Storage ----

  #keep() {
    if (this.#turns.length === 0) return;
    const system = byId('system').value;
    const turns = this.#turns.map(({ said, parts, figures }) => ({ said, parts, figures }));
    const id = conversations.write(this.#id, { system, turns });
    if (id === null) byId('list-hint').textContent = 'This browser has no room to keep them.';
    else this.#setId(id);
  }

  #setId(id) {
    this.#id = id;
    conversations.setCurrent(id);
    this.#list.show();
  }

  // Shows a kept conversation, or a new one if `id` is null.
  open(id) {
    const kept = id === null ? null : conversations.read(id);
    if (kept === null && id !== null) conversations.remove(id); // unreadable
    this.#clear();
    if (kept !== null) byId('system').value = kept.system;
    this.#append((kept?.turns ?? []).map(({ said, parts, figures }) => {
      const turn = this.#newTurn(said);
      turn.end({ parts, figures });
      turn.view.add(parts);
      turn.view.finish();
      return turn;
    }));
    this.#setId(kept === null ? null : id);
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
    byId('form').classList.toggle('edits', this.#edit !== null);
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
    byId('race-said').textContent = said;
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
