// The conversations that this browser keeps, and the files that carry them elsewhere. A
// conversation is { system, turns }; a turn is { said, parts, figures }.

import { keep, readKept } from './kept.js';
import { KINDS } from './parts.js';

const INDEX = 'conversations'; // [{ id, name }], the latest first
const CURRENT = 'current'; // the id of the shown one
const FORMAT = 'tandem-conversations';
const LONGEST_NAME = 60;

const keyOf = (id) => `conversation.${id}`;
const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
const isText = (value) => typeof value === 'string';
const isObject = (value) => typeof value === 'object' && value !== null;

function check(is, reason) {
  if (!is) throw new TypeError(reason);
}

function checkedPart(part) {
  const isPart = Array.isArray(part) && Object.values(KINDS).includes(part[0]) &&
    part.slice(1).every(isText) && (part.length === 2 || part.length === 3);
  check(isPart, 'has an answer of another form');
  return part;
}

function checkedTurn(turn) {
  check(isObject(turn) && isText(turn.said), 'has a turn without a message');
  const { said, parts, figures = '' } = turn;
  check(Array.isArray(parts) && isText(figures), 'has a turn without an answer');
  return { said, parts: parts.map(checkedPart), figures };
}

// Returns a conversation of this form. Throws an error that says what it has instead.
function checked(value) {
  check(isObject(value) && Array.isArray(value.turns), 'has no turns');
  const { system = '', turns } = value;
  check(isText(system), 'has a system message that is not a text');
  return { system, turns: turns.map(checkedTurn) };
}

function nameOf({ turns }) {
  const words = (turns[0]?.said ?? '').trim().replace(/\s+/g, ' ');
  if (words.length > LONGEST_NAME) return `${words.slice(0, LONGEST_NAME - 1)}…`;
  return words || 'Untitled';
}

// Read anew for each change, since other windows change it, too.
export function list() {
  const entries = readKept(INDEX);
  if (!Array.isArray(entries)) return [];
  return entries.filter((entry) => isObject(entry) && isText(entry.id) && isText(entry.name));
}

export const currentId = () => readKept(CURRENT);
export const setCurrent = (id) => keep(CURRENT, id);

// Returns null if it is not there, or unreadable.
export function read(id) {
  try {
    return checked(readKept(keyOf(id)));
  } catch {
    return null;
  }
}

// Keeps a conversation as the latest one, under a new id if `id` is null. Returns the id, or null
// if the browser keeps nothing.
export function write(id, conversation) {
  const entries = list();
  const known = entries.find((entry) => entry.id === id);
  const entry = known ?? { id: id ?? newId(), name: nameOf(conversation) };
  if (!keep(keyOf(entry.id), conversation)) return null;
  keep(INDEX, [entry, ...entries.filter((other) => other !== known)]);
  return entry.id;
}

export function rename(id, name) {
  const words = name.trim();
  if (words === '') return;
  keep(INDEX, list().map((entry) => (entry.id === id ? { ...entry, name: words } : entry)));
}

export function remove(id) {
  keep(keyOf(id), null);
  keep(INDEX, list().filter((entry) => entry.id !== id));
}

// Returns the text of a file with all conversations.
export function exported() {
  const conversations = list().map(({ id, name }) => ({ id, name, ...read(id) }));
  return JSON.stringify({ format: FORMAT, version: 1, conversations }, null, 1);
}

// Adds the conversations of an exported file, except those that are here word for word. Returns
// their number. Throws an error that says why the file is not such a file; nothing has changed then.
export function importFrom(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new TypeError('it is not JSON');
  }
  const isExport = file?.format === FORMAT && Array.isArray(file.conversations);
  check(isExport, 'this page has not exported it');
  check(file.version === 1, `its version is ${JSON.stringify(file.version)}, not 1`);
  const added = file.conversations.map((value, i) => {
    try {
      const conversation = checked(value);
      const { id, name = nameOf(conversation) } = value;
      check(isText(id) && isText(name) && name.trim() !== '', 'has no name');
      return { id, name, conversation };
    } catch ({ message }) {
      throw new TypeError(`conversation ${i + 1} ${message}`);
    }
  }).filter(({ id, conversation }) => JSON.stringify(read(id)) !== JSON.stringify(conversation));
  for (const { name, conversation } of added.reverse()) {
    const id = write(null, conversation);
    if (id === null) throw new TypeError('this browser has no more room');
    rename(id, name);
  }
  return added.length;
}
