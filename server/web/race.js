// Sends the same request with and without drafts, and plays back the recordings.

import { merge } from './text.js';

const SHORTEST_PLAYBACK_MS = 6000; // of the slower run

const plainly = (body) => ({ ...body, speculation: { drafter: 'none' } });

// Returns both requests of a race, with the same seed. `drafter` is used if the form selects none.
export function requestsOf(body, drafter) {
  const chosen = body.speculation.drafter;
  const draftTokens = body.speculation.draft_tokens || 'auto';
  const speculation = {
    ...body.speculation,
    drafter: chosen === 'none' ? drafter : chosen,
    draft_tokens: draftTokens,
  };
  const seed = body.seed ?? Math.floor(Math.random() * 2 ** 32);
  const drafted = { ...body, seed, speculation };
  return { drafted, plain: plainly(drafted) };
}

// The recording of a run: its parts with their times, its token ids and its speed.
export class Recording {
  ids = [];
  frames = []; // { time, chunk, parts, tokens }
  speed = 0;

  add(chunk, time, parts, meter) {
    this.ids.push(...(chunk.choices[0]?.token_ids ?? []));
    this.frames.push({ time, chunk, parts, tokens: meter.tokens });
    this.speed = meter.speed;
  }

  get parts() {
    return merge(this.frames.flatMap(({ parts }) => parts));
  }

  get lastTime() {
    return this.frames.at(-1)?.time ?? 0;
  }
}

export function isSameText(a, b) {
  return a.ids.length === b.ids.length && a.ids.every((id, i) => id === b.ids[i]);
}

// Shows several recordings at the same time, slowed down by `factor`.
export class Playback {
  #lanes; // { recording, view, onFrame(frame, now), next }
  #start = null;
  factor;

  constructor(lanes) {
    this.#lanes = lanes.map((lane) => ({ ...lane, next: 0 }));
    const longest = Math.max(...lanes.map(({ recording }) => recording.lastTime));
    this.factor = Math.max(1, SHORTEST_PLAYBACK_MS / Math.max(1, longest));
  }

  // Returns whether there is more to show.
  draw(now) {
    this.#start ??= now;
    return this.#showUntil((now - this.#start) / this.factor, now);
  }

  finish(now) {
    this.#showUntil(Infinity, now);
    for (const { view } of this.#lanes) view.finish();
  }

  #showUntil(time, now) {
    let hasMore = false;
    for (const lane of this.#lanes) {
      const { frames } = lane.recording;
      while (lane.next < frames.length && frames[lane.next].time <= time) {
        const frame = frames[lane.next++];
        lane.view.add(frame.parts);
        lane.onFrame(frame, now);
      }
      lane.view.draw();
      hasMore ||= lane.next < frames.length;
    }
    return hasMore;
  }
}
