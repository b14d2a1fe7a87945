// Converts Markdown to elements. Marked parses it; the elements and their texts are created here,
// one by one. HTML is never parsed: HTML in an answer is shown as text, and nothing is loaded or
// executed.

import './marked.js';
import { copyButton } from './copy.js';

const { marked } = globalThis;
marked.setOptions({ breaks: true, mangle: false });

// Marked takes a second for a paragraph of this length in which every mark opens something, and
// four times as long for one of twice the length.
const LONGEST_PARAGRAPH = 10000; // characters

const LINKS = ['http:', 'https:', 'mailto:'];
const ENTITIES = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#39;': "'" };

// Marked escapes the text of some tokens for HTML.
const unescape = (text) => text.replace(/&(?:amp|lt|gt|quot|#39);/g, (entity) => ENTITIES[entity]);

function make(name, ...content) {
  const element = document.createElement(name);
  element.append(...content);
  return element;
}

// Makes content that is wider than the answer scroll, also by keyboard.
function scrolling(element, name) {
  const box = make('div', element);
  box.className = 'scrolls';
  box.tabIndex = 0;
  box.setAttribute('role', 'group');
  box.setAttribute('aria-label', name);
  return box;
}

function linkOf(address, content) {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (!LINKS.includes(url?.protocol)) return content;
  const link = make('a', content);
  Object.assign(link, { href: url.href, title: url.href, target: '_blank', rel: 'noreferrer' });
  return link;
}

// Returns the blocks of `source`, such as paragraphs and lists. Throws an error if a paragraph is
// too long or nested too deeply.
export function blocksOf(source) {
  if (source.split(/\n\s*\n/).some(({ length }) => length > LONGEST_PARAGRAPH)) {
    throw new RangeError('a paragraph is too long');
  }
  return marked.lexer(source);
}

// Returns the elements of blocks. `show(text)` creates the nodes for a piece of text, and is called
// in the order of the source. Throws an error if they are nested too deeply.
export function elementsOf(blocks, show) {
  const all = (tokens) => {
    const fragment = new DocumentFragment();
    for (const token of tokens) fragment.append(build(token));
    return fragment;
  };
  const row = (name, cells, align) => make('tr', ...cells.map((cell, i) => {
    const element = make(name, all(cell.tokens));
    element.style.textAlign = align[i] ?? '';
    return element;
  }));
  const build = (token) => {
    switch (token.type) {
      case 'space': case 'def': return '';
      case 'br': case 'hr': return make(token.type);
      case 'em': case 'strong': case 'del': case 'blockquote':
        return make(token.type, all(token.tokens));
      case 'paragraph': return make('p', all(token.tokens));
      case 'heading': // cards have h2
        return make(`h${Math.min(6, token.depth + 2)}`, all(token.tokens));
      case 'codespan': return make('code', show(unescape(token.text)));
      case 'code': {
        const name = token.lang?.split(/\s/)[0] || 'code';
        const head = make('div', name, copyButton('Copy the code', () => token.text));
        head.className = 'code-head';
        const box = make('div', head, scrolling(make('pre', make('code', show(token.text))), name));
        box.className = 'code';
        return box;
      }
      case 'list': {
        const list = make(token.ordered ? 'ol' : 'ul', ...token.items.map((item) => make(
          'li', item.task ? (item.checked ? '☑ ' : '☐ ') : '', all(item.tokens))));
        if (token.ordered) list.start = token.start;
        return list;
      }
      case 'table': {
        const head = make('thead', row('th', token.header, token.align));
        const body = make('tbody', ...token.rows.map((cells) => row('td', cells, token.align)));
        return scrolling(make('table', head, body), 'table');
      }
      case 'link': return linkOf(unescape(token.href), all(token.tokens));
      case 'image': return linkOf(unescape(token.href), show(unescape(token.text)));
      case 'html': // block or inline
        return 'pre' in token ? make('p', show(token.raw)) : show(token.raw);
      default: // text, escape
        return token.tokens ? all(token.tokens) : show(unescape(token.text));
    }
  };
  return all(blocks);
}
