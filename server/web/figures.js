// The figures of a generation, and the chart of acceptance by position in the draft.

const MIN_PLACES = 8;

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function formatSpeed(speed) {
  return speed >= 100 ? Math.round(speed).toLocaleString('en') : speed.toFixed(1);
}

export function formatTime(ms) {
  return ms >= 1000 ? formatSeconds(ms) : `${ms.toFixed(ms >= 100 ? 0 : 1)} ms`;
}

// Times that grow keep their width.
export const formatSeconds = (ms) => `${(ms / 1000).toFixed(2)} s`;

// Sums of a generation's chunks.
export class Meter {
  tokens = 0;
  rounds = 0;
  proposed = 0;
  accepted = 0;
  proposedAt = [];
  acceptedAt = [];
  firstTokenMs = null;
  speed = null; // tokens per second after the first token, without the time of the prompt
  decodeMs = 0; // after the prompt, as the server reports at the end
  speculation = null; // as the server reports at the end
  prompt = null; // { tokens, ms, speed } as the server reports; older ones report only `ms`

  #first = null; // { time, count }

  // `time` is in ms since the request was sent, by this page's clock.
  add(chunk, time) {
    const count = chunk.choices[0]?.token_ids.length ?? 0;
    if (count > 0) {
      this.tokens += count;
      this.firstTokenMs ??= time;
      this.#first ??= { time, count };
      const elapsed = time - this.#first.time;
      if (elapsed > 0) this.speed = ((this.tokens - this.#first.count) * 1000) / elapsed;
    }
    if (chunk.round) this.#addRound(chunk.round);
    if (chunk.timings) this.#addTimings(chunk.timings);
    this.speculation = chunk.speculation ?? this.speculation;
  }

  #addTimings(timings) {
    this.firstTokenMs = timings.ttft_ms;
    this.decodeMs = timings.decode_ms ?? 0;
    this.speed = timings.decode_tokens_per_second ?? timings.tokens_per_second;
    const ms = timings.prompt_ms ?? timings.prefill_ms;
    if (!(ms > 0)) return;
    const { prompt_tokens: tokens = null, prompt_tokens_per_second: speed = null } = timings;
    this.prompt = { tokens, ms, speed };
  }

  get idleReason() {
    return this.speculation?.idle_reason ?? null;
  }

  get acceptance() {
    return this.proposed > 0 ? `${Math.round((100 * this.accepted) / this.proposed)} %` : null;
  }

  // The figures in one line, shown next to the text.
  get summary() {
    const figures = [];
    if (this.proposed > 0) {
      const sources = this.speculation?.by_source ?? [];
      const counts = sources.map((of) => `${of.source} ${of.accepted} of ${of.proposed}`);
      const whole = counts.length > 0 ? counts.join(', ') : `${this.accepted} of ${this.proposed}`;
      figures.push(`${this.acceptance} of drafts accepted (${whole})`);
    }
    if (this.idleReason !== null) figures.push(this.idleReason);
    if (this.speed !== null) figures.push(`${formatSpeed(this.speed)} tokens/s`);
    if (this.prompt !== null) {
      const { tokens, ms, speed } = this.prompt;
      const count = tokens === 1 ? '1 token' : `${tokens} tokens`;
      const words = tokens === null ? 'prompt' : `prompt of ${count}`;
      const rate = speed === null ? '' : ` (${formatSpeed(speed)} tokens/s)`;
      figures.push(`${words} in ${formatTime(ms)}${rate}`);
    }
    return figures.join(' · ');
  }

  #addRound({ proposed, accepted }) {
    this.rounds += 1;
    this.proposed += proposed;
    this.accepted += accepted;
    for (let i = 0; i < proposed; ++i) {
      this.proposedAt[i] = (this.proposedAt[i] ?? 0) + 1;
      this.acceptedAt[i] = (this.acceptedAt[i] ?? 0) + (i < accepted ? 1 : 0);
    }
  }
}

export class FiguresView {
  #cells = Object.fromEntries(
    ['summary', 'speed', 'prompt-time', 'first-token', 'acceptance', 'per-round', 'tokens'].map(
      (id) => [id, document.getElementById(id)],
    ),
  );

  draw(meter) {
    const { tokens, rounds, prompt, firstTokenMs, speed } = meter;
    const show = (id, has, text) => setText(this.#cells[id], has ? text() : '–');
    setText(this.#cells.summary, meter.summary || '\u00a0');
    show('speed', speed !== null, () => formatSpeed(speed));
    show('prompt-time', prompt !== null, () => formatTime(prompt.ms));
    show('first-token', firstTokenMs !== null, () => formatTime(firstTokenMs));
    show('acceptance', meter.acceptance !== null, () => meter.acceptance);
    show('per-round', rounds > 0, () => (tokens / rounds).toFixed(2));
    show('tokens', true, () => String(tokens));
  }
}

export class BarsView {
  #element;
  #places = [];

  constructor(element) {
    this.#element = element;
    this.#setPlaces(MIN_PLACES);
  }

  #setPlaces(count) {
    while (this.#places.length < count) {
      const place = document.createElement('div');
      const value = document.createElement('span');
      const bar = document.createElement('div');
      const name = document.createElement('span');
      place.className = 'place';
      value.className = 'value';
      bar.className = 'bar';
      name.className = 'name';
      name.textContent = String(this.#places.length + 1);
      const fill = document.createElement('div');
      bar.append(fill);
      place.append(value, bar, name);
      this.#element.append(place);
      this.#places.push({ place, value, fill });
    }
    this.#places.slice(count).forEach(({ place }) => place.remove());
    this.#places.length = count;
    this.#element.classList.toggle('many', count > MIN_PLACES);
  }

  draw(meter) {
    this.#setPlaces(Math.max(MIN_PLACES, meter.proposedAt.length));
    this.#places.forEach(({ value, fill }, i) => {
      const percent = meter.proposedAt[i] ? (100 * meter.acceptedAt[i]) / meter.proposedAt[i] : null;
      setText(value, percent === null ? '' : String(Math.round(percent)));
      fill.style.transform = `scaleY(${(percent ?? 0) / 100})`;
    });
  }

  // Describes the chart in words, for screen readers.
  describe(meter) {
    const words = meter.proposedAt.map(
      (count, i) => `position ${i + 1}: ${Math.round((100 * meter.acceptedAt[i]) / count)} percent`,
    );
    this.#element.setAttribute('aria-label', words.length ? words.join(', ') : 'Nothing was drafted');
  }
}
