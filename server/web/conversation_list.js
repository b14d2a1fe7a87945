// The list of conversations: opens, renames and deletes them, and takes them to and from files.

import * as conversations from './conversations.js';
import { smallButton } from './copy.js';

const FILE_NAME = 'tandem-conversations.json';

const byId = (id) => document.getElementById(id);

function showError(words) {
  byId('list-error').textContent = words;
  byId('list-error').hidden = words === '';
}

function saveFile() {
  const file = new Blob([conversations.exported()], { type: 'application/json' });
  const url = URL.createObjectURL(file);
  Object.assign(document.createElement('a'), { href: url, download: FILE_NAME }).click();
  setTimeout(() => URL.revokeObjectURL(url), 0);
}

export class ConversationList {
  #onOpen;
  #onRemove;

  // `onOpen(id)` and `onRemove(id)` are called when the reader chooses so.
  constructor({ onOpen, onRemove }) {
    this.#onOpen = onOpen;
    this.#onRemove = onRemove;
    byId('export').addEventListener('click', saveFile);
    byId('import').addEventListener('click', () => byId('import-file').click());
    byId('import-file').addEventListener('change', ({ target }) => this.#import(target));
    addEventListener('storage', () => this.show());
    this.show();
  }

  show() {
    const current = conversations.currentId();
    const entries = conversations.list();
    byId('conversations').replaceChildren(...entries.map((entry) => this.#itemOf(entry, current)));
    byId('export').disabled = entries.length === 0;
    const shown = entries.find(({ id }) => id === current);
    byId('conversation-name').textContent = shown?.name ?? 'New conversation';
  }

  #itemOf({ id, name }, current) {
    const item = document.createElement('li');
    const open = smallButton(name, `Open ${name}`, () => this.#onOpen(id), 'open');
    open.title = name;
    if (id === current) open.setAttribute('aria-current', 'true');
    const rename = smallButton('Rename', `Rename ${name}`, () => this.#edit(item, id, name));
    const remove = smallButton('Delete', `Delete ${name}`, () => {
      if (remove.classList.contains('asks')) return this.#onRemove(id);
      // A second click deletes.
      remove.classList.add('asks');
      remove.textContent = 'Delete?';
      return undefined;
    });
    remove.addEventListener('blur', () => {
      remove.classList.remove('asks');
      remove.textContent = 'Delete';
    });
    const buttons = document.createElement('div');
    buttons.className = 'item-buttons';
    buttons.append(rename, remove);
    item.append(open, buttons);
    return item;
  }

  // Enter, or leaving the field, renames; Escape does not.
  #edit(item, id, name) {
    const field = document.createElement('input');
    field.value = name;
    field.setAttribute('aria-label', `New name of ${name}`);
    const end = (isKept) => {
      if (!field.isConnected) return;
      if (isKept) conversations.rename(id, field.value);
      this.show();
    };
    field.addEventListener('blur', () => end(true));
    field.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' && event.key !== 'Escape') return;
      event.preventDefault();
      event.stopPropagation();
      end(event.key === 'Enter');
    });
    item.replaceChildren(field);
    field.select();
  }

  async #import(input) {
    const [file] = input.files;
    if (file === undefined) return;
    showError('');
    try {
      const count = conversations.importFrom(await file.text());
      const words = count === 1 ? 'conversation' : 'conversations';
      byId('status').textContent = `Imported ${count} ${words}.`;
    } catch ({ message }) {
      showError(`${file.name} cannot be imported: ${message}.`);
    }
    input.value = '';
    this.show();
  }
}
