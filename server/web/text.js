// Shows texts, coloured by the provenance of their tokens, while they arrive.

import { blocksOf, elementsOf } from './markdown.js';
import { nodesOf, textOf } from './parts.js';
import { completed } from './unfinished.js';

// Finds the marks of the pieces of text that remain after Markdown is parsed. show() must be called
// in the order of the text.
class Colours {
  at = 0; // the end of the last piece in the text
  #text = '';
  #marks = []; // by character: [kind, draft]

  add(parts) {
    for (const [kind, text, ...draft] of parts) {
      this.#text += text;
      const mark = [kind, draft];
      for (let i = 0; i < text.length; ++i) this.#marks.push(mark);
    }
  }

  // Looks up each line separately, because Markdown may remove its indentation or quotation mark.
  show(piece) {
    const parts = [];
    for (const line of piece.split(/(?<=\n)/)) {
      const words = line.trim();
      const found = this.#text.indexOf(words, this.at);
      if (found >= 0) this.at = found + words.length;
      const start = found - line.indexOf(words);
      for (let i = 0; i < line.length; ++i) {
        const place = found < 0 ? this.at : Math.max(0, start + i);
        const [kind, draft] = this.#marks[Math.min(place, this.#marks.length - 1)];
        parts.push([kind, line[i], ...draft]);
      }
    }
    const fragment = new DocumentFragment();
    fragment.append(...nodesOf(parts));
    return fragment;
  }
}

// Formats Markdown while it arrives. Blocks that are followed by another one stay as they are; the
// last one is formatted again whenever it grows.
class FormattedText {
  #element;
  #colours = new Colours();
  #source = '';
  #rest = ''; // the source of the last block
  #tail = []; // its nodes
  #nextTime = 0; // when to format again

  constructor(element) {
    this.#element = element;
    element.classList.add('formatted');
  }

  // Whether it is time to format again: at most a quarter of the time is spent on it.
  get isDue() {
    return performance.now() >= this.#nextTime;
  }

  #build(blocks) {
    return [...elementsOf(blocks, (text) => this.#colours.show(text)).childNodes];
  }

  // Throws an error if a paragraph is too long or nested too deeply.
  add(parts) {
    const start = performance.now();
    const text = textOf(parts);
    this.#colours.add(parts);
    this.#source += text;
    this.#rest += text;
    const settled = this.#settle();
    const { at } = this.#colours;
    const tail = this.#build(blocksOf(completed(this.#rest)));
    this.#colours.at = at;
    for (const node of this.#tail) node.remove();
    this.#element.append(...settled, ...tail);
    this.#tail = tail;
    this.#nextTime = performance.now() + 3 * (performance.now() - start);
  }

  // Moves the blocks before the last one out of the rest, and returns their nodes. The last line
  // does not count, since it may still become part of an earlier block.
  #settle() {
    const lines = this.#rest.slice(0, this.#rest.lastIndexOf('\n') + 1);
    const blocks = blocksOf(lines);
    const last = blocks.findLastIndex(({ type }) => type !== 'space');
    const kept = blocks.slice(last).map(({ raw }) => raw).join('');
    if (last < 1 || !lines.endsWith(kept)) return [];
    this.#rest = this.#rest.slice(lines.length - kept.length);
    return this.#build(blocks.slice(0, last));
  }

  // Ends the text. What it turned out to mean may differ from what was shown before.
  finish() {
    this.#colours.at = 0;
    const nodes = this.#build(blocksOf(this.#source));
    const shown = [...this.#element.childNodes];
    const isSame = nodes.every((node, i) => node.isEqualNode(shown[i] ?? null));
    if (!isSame || nodes.length !== shown.length) this.#element.replaceChildren(...nodes);
  }
}

// Shows parts in an element, after a prompt if there is one. Call draw() once per frame.
export class TextView {
  #element;
  #scroller; // the element, or one around it
  #prompt;
  #isMarkdown;
  #formatted = null; // a FormattedText, unless the source is shown
  #parts = []; // all
  #numDrawn = 0;

  constructor(element, { scroller = element, prompt = '', isMarkdown = false } = {}) {
    this.#element = element;
    this.#scroller = scroller;
    this.#prompt = prompt;
    this.#isMarkdown = isMarkdown;
    this.#formatted = isMarkdown ? new FormattedText(element) : null;
  }

  clear() {
    this.#parts = [];
    this.#numDrawn = 0;
    this.#element.classList.remove('formatted');
    const given = this.#prompt === '' ? [] : [['prompt', this.#prompt]];
    this.#element.replaceChildren(...nodesOf(given));
    this.#formatted = this.#isMarkdown ? new FormattedText(this.#element) : null;
    if (this.#scroller === this.#element) this.#element.scrollTop = 0;
  }

  add(parts) {
    this.#parts.push(...parts);
  }

  draw() {
    if (this.#formatted?.isDue === false) return;
    this.#draw();
  }

  finish() {
    this.#draw();
    if (this.#parts.length > 0) this.#format((formatted) => formatted.finish());
  }

  #draw() {
    const added = this.#parts.slice(this.#numDrawn);
    if (added.length === 0) return;
    this.#numDrawn = this.#parts.length;
    if (this.#formatted !== null) this.#format((formatted) => formatted.add(added));
    else this.following(() => this.#element.append(...nodesOf(added)));
  }

  // Shows the source if it is too long or nested too deeply to be formatted.
  #format(change) {
    if (this.#formatted === null) return;
    try {
      this.following(() => change(this.#formatted));
    } catch {
      this.#formatted = null;
      this.#element.classList.remove('formatted');
      this.following(() => this.#element.replaceChildren(...nodesOf(this.#parts)));
    }
  }

  // Makes a change, and scrolls to the end of the text if the reader was there.
  following(change) {
    const scroller = this.#scroller;
    const follows = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 40;
    change();
    if (follows) scroller.scrollTop = scroller.scrollHeight;
  }
}
