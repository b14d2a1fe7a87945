// Markdown that is still being written.

const FENCE = /^[ >]*(?:(?:[-*+]|\d{1,9}[.)]) +)*(`{3,}|~{3,})/;
// The beginning of a line that may become a list item, a heading, a fence or an underline.
const BEGINNING = /(^|\n)[ >]*(?:[-=*+#|]+|\d{1,9}[.)]|\d{1,2}|[`~]{1,2}) *$/;
// The end of an open fence: its first line, or the beginning of its last one.
const END_OF_FENCE = /(^|\n)[ >]*(?:[`~]{1,2}|(?:`{3,}|~{3,})[^\n]*)$/;
// What marks within a line do not reach across.
const BREAK = /\n[ >]*\n|\n(?=[ >]*(?:[-*+]|\d{1,9}[.)]|#{1,6}|\|) )/g;
const UNFINISHED_LINK = /!?(?<![\w\]])\[([^[\]]*)(?:\](?:\([^()\s]*)?)?$/;
const MARKS = /\\[^]|`+|\*{1,3}|__?|~~?/g;

function endsInFence(source) {
  let open = null;
  for (const line of source.split('\n')) {
    const mark = line.match(FENCE)?.[1];
    if (mark === undefined) continue;
    if (open === null) open = mark;
    else if (mark.startsWith(open)) open = null;
  }
  return open !== null;
}

// Closes the marks that `text` has opened, and leaves out one at its end that is unfinished.
function close(text) {
  const open = [];
  let code = null;
  for (const { 0: mark, index } of text.matchAll(MARKS)) {
    const before = text[index - 1] ?? ' ';
    const after = text[index + mark.length];
    if (mark[0] === '`') {
      if (code === mark) code = null;
      else if (code === null && after === undefined) text = text.slice(0, index);
      else code ??= mark;
    } else if (code === null && mark[0] !== '\\') {
      const marks = mark === '***' ? ['**', '*'] : [mark];
      const closes = marks.every((_, i) => marks.includes(open.at(-1 - i)));
      if (closes && before.trim() !== '') open.length -= marks.length;
      else if (after === undefined) text = text.slice(0, index);
      else if (mark !== '~' && after.trim() !== '' && /[\s([{"'“‘*_~>]/.test(before)) {
        open.push(...marks);
      }
    }
  }
  return text.trimEnd() + (code ?? '') + open.reverse().join('');
}

// Returns `source` with an end as it may become: a text that is cut anywhere looks as if it were
// complete.
export function completed(source) {
  if (endsInFence(source)) return source.replace(END_OF_FENCE, '$1').replace(/\n?$/, '\n');
  const text = source.replace(BEGINNING, '$1');
  const start = [...text.matchAll(BREAK)].at(-1)?.index ?? 0;
  return text.slice(0, start) + close(text.slice(start).replace(UNFINISHED_LINK, '$1'));
}
