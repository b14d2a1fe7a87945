// The pages of a cache: one square each, with a place for each token.

import { KINDS } from './parts.js';

const PLACE = 4; // pixels; one more between two places
const PADDING = 2;
const GAP = 5; // between pages
const FLASH_MS = 700;

// The content of a generation's cache: the kind of token in each place, and the rolled-back places.
export class CacheModel {
  kinds = []; // by place
  length = 0;
  rolledBack = 0;
  flashes = new Map(); // place -> time of the rollback

  // Sets the length to `length` tokens. The `rejected` places after them were just rolled back.
  setLength(length, rejected, now) {
    this.length = length;
    this.rolledBack += rejected;
    for (let i = 0; i < rejected; ++i) this.flashes.set(length + i, now);
  }
}

// Both caches of a generation, derived from the reports of its rounds.
export class CachePair {
  target = new CacheModel();
  draft = new CacheModel();
  #isParallel;
  #tokens = null; // prompt and output

  // `isParallel`: whether the draft model reads masks, which leave its cache all at once.
  constructor(isParallel = false) {
    this.#isParallel = isParallel;
  }

  add(chunk, now) {
    if (!chunk.round) return;
    const { token_ids: ids, provenance } = chunk.choices[0];
    const { proposed, accepted } = chunk.round;
    // The last token is not in any cache yet.
    if (this.#tokens === null) {
      this.#tokens = chunk.round.target_cached_tokens + 1 - ids.length;
      const prompt = new Array(this.#tokens).fill('prompt');
      this.target.kinds = prompt;
      this.draft.kinds = this.target.kinds;
    }
    for (const letter of provenance) this.target.kinds.push(KINDS[letter]);
    this.#tokens += ids.length;
    this.target.setLength(chunk.round.target_cached_tokens, proposed - accepted, now);
    // The draft never read the last token that it proposed. A parallel one read masks in place of
    // the others, kept or not.
    const dropped = this.#isParallel ? proposed - 1 : proposed - accepted - 1;
    const draftRejected = Math.max(0, dropped);
    const isDrafting = chunk.round.draft_cached_tokens > 0;
    this.draft.setLength(chunk.round.draft_cached_tokens, isDrafting ? draftRejected : 0, now);
  }
}

export class PagesView {
  #canvas;
  #words;
  #pageSize;
  #colours = {};

  constructor(canvas, words, pageSize) {
    this.#canvas = canvas;
    this.#words = words;
    this.#pageSize = pageSize;
    this.readColours();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ['prompt', 'accepted', 'correction', 'bonus', 'plain', 'rejected', 'page']) {
      this.#colours[name] = style.getPropertyValue(`--place-${name}`).trim();
    }
  }

  // Returns whether an animation is still running.
  draw(cache, now) {
    const { context, width, height } = this.#fit();
    const side = Math.ceil(Math.sqrt(this.#pageSize));
    const size = side * (PLACE + 1) - 1 + 2 * PADDING;
    const columns = Math.max(1, Math.floor((width + GAP) / (size + GAP)));
    const rows = Math.max(1, Math.floor((height + GAP) / (size + GAP)));
    const used = Math.ceil(cache.length / this.#pageSize);
    // For a long cache, its end is shown.
    const hidden = Math.max(0, Math.ceil((used + 1) / columns) - rows) * columns;
    for (const [place, when] of cache.flashes) {
      if (now - when > FLASH_MS) cache.flashes.delete(place);
    }
    context.clearRect(0, 0, width, height);
    for (let i = 0; i < rows * columns; ++i) {
      context.save();
      context.translate((i % columns) * (size + GAP), Math.floor(i / columns) * (size + GAP));
      this.#drawPage(context, cache, hidden + i, { side, size, isUsed: hidden + i < used, now });
      context.restore();
    }
    const words = cache.length === 0 ? 'empty'
      : `${cache.length} tokens in ${used} ${used === 1 ? 'page' : 'pages'}, ` +
        `${cache.rolledBack} rolled back`;
    if (this.#words.textContent !== words) this.#words.textContent = words;
    return cache.flashes.size > 0;
  }

  #drawPage(context, cache, page, { side, size, isUsed, now }) {
    context.strokeStyle = this.#colours.page;
    context.globalAlpha = isUsed ? 1 : 0.4;
    context.strokeRect(0.5, 0.5, size - 1, size - 1);
    for (let i = 0; i < this.#pageSize; ++i) {
      const place = page * this.#pageSize + i;
      const isHeld = place < cache.length;
      const flash = cache.flashes.get(place);
      if (!isHeld && flash === undefined) continue;
      const x = PADDING + (i % side) * (PLACE + 1);
      const y = PADDING + Math.floor(i / side) * (PLACE + 1);
      if (isHeld) {
        context.globalAlpha = 1;
        context.fillStyle = this.#colours[cache.kinds[place]] ?? this.#colours.plain;
        context.fillRect(x, y, PLACE, PLACE);
      }
      if (flash !== undefined) {
        context.globalAlpha = Math.max(0, 1 - (now - flash) / FLASH_MS);
        context.fillStyle = this.#colours.rejected;
        context.fillRect(x - 1, y - 1, PLACE + 2, PLACE + 2);
      }
    }
  }

  // Makes the canvas as large as its area in device pixels.
  #fit() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const ratio = devicePixelRatio;
    if (this.#canvas.width !== Math.round(width * ratio)) this.#canvas.width = Math.round(width * ratio);
    if (this.#canvas.height !== Math.round(height * ratio)) {
      this.#canvas.height = Math.round(height * ratio);
    }
    const context = this.#canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return { context, width, height };
  }
}
