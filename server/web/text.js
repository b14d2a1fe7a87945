// Text, coloured by the provenance of its tokens.

import { elementsOf } from './markdown.js';

export const KINDS = { a: 'accepted', c: 'correction', b: 'bonus', p: 'plain' };

// Assigns the text of a stream to its tokens. The server holds back incomplete characters and
// possible stop strings, so the text of a chunk may belong to tokens of earlier chunks.
export class TextByToken {
  #waiting = []; // { kind, length }: tokens whose text has not arrived completely
  #last = 'plain';

  // Returns the parts of this chunk's text, [kind, text] each.
  partsOf(choice) {
    const texts = choice.token_texts ?? [];
    for (let i = 0; i < texts.length; ++i) {
      this.#waiting.push({ kind: KINDS[choice.provenance[i]], length: texts[i].length });
    }
    const parts = [];
    let text = choice.text;
    while (text !== '') {
      const token = this.#waiting[0] ?? { kind: this.#last, length: text.length };
      const length = Math.min(token.length, text.length);
      if (length > 0) parts.push([token.kind, text.slice(0, length)]);
      this.#last = token.kind;
      text = text.slice(length);
      token.length -= length;
      if (token.length === 0) this.#waiting.shift();
    }
    return parts;
  }
}

export const textOf = (parts) => parts.map(([, text]) => text).join('');

// Joins adjacent parts of the same kind.
export function merge(parts) {
  const merged = [];
  for (const [kind, text] of parts) {
    if (merged.at(-1)?.[0] === kind) merged.at(-1)[1] += text;
    else merged.push([kind, text]);
  }
  return merged;
}

function spansOf(parts) {
  return merge(parts).map(([kind, text]) => {
    const span = document.createElement('span');
    span.className = kind;
    span.textContent = text;
    return span;
  });
}

// Finds the colours of the pieces of text that remain after Markdown is parsed. show() must be
// called in the order of the text.
class Colours {
  #text;
  #kinds; // by character
  #at = 0;

  constructor(parts) {
    this.#text = textOf(parts);
    this.#kinds = parts.flatMap(([kind, text]) => new Array(text.length).fill(kind));
  }

  // Looks up each line separately, because Markdown may remove its indentation or quotation mark.
  show(piece) {
    const parts = [];
    for (const line of piece.split(/(?<=\n)/)) {
      const words = line.trim();
      const found = this.#text.indexOf(words, this.#at);
      if (found >= 0) this.#at = found + words.length;
      const start = found - line.indexOf(words);
      for (let i = 0; i < line.length; ++i) {
        const place = found < 0 ? this.#at : Math.max(0, start + i);
        parts.push([this.#kinds[Math.min(place, this.#kinds.length - 1)], line[i]]);
      }
    }
    const fragment = new DocumentFragment();
    fragment.append(...spansOf(parts));
    return fragment;
  }
}

// Shows parts in an element, after a prompt if there is one. Call draw() once per frame.
export class TextView {
  #element;
  #scroller; // the element, or one around it
  #prompt;
  #isMarkdown;
  #parts = []; // all
  #numDrawn = 0;

  constructor(element, { scroller = element, prompt = '', isMarkdown = false } = {}) {
    this.#element = element;
    this.#scroller = scroller;
    this.#prompt = prompt;
    this.#isMarkdown = isMarkdown;
  }

  clear() {
    this.#parts = [];
    this.#numDrawn = 0;
    this.#element.classList.remove('formatted');
    const given = this.#prompt === '' ? [] : [['prompt', this.#prompt]];
    this.#element.replaceChildren(...spansOf(given));
    if (this.#scroller === this.#element) this.#element.scrollTop = 0;
  }

  add(parts) {
    this.#parts.push(...parts);
  }

  draw() {
    if (this.#numDrawn === this.#parts.length) return;
    this.following(() => this.#element.append(...spansOf(this.#parts.slice(this.#numDrawn))));
    this.#numDrawn = this.#parts.length;
  }

  // Ends the text. Markdown is formatted only then, and shown as source before.
  finish() {
    this.draw();
    if (!this.#isMarkdown || this.#parts.length === 0) return;
    const colours = new Colours(this.#parts);
    let elements;
    try {
      elements = elementsOf(textOf(this.#parts), (text) => colours.show(text));
    } catch {
      return; // too long or nested too deeply: the source stays
    }
    this.following(() => {
      this.#element.classList.add('formatted');
      this.#element.replaceChildren(elements);
    });
  }

  // Makes a change, and scrolls to the end of the text if the reader was there.
  following(change) {
    const scroller = this.#scroller;
    const follows = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 40;
    change();
    if (follows) scroller.scrollTop = scroller.scrollHeight;
  }
}
