// Sends the same request with and without drafts, plays back the recordings, and judges them.

import { formatSeconds } from './figures.js';
import { merge } from './parts.js';

const SHORTEST_PLAYBACK_MS = 6000; // of the slower run
const FEW_ACCEPTED = 0.5; // of the drafted tokens
const MIN_PASSES = 20; // that show whether the machine is busy
const BUSY_SPREAD = 1.5; // the ninth of ten plain passes, in median ones
const METHOD = 'Measured one after the other on this machine, after a token of each that does ' +
  'not count; then played back side by side.';
const REMEMBERED = 'Most drafts came from an earlier answer with the same words.';

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

// The recording of a run: its parts with their times, and its token ids.
export class Recording {
  ids = [];
  frames = []; // { time, chunk, parts, tokens }

  add(chunk, time, parts, meter) {
    this.ids.push(...(chunk.choices[0]?.token_ids ?? []));
    this.frames.push({ time, chunk, parts, tokens: meter.tokens });
  }

  get parts() {
    return merge(this.frames.flatMap(({ parts }) => parts));
  }

  get lastTime() {
    return this.frames.at(-1)?.time ?? 0;
  }
}

// ---- The verdict ----

function isSameText(a, b) {
  return a.ids.length === b.ids.length && a.ids.every((id, i) => id === b.ids[i]);
}

// How much longer than the median pass one of ten passes took.
function spreadOf({ frames }) {
  const times = frames.filter(({ tokens }, i) => tokens > (frames[i - 1]?.tokens ?? 0))
    .map(({ time }) => time);
  const spans = times.slice(1).map((time, i) => time - times[i]).sort((a, b) => a - b);
  if (spans.length < MIN_PASSES) return 1;
  return spans[Math.floor(0.9 * spans.length)] / Math.max(spans[Math.floor(spans.length / 2)], 0.1);
}

// Says why drafts did not pay, from the reports of both answers.
function reasonsOf(drafted, plain) {
  const { proposed, accepted, rounds, idleReason, speculation } = drafted.meter;
  const reasons = [];
  if (idleReason !== null) {
    reasons.push(`${idleReason[0].toUpperCase()}${idleReason.slice(1)}`);
  } else if (proposed === 0) {
    reasons.push('Nothing was drafted');
  }
  if (proposed > 0 && accepted < FEW_ACCEPTED * proposed) {
    reasons.push(`Only ${accepted} of ${proposed} drafted tokens were kept`);
  }
  const ofRound = drafted.meter.decodeMs / rounds;
  const ofPass = plain.meter.decodeMs / plain.meter.rounds;
  if (proposed > 0 && ofRound > 0 && ofPass > 0) {
    const gain = (drafted.meter.tokens / rounds).toFixed(2);
    const cost = (ofRound / ofPass).toFixed(2);
    reasons.push(
      `A round with drafts took ${cost} times as long as a plain pass, for ${gain} tokens`);
  }
  if (speculation?.probes > 0) {
    const rest = speculation.probes === 1 ? 'round only tested' : 'rounds only tested';
    reasons.push(`${speculation.probes} ${rest} whether drafts pay, for ` +
      `${speculation.probe_ms.toFixed(0)} ms`);
  }
  const spread = spreadOf(plain.recording);
  if (spread > BUSY_SPREAD) {
    reasons.push('The machine was busy: one of ten plain passes took ' +
      `${spread.toFixed(1)} times as long as most`);
  }
  return reasons;
}

// Whether most kept drafts were read off an earlier text of the server's.
function isRemembered({ meter }) {
  const of = meter.speculation?.by_source?.find(({ source }) => source === 'memory');
  return of !== undefined && 2 * of.accepted > meter.accepted;
}

// Judges both runs of a race, { meter, recording } each, of the request `body`. Returns two texts:
// the result, and how it was measured or, if drafts did not pay, why.
export function verdictOf(drafted, plain, body) {
  const seconds = [drafted, plain].map(({ recording }) => formatSeconds(recording.lastTime));
  const rateOf = ({ meter, recording }) => meter.tokens / Math.max(recording.lastTime, 0.1);
  const factor = rateOf(drafted) / Math.max(rateOf(plain), 1e-9);
  const rule = body.speculation.verifier;
  const mayDiffer = body.temperature !== 0 && (rule === 'block' || rule === 'token');
  const isSame = isSameText(drafted.recording, plain.recording);
  const same = isSame ? 'Both texts are identical, token for token.'
    : mayDiffer ? `The texts differ: ${rule} keeps their distribution, not the draws of the seed.`
    : 'The texts differ.';
  const times = seconds.join(' against ');
  const words = `${factor.toFixed(2)} times as fast with drafts: ${times}. ${same}`;
  const reasons = factor < 1 ? reasonsOf(drafted, plain) : [];
  const method = isRemembered(drafted) ? `${METHOD} ${REMEMBERED}` : METHOD;
  return { words, reason: reasons.length > 0 ? `${reasons.join('. ')}.` : method };
}

// ---- Playback ----

// Shows several recordings at the same time, slowed down by `factor`.
export class Playback {
  #lanes; // { recording, view, onFrame(frame, now), onTime(ms), next }
  #start = null;
  factor;

  constructor(lanes) {
    this.#lanes = lanes.map((lane) => ({ ...lane, next: 0 }));
    const longest = Math.max(...lanes.map(({ recording }) => recording.lastTime));
    this.factor = Math.max(1, SHORTEST_PLAYBACK_MS / Math.max(1, longest));
  }

  // The time that is shown now, in ms of the recordings.
  timeAt(now) {
    this.#start ??= now;
    return (now - this.#start) / this.factor;
  }

  // Returns whether there is more to show.
  draw(now) {
    return this.#showUntil(this.timeAt(now), now);
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
      lane.onTime(Math.min(time, lane.recording.lastTime));
      lane.view.draw();
      hasMore ||= lane.next < frames.length;
    }
    return hasMore;
  }
}
