// Draws the page of `tandem lab` (lab_page.h) from the report in it.
'use strict';

const { report, findings, roofs, pays } = JSON.parse(document.getElementById('report').textContent);

// ---- Texts ----

// A template's values are escaped, unless they are markup themselves; lists are joined.
class Markup {
  constructor(text) { this.text = text; }
}
function escape(value) {
  if (value instanceof Markup) return value.text;
  if (Array.isArray(value)) return value.map(escape).join('');
  return String(value).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt()};`);
}
const html = (texts, ...values) =>
  new Markup(texts.reduce((all, text, i) => all + escape(values[i - 1]) + text));

const fixed = (value, digits) => (value ?? 0).toFixed(digits);
// As ThreeDigits of tools/report.h.
function threeDigits(value) {
  if (value >= 999.5) return Math.round(value).toLocaleString('en-US');
  return String(Number((value < 1 ? Math.round(value * 1e3) / 1e3 : value ?? 0).toPrecision(3)));
}
const bytes = (value) =>
  value >= 1e9 ? `${threeDigits(value * 1e-9)} GB` : `${threeDigits(value * 1e-6)} MB`;
const bytesPerSecond = (rate) => `${threeDigits(rate * 1e-9)} GB/s`;
const percent = (share) => `${fixed(100 * share, 0)}\u00a0%`;
const nameOf = (model) => model.path.split('/').findLast((part) => part !== '') ?? 'the model';

// ---- Charts: SVG whose text stays as large as the page's ----
// A chart: { title: for screen readers, x, y: axes, series, mark: the meaning of a ring }.
// An axis: { title, isLog, base: of logarithmic ticks, atLeast: a value that it reaches }.
// Series: { form: 'dotted', 'dashed', 'limit' or 'dots', colour: 0 to 4, label, points }.
// A point: { x, y, title, label: next to it, where there is room, isMarked: with a ring }.

const WIDE = 720, NARROW = 360; // a wide chart has labels at the ends of lines, a narrow one a key
const LETTER = 6.6; // width of a letter at the size of labels, on average
const LINE = 15; // height of a line of text
const DOT = 4; // radius
const MAX_TICKS = 6;
const NUM_COLOURS = 5;

const widthOf = (label) => LETTER * Math.max(...label.split('\n').map((line) => line.length));
const overlap = (a, b) =>
  a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
const isIn = (a, b) =>
  b.left <= a.left && a.right <= b.right && b.top <= a.top && a.bottom <= b.bottom;

function linearTicks(high) {
  let step = 10 ** (Math.floor(Math.log10(high)) - 1);
  for (const factor of [2, 2.5, 2, 2, 2.5, 2]) {
    if (high / step < MAX_TICKS) break;
    step *= factor;
  }
  return Array.from({ length: Math.floor(high / step) + 1 }, (_, i) => i * step);
}

function logTicks(low, high, base) {
  let ticks;
  for (let step = base; ticks === undefined || ticks.length > MAX_TICKS; step *= base) {
    ticks = [];
    const first = Math.ceil(Math.log(low) / Math.log(step) - 1e-9);
    for (let tick = step ** first; tick <= high; tick *= step) ticks.push(tick);
  }
  if (ticks.length >= 3 || base !== 10) return ticks;
  // Less than two decades: add the values between.
  const decade = 10 ** Math.floor(Math.log10(low));
  return [1, 2, 5, 10, 20, 50, 100, 200, 500].map((factor) => factor * decade)
    .filter((tick) => low <= tick && tick <= high);
}

// Returns the scale of an axis, from values to pixels between `begin` and `end`.
function scaleOf({ isLog, base = 10, atLeast }, values, begin, end) {
  const shows = (value) => Number.isFinite(value) && (isLog ? value > 0 : value >= 0);
  const shown = [...values, atLeast].filter(shows);
  if (shown.length === 0) shown.push(1);
  const most = Math.max(...shown);
  const low = isLog ? Math.min(...shown) / 1.2 : 0;
  const high = isLog ? most * 1.2 : Math.max(most * 1.06, 1e-9);
  const shareOf = (value) =>
    isLog ? Math.log(value / low) / Math.log(high / low) : value / high;
  const of = (value) => begin + shareOf(value) * (end - begin);
  return { shows, of, ticks: isLog ? logTicks(low, high, base) : linearTicks(high) };
}

const hasDots = ({ form }) => form === 'dotted' || form === 'dots';
const classOf = ({ form, colour }) => form === 'limit' ? 'limit' : `c${colour}`;
const lineClassOf = (series) => `${classOf(series)}${hasDots(series) ? '' : ' dashed'} line`;

function text(x, y, anchor, classes, words) {
  return html`<text x="${fixed(x, 1)}" y="${fixed(y, 1)}" text-anchor="${anchor}" class="${
    classes}">${words}</text>`;
}
function line(x1, y1, x2, y2, classes) {
  return html`<line x1="${fixed(x1, 1)}" y1="${fixed(y1, 1)}" x2="${fixed(x2, 1)}" y2="${
    fixed(y2, 1)}" class="${classes}"/>`;
}
function circle(x, y, radius, classes, title = '') {
  return html`<circle cx="${fixed(x, 1)}" cy="${fixed(y, 1)}" r="${radius}" class="${classes}">${
    title && html`<title>${title}</title>`}</circle>`;
}

// Moves labels apart that would overlap.
function labelsOfLines(labelled, plot, y) {
  const labels = labelled.map((series) => {
    const lines = series.label.split('\n');
    const height = LINE * lines.length;
    return { series, lines, height, top: y.of(series.points.at(-1).y) - height / 2 };
  }).sort((a, b) => a.top - b.top);
  let free = 0;
  for (const label of labels) {
    label.top = Math.max(label.top, free);
    free = label.top + label.height;
  }
  let end = plot.bottom + LINE / 2;
  for (const label of [...labels].reverse()) {
    label.top = Math.min(label.top, end - label.height);
    end = label.top;
  }
  return labels.flatMap(({ series, lines, top }) => lines.map((words, i) =>
    text(plot.right + 8, top + 11 + i * LINE, 'start', classOf(series), words)));
}

// Puts each label where it covers no dot and no other label; leaves out one that does not fit.
function labelsOfPoints(shown, plot, x, y) {
  const gap = DOT + 4;
  const within = { left: plot.left + 2, top: plot.top - 8, right: plot.right + 12, bottom: plot.bottom };
  const taken = shown.filter(hasDots).flatMap(({ points }) => points.map((point) => {
    const left = x.of(point.x) - DOT, top = y.of(point.y) - DOT;
    return { left, top, right: left + 2 * DOT, bottom: top + 2 * DOT };
  }));
  return shown.flatMap((series) => series.points.map((point) => {
    if (!point.label) return '';
    const at = x.of(point.x), base = y.of(point.y), width = widthOf(point.label);
    const near = [[at - width / 2, base - gap - 2], [at - width / 2, base + gap + 10],
      [at + gap, base + 4], [at - gap - width, base + 4]];
    // Below the beginning of a limit, above its end.
    const along = [
      ...(point === series.points.at(-1) ? [[at - width - 2, base - 6], [at - width - 8, base + 16]]
        : [[at + 10, base + 10], [at + 4, base + 24]]),
      [at - width - 2, base + 24], [at + 4, base - 8]];
    for (const [left, bottom] of series.form === 'limit' ? along : near) {
      const box = { left, top: bottom - 11, right: left + width, bottom: bottom + 3 };
      if (!isIn(box, within) || taken.some((other) => overlap(box, other))) continue;
      taken.push(box);
      return text(left, bottom, 'start', classOf(series), point.label);
    }
    return '';
  }));
}

function drawing(chart, width) {
  const isWide = width === WIDE;
  const points = chart.series.flatMap((series) => series.points);
  const labelled = chart.series.filter(({ label, points }) => label && points.length > 0);
  const hasMarks = points.some(({ isMarked }) => isMarked);
  // The title of the y axis, the meaning of rings, and in a narrow chart the key.
  const linesAbove = 1 + (hasMarks ? 1 : 0) + (isWide ? 0 : labelled.length);
  const height = (isWide ? 320 : 260) + LINE * linesAbove;
  const labels = isWide ? labelled.map(({ label }) => widthOf(label) + 16) : [];
  const plot = { left: 56, top: 12 + LINE * linesAbove, right: width - Math.max(14, ...labels),
    bottom: height - 42 };
  const x = scaleOf(chart.x, points.map((point) => point.x), plot.left, plot.right);
  const y = scaleOf(chart.y, points.map((point) => point.y), plot.bottom, plot.top);
  const tickText = (value) =>
    value >= 1000 ? threeDigits(value) : String(Number(value.toPrecision(6)));
  const shown = chart.series.map((series) => (
    { ...series, points: series.points.filter((point) => x.shows(point.x) && y.shows(point.y)) }));
  const pathOf = ({ points }) => points.map((point, i) =>
    `${i === 0 ? 'M' : 'L'}${fixed(x.of(point.x), 1)} ${fixed(y.of(point.y), 1)}`).join('');
  const markY = LINE * (linesAbove + 0.1);
  return html`<svg viewBox="0 0 ${width} ${height}" width="${width}" role="img" aria-label="${
    chart.title}">${text(4, LINE - 2, 'start', 'axis', chart.y.title)}${
    y.ticks.map((tick) => [line(plot.left, y.of(tick), plot.right, y.of(tick), 'grid'),
      text(plot.left - 6, y.of(tick) + 4, 'end', 'axis', tickText(tick))])}${
    x.ticks.map((tick) => [line(x.of(tick), plot.bottom, x.of(tick), plot.bottom + 4, 'grid'),
      text(x.of(tick), plot.bottom + 18, 'middle', 'axis', tickText(tick))])}${
    line(plot.left, plot.bottom, plot.right, plot.bottom, 'grid')}${
    text((plot.left + plot.right) / 2, height - 6, 'middle', 'axis', chart.x.title)}${
    isWide ? '' : labelled.map((series, i) => [
      line(4, (2 + i) * LINE - 4, 22, (2 + i) * LINE - 4, lineClassOf(series)),
      text(28, (2 + i) * LINE, 'start', classOf(series), series.label.replaceAll('\n', ' '))])}${
    hasMarks ? [circle(12, markY - 4, 6, 'mark'), text(28, markY, 'start', 'marked', chart.mark)] : ''}${
    shown.map((series) => [
      series.form === 'dots' || series.points.length === 0 ? ''
        : html`<path d="${pathOf(series)}" class="${lineClassOf(series)}"/>`,
      !hasDots(series) ? '' : series.points.map((point) => [
        point.isMarked ? circle(x.of(point.x), y.of(point.y), 2 * DOT, 'mark') : '',
        circle(x.of(point.x), y.of(point.y), DOT, classOf(series), point.title)])])}${
    isWide ? labelsOfLines(labelled, plot, y) : ''}${labelsOfPoints(shown, plot, x, y)}</svg>`;
}

// ---- Marks ----

const AT_LIMIT = 1.02; // a measurement within this factor of its limit may be at the limit

// The least milliseconds that the limits allow for a row.
const leastMs = (row) =>
  Math.max(1e3 * row.bytes / roofs.reading, row.flops * row.ms / roofs.peak);
const isTooFast = (row) => row.ms * AT_LIMIT < leastMs(row);
const exceedsMemory = (row) => row.bytes_per_second > AT_LIMIT * roofs.memory ||
  row.flops > AT_LIMIT * roofs.peak;
// Returns why these rows are better than a limit.
function markOf(rows) {
  const varies = rows.some((row) => row.flops > AT_LIMIT * roofs.peak ||
    row.bytes_per_second > AT_LIMIT * (roofs.cache ?? Infinity));
  return varies ? 'above the limit as measured: it varies'
    : 'above the limit of memory: served by cache';
}

// Returns a curve of times with the least times that the limits allow.
function timeChart(title, rows, field, unit, x, y) {
  const limit = rows.map((row) => ({ x: row[field], y: leastMs(row) }));
  const points = rows.map((row) => ({ x: row[field], y: row.ms, isMarked: isTooFast(row),
    title: `${threeDigits(row[field])} ${unit}: ${threeDigits(row.ms)} ms, limited by ${row.bound}` }));
  return { title, x, y, mark: markOf(rows.filter(isTooFast)), series: [
    { form: 'limit', label: 'least time that\nthe limits allow', points: limit },
    { form: 'dotted', colour: 0, label: 'measured', points }] };
}

// ---- Sections: { paragraphs, charts, columns, rows, part: of the report } ----

// Columns: [heading, field, digits, factor]; without digits, whole numbers and texts.
const OPERATIONS = (digits) => ['operations per byte', 'intensity', digits];
const READ = ['GB/s', 'bytes_per_second', 2, 1e-9];
const COMPUTED = ['Gflop/s', 'flops', 1, 1e-9];
const RATE = ['tokens/s', 'tokens_per_second', 1];
const LIMITED = [['share of the limit', 'of_limit', 2], ['limited by', 'bound']];

const prefill = report.phases.prefill ?? [], decode = report.phases.decode ?? [];
const bestRate = Math.max(0, ...prefill.map((row) => row.tokens_per_second));
const passes = (report.passes.rows ?? []).map((row) => (
  { ...row, batch: row.batch ?? 1, intensity: row.flops / row.bytes_per_second }));
const single = passes.filter((row) => row.batch === 1);

function promptSection() {
  if (prefill.length === 0) return {};
  const last = prefill.at(-1);
  const paragraphs = [
    'Reading (prefill) sends the tokens of the prompt through the model together, so the weights ' +
    'are read once for hundreds of tokens. Where the curve is flat, reading the weights takes ' +
    'the time. Where it rises with the length, multiplying does.'];
  if (last.bound === 'arithmetic') {
    paragraphs.push(
      `A prompt of ${threeDigits(last.prompt_tokens)} tokens computes ${
        threeDigits(last.flops * 1e-9)} Gflop/s; this machine's ${report.target.products} ` +
      `multiply-adds could do ${threeDigits(roofs.peak * 1e-9)}.`);
  }
  return { paragraphs, rows: prefill, part: report.phases,
    columns: [['tokens', 'prompt_tokens'], ['ms', 'ms', 1], RATE, OPERATIONS(1), READ, COMPUTED,
      ...LIMITED],
    charts: [timeChart('Time to the first token by the length of the prompt', prefill,
      'prompt_tokens', 'tokens', { title: 'tokens of the prompt', isLog: true, base: 2 },
      { title: 'time to the first token (ms)', isLog: true })] };
}

function tokenSection() {
  if (decode.length === 0) return {};
  const first = decode[0], last = decode.at(-1);
  const hasCache = roofs.cache !== null;
  const paragraphs = [
    'Writing (decode) needs a pass of its own for every token, because each depends on the one ' +
    `before, and every pass reads all weights. Memory gives ${bytesPerSecond(roofs.memory)}${
      hasCache ? `, the last-level cache ${bytesPerSecond(roofs.cache)}` : ''}${
      hasCache && roofs.is_cached ? ' (it is large enough for these weights)' : ''}` +
    `; the multiply-adds alone would take ${
      percent(first.flops / Math.max(roofs.peak, 1))} of the time.`];
  if (decode.length > 1) {
    const perToken = report.target.kv_bytes_per_token;
    paragraphs.push(
      `A pass also reads the keys and values of all tokens before it, ${
        threeDigits(perToken * 1e-3)} KB each. At position ${threeDigits(last.position)} these ` +
      `are ${bytes(perToken * last.position)}, and a token takes ${fixed(last.ms / first.ms, 2)} ` +
      `times as long as at position ${threeDigits(first.position)}.`);
  }
  return { paragraphs, rows: decode, part: report.phases,
    columns: [['position', 'position'], ['ms', 'ms', 2], RATE, ['MB read', 'bytes', 1, 1e-6],
      OPERATIONS(2), READ, ...LIMITED],
    charts: [timeChart('Time per token by its position', decode, 'position', 'tokens before',
      { title: 'position of the token' }, { title: 'time per token (ms)' })] };
}

function passSection() {
  if (passes.length === 0) return {};
  const several = passes.filter((row) => row.batch > 1);
  const chart = timeChart('Time of a pass by its number of tokens', single, 'rows', 'tokens',
    { title: 'tokens in the pass', isLog: true, base: 2 },
    { title: 'time of the pass (ms)', isLog: true });
  chart.series[1].label = 'tokens of\none sequence';
  if (several.length > 1) {
    const points = several.map((row) => ({ x: row.rows * row.batch, y: row.ms,
      isMarked: isTooFast(row),
      title: `${threeDigits(row.rows * row.batch)} sequences: ${threeDigits(row.ms)} ms` }));
    points.at(-1).label = `a batch of ${threeDigits(points.at(-1).x)}`;
    chart.series.push({ form: 'dotted', colour: 1, points });
  }
  return { rows: passes, part: report.passes, charts: [chart],
    columns: [['sequences', 'batch'], ['tokens of each', 'rows'], ['ms', 'ms', 2],
      ['times one token', 'of_one_row', 2], OPERATIONS(1), READ, COMPUTED, ...LIMITED],
    paragraphs: [
      'A pass reads the weights once, however many tokens it computes. More tokens are almost free ' +
      'until arithmetic takes longer than reading; from there on the time rises with their number.',
      "Three things live on this: a prompt, the check of a draft's tokens (verification), and a " +
      'batch, in which a server writes one token for each of several requests. A batch gains a ' +
      'little less, because each request has keys and values of its own, here of ' +
      `${threeDigits(passes[0].context)} tokens.`] };
}

function rooflineSection() {
  const rows = [], series = [];
  const add = (form, colour, of, what, field) => {
    if (of.length === 0) return;
    series.push({ form, colour, points: of.map((row, i) => {
      const name = `${what} ${threeDigits(row[field])}`;
      rows.push({ ...row, what: name });
      return { x: row.intensity, y: row.flops * 1e-9, isMarked: exceedsMemory(row),
        title: `${name}: ${threeDigits(row.flops * 1e-9)} Gflop/s, ${
          bytesPerSecond(row.bytes_per_second)}`,
        // In a long line every third point, and the last.
        label: i % 3 === 0 || i === of.length - 1 ? name : '' };
    }) });
  };
  // The rows between the ends hardly differ in intensity.
  const ends = (of) => of.filter((_, i) => i === 0 || i === of.length - 1);
  add('dots', 1, ends(decode), 'token at', 'position');
  add('dotted', 0, single, 'pass of', 'rows');
  add('dots', 2, ends(prefill), 'prompt of', 'prompt_tokens');
  if (rows.length === 0) return {};
  const { memory, cache, peak } = roofs;
  const intensities = rows.map((row) => row.intensity);
  const least = Math.min(...intensities) / 2;
  const most = 2 * Math.max(...intensities, peak / roofs.reading);
  const at = (x, rate, label = '') => ({ x, y: x * rate * 1e-9, label });
  const limits = [[at(least, memory, `memory ${bytesPerSecond(memory)}`), at(peak / memory, memory)]];
  if (cache !== null) {
    limits.push([at(least, cache),
      at(peak / cache, cache, `last-level cache ${bytesPerSecond(cache)}`)]);
  }
  const ridge = peak / (cache ?? memory);
  limits.push([{ x: ridge, y: peak * 1e-9 }, { x: most, y: peak * 1e-9,
    label: `${report.target.products} multiply-adds ${threeDigits(peak * 1e-9)} Gflop/s` }]);
  series.unshift(...limits.map((points) => ({ form: 'limit', points })));
  return { rows, part: single.length === 0 ? report.phases : report.passes,
    columns: [['what', 'what'], OPERATIONS(2), COMPUTED, READ],
    charts: [{ title: "Operations per second by operations per byte, under the machine's limits",
      x: { title: 'operations per byte read', isLog: true }, y: { title: 'Gflop/s', isLog: true },
      series, mark: markOf(rows.filter(exceedsMemory)) }],
    paragraphs: [
      "This is the roofline. A point's place from left to right is its arithmetic intensity, the " +
      'operations that it does for each byte it reads; its height is how many it does in a second. ' +
      'The roof is what the machine can do: on the left the speed of reading limits, on the right ' +
      'the peak of multiply-adds. The line is a pass of more and more tokens.',
      'More tokens in a pass do more with the same bytes, so they move a point to the right and, ' +
      'as long as reading limits it, up. A multiply-add counts as two operations.'] };
}

const GAIN = { title: 'speed of writing, plain = 1' };

// Speed-up by draft length, a line for each task.
function gainByLength({ tasks }) {
  const lines = tasks.map(({ task, runs }, i) => (
    { form: 'dotted', colour: i % NUM_COLOURS, label: task, points: runs.map((run) => (
      { x: run.draft_tokens, y: run.gain,
        title: `${task}, k = ${run.draft_tokens}: ${fixed(run.gain, 2)}` })) }));
  const longest = Math.max(0, ...lines.flatMap(({ points }) => points.map(({ x }) => x)));
  const plain = { form: 'limit', label: 'plain', points: [{ x: 0, y: 1 }, { x: longest, y: 1 }] };
  return { title: 'Speed-up by the number of tokens that the draft proposes',
    x: { title: 'draft tokens per pass, k' }, y: GAIN, series: [plain, ...lines] };
}

// Speed-up by the share of draft tokens kept: the points of all tasks, and for each k the line that
// the measured costs predict, (1 + k share) / (1 + k cost).
function gainByShare({ all }, rows, cost) {
  const lengths = all.map((run) => run.draft_tokens).filter((k) => k > 0);
  const series = lengths.flatMap((k, i) => {
    const colour = i % NUM_COLOURS;
    const gain = (share) => (1 + k * share) / (1 + k * cost);
    const points = rows.filter((row) => row.draft_tokens === k).map((row) => (
      { x: 100 * row.acceptance_rate, y: row.gain, title: `${row.task}, k = ${k}: ${
        percent(row.acceptance_rate)} kept, ${fixed(row.gain, 2)}` }));
    return [{ form: 'dashed', colour, label: `k = ${k}`,
      points: [{ x: 0, y: gain(0) }, { x: 100, y: gain(1) }] }, { form: 'dots', colour, points }];
  });
  return { title: 'Speed-up by the share of draft tokens that are kept', y: GAIN, series,
    x: { title: "share of the draft's tokens that are kept (%)", atLeast: 95 } };
}

function speculationSection() {
  const part = report.speculation;
  if (report.draft === null) {
    return { paragraphs: ['A draft is a small model whose tokens the large one checks, several in ' +
      'one pass. Give one with -md: tandem lab -m TARGET -md DRAFT.'] };
  }
  if (part?.error) return { paragraphs: [part.error] };
  if (!part?.all?.length) return {};
  const { step_cost: step, row_cost: row } = part;
  const cost = step + row;
  const rows = part.tasks.flatMap(({ task, runs }) => runs.map((run) => ({ task, ...run })));
  return { rows, part, charts: [gainByLength(part), gainByShare(part, rows, cost)],
    columns: [['task', 'task'], ['k', 'draft_tokens'], ['times plain', 'gain', 2], RATE,
      ['share kept', 'acceptance_rate', 2], ['proposed', 'proposed'], ['kept', 'accepted']],
    paragraphs: [
      `Speculative decoding fills the passes that wait for memory: ${nameOf(report.draft)} guesses ` +
      `the next k tokens, and one pass of ${nameOf(report.target)} checks them all. Guesses that ` +
      'it would have written itself are kept, so the text stays the same.',
      part.verdict.replaceAll('-k ', '\u2011k\u00a0'), // the option stays in one line
      `A guess costs ${fixed(cost, 2)} of a plain pass: ${fixed(step, 2)} for the draft's step and ${
        fixed(row, 2)} for the row that checks it. In the second picture the lines are what these ` +
      `costs predict, (1 + k share) / (1 + ${fixed(cost, 2)} k), and all meet at 1: a draft pays ` +
      `where more than ${percent(cost)} of its tokens are kept.`] };
}

// ---- The page ----

function cellOf(row, [, field, digits, factor = 1]) {
  const value = row[field];
  if (value === undefined || digits === undefined) return value ?? '';
  return Number.isFinite(value) ? fixed(value * factor, digits) : '-';
}

function sectionOf({ paragraphs = [], charts = [], columns, rows, part }, i) {
  const busy = part?.disturbed ? html`<p class="error">Disturbed: other programs took ${
    percent(part.share_of_others)} of the processors' time while this was measured. Measure again
    when the machine is idle.</p>` : '';
  return html`<section><div class="text"><h2>${findings[i]}</h2>${
    paragraphs.map((paragraph) => html`<p>${paragraph}</p>`)}${busy}</div><figure>${
    charts.map((chart) => html`<div class="wide">${drawing(chart, WIDE)}</div><div class="narrow">${
      drawing(chart, NARROW)}</div>`)}${
    rows ? html`<details><summary>The figures</summary><div class="scroll"><table><thead><tr>${
      columns.map(([heading]) => html`<th scope="col">${heading}</th>`)}</tr></thead><tbody>${
      rows.map((row) => html`<tr>${
        columns.map((column) => html`<td>${cellOf(row, column)}</td>`)}</tr>`)
    }</tbody></table></div></details>` : ''}</figure></section>`;
}

// The four figures to remember.
function tiles() {
  const figures = [];
  if (prefill.length > 0 && decode.length > 0) {
    const written = decode[0].tokens_per_second;
    figures.push([threeDigits(bestRate), 'tokens read in a second'],
      [threeDigits(written), 'tokens written in a second'],
      [fixed(bestRate / written, 1), 'times faster to read than to write']);
  }
  if (pays) figures.push([fixed(report.speculation.gain, 2), 'times faster to write with a draft']);
  return figures.map(([value, what]) => html`<li><b>${value}</b> ${what}</li>`);
}

function modelText(model) {
  if (model === null) return 'none';
  return `${model.path}: ${threeDigits(model.parameters * 1e-6)} million parameters, ${
    model.dtype}, ${bytes(model.bytes_read_per_pass)} of matrices read by a pass`;
}

function about() {
  const cache = roofs.cache === null ? '; the last-level cache reads no faster for this process'
    : `, last-level cache ${bytesPerSecond(roofs.cache)}`;
  return Object.entries({
    Machine: `${report.machine.cpu}, ${report.machine.device}`,
    Limits: `memory ${bytesPerSecond(roofs.memory)}${cache}, ${report.target.products} multiply-adds ${
      threeDigits(roofs.peak * 1e-9)} Gflop/s, measured between the runs`,
    Target: modelText(report.target),
    Draft: modelText(report.draft),
    Method: 'Medians of interleaved samples with random prompts; the speed-up from answers to ' +
      'five tasks at temperature 0, plain and with drafts in turn',
    Command: report.command,
    Date: `${report.date}, ${fixed(report.seconds, 0)} s${
      report.interrupted ? ', ended by Ctrl-C' : ''}`,
    Program: report.program,
  }).map(([term, words]) => html`<dt>${term}</dt><dd>${words}</dd>`);
}

const fill = (id, markup) => { document.getElementById(id).innerHTML = escape(markup); };
document.title = `tandem lab: ${nameOf(report.target)}`;
fill('title', `What limits ${nameOf(report.target)} on this machine`);
fill('tiles', tiles());
fill('findings', [promptSection(), tokenSection(), passSection(), rooflineSection(),
  speculationSection()].map(sectionOf));
fill('about', about());
