// Text, coloured by where its tokens came from.

export const KINDS = { a: 'accepted', c: 'correction', b: 'bonus', p: 'plain' };

// Gives the text of a stream to the tokens it is of. The server lets out characters and possible
// stop strings whole, so that a chunk's text may be of tokens of the chunks before it.
export class TextByToken {
  #waiting = []; // { kind, length }: tokens whose text is not all out
  #last = 'plain';

  // The parts of this chunk's text: [kind, text] each.
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

// Shows parts in an element, behind a prompt where there is one; draw() is for once a frame.
export class TextView {
  #element;
  #scroller; // the element, or one around it
  #prompt;
  #parts = [];

  constructor(element, { scroller = element, prompt = '' } = {}) {
    this.#element = element;
    this.#scroller = scroller;
    this.#prompt = prompt;
  }

  clear() {
    this.#parts = [];
    this.#element.replaceChildren();
    if (this.#prompt !== '') {
      const given = document.createElement('span');
      given.className = 'prompt';
      given.textContent = this.#prompt;
      this.#element.append(given);
    }
    if (this.#scroller === this.#element) this.#element.scrollTop = 0;
  }

  add(parts) {
    this.#parts.push(...parts);
  }

  draw() {
    if (this.#parts.length === 0) return;
    const scroller = this.#scroller;
    const follows = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 40;
    const fragment = document.createDocumentFragment();
    let span = null;
    for (const [kind, text] of this.#parts) {
      if (span?.className !== kind) {
        span = document.createElement('span');
        span.className = kind;
        fragment.append(span);
      }
      span.append(text);
    }
    this.#parts = [];
    this.#element.append(fragment);
    if (follows) scroller.scrollTop = scroller.scrollHeight;
  }
}
