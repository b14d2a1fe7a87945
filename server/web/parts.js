// The pieces of an answer: parts, each [kind, text] or, for corrections, [kind, text, draft], where
// `draft` is the text that the draft had in its place.

export const KINDS = { a: 'accepted', c: 'correction', b: 'bonus', p: 'plain' };

// Assigns the text of a stream to its tokens. The server holds back incomplete characters and
// possible stop strings, so the text of a chunk may belong to tokens of earlier chunks.
export class TextByToken {
  #waiting = []; // { mark: [kind, draft], length }: tokens whose text has not arrived completely
  #last = ['plain'];

  // Returns the parts of this chunk's text.
  partsOf(choice) {
    const drafts = [...(choice.rejected_texts ?? [])];
    (choice.token_texts ?? []).forEach(({ length }, i) => {
      const kind = KINDS[choice.provenance[i]];
      const mark = kind === 'correction' && drafts.length > 0 ? [kind, drafts.shift()] : [kind];
      this.#waiting.push({ mark, length });
    });
    const parts = [];
    let text = choice.text;
    while (text !== '') {
      const token = this.#waiting[0] ?? { mark: this.#last, length: text.length };
      const length = Math.min(token.length, text.length);
      const [kind, ...draft] = token.mark;
      if (length > 0) parts.push([kind, text.slice(0, length), ...draft]);
      this.#last = token.mark;
      text = text.slice(length);
      token.length -= length;
      if (token.length === 0) this.#waiting.shift();
    }
    return parts;
  }
}

export const textOf = (parts) => parts.map(([, text]) => text).join('');

// Joins adjacent parts that are marked alike.
export function merge(parts) {
  const merged = [];
  for (const [kind, text, ...draft] of parts) {
    const last = merged.at(-1);
    if (last?.[0] === kind && last[2] === draft[0]) last[1] += text;
    else merged.push([kind, text, ...draft]);
  }
  return merged;
}

// Returns the nodes that show the parts. A correction can be pointed at (tip.js); the space before
// it is not part of it.
export function nodesOf(parts) {
  return merge(parts).flatMap(([kind, text, draft]) => {
    const span = document.createElement('span');
    span.className = kind;
    span.textContent = text;
    if (draft === undefined || text.trim() === '') return [span];
    span.textContent = text.trimStart();
    span.dataset.draft = draft;
    span.tabIndex = -1;
    const space = text.slice(0, text.length - span.textContent.length);
    return space === '' ? [span] : [space, span];
  });
}
