// The same request with and without drafts, and what was recorded of it played back.

const SHORTEST_PLAYBACK_MS = 6000; // of the slower one

const plainly = (body) => ({ ...body, speculation: { drafter: 'none' } });

// What is to run: drafts of the server's `drafter` there must be, and one seed for both.
export function requestsOf(body, drafter) {
  const draftTokens = body.speculation.draft_tokens || 'auto';
  const speculation = { ...body.speculation, drafter, draft_tokens: draftTokens };
  const seed = body.seed ?? Math.floor(Math.random() * 2 ** 32);
  const drafted = { ...body, seed, speculation };
  return { drafted, plain: plainly(drafted) };
}

// What a run left: its parts with their times, its ids, its meter's speed.
export class Recording {
  ids = [];
  frames = []; // { time, chunk, parts, tokens }
  speed = 0;

  add(chunk, time, parts, meter) {
    this.ids.push(...(chunk.choices[0]?.token_ids ?? []));
    this.frames.push({ time, chunk, parts, tokens: meter.tokens });
    this.speed = meter.speed;
  }

  get text() {
    return this.frames.flatMap(({ parts }) => parts.map(([, text]) => text)).join('');
  }

  get lastTime() {
    return this.frames.at(-1)?.time ?? 0;
  }
}

export function isSameText(a, b) {
  return a.ids.length === b.ids.length && a.ids.every((id, i) => id === b.ids[i]);
}

// Shows recordings at once, `factor` times as slow as they were.
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
