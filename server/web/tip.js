// Pointing at a corrected word, with a mouse, a finger or the arrow keys, shows what the draft had.

const GAP = 6; // pixels between a word and its tip

const tip = document.getElementById('tip');
let pointed = null; // the correction whose tip is shown

function describe(draft) {
  const words = draft.trim().replace(/\s*\n\s*/g, ' ↵ ');
  if (words !== '') return words;
  return draft === '' ? '(the end)' : draft.includes('\n') ? '(a new line)' : '(a space)';
}

function show(word) {
  hide();
  pointed = word;
  const name = document.createElement('span');
  name.textContent = 'The draft had ';
  const draft = document.createElement('b');
  draft.textContent = describe(word.dataset.draft);
  tip.replaceChildren(name, draft);
  tip.hidden = false;
  word.setAttribute('aria-describedby', tip.id);
  const at = word.getClientRects()[0];
  const { offsetWidth: width, offsetHeight: height } = tip;
  const left = Math.min(at.left, document.documentElement.clientWidth - width - GAP);
  const top = at.top > height + GAP ? at.top - height - GAP : at.bottom + GAP;
  tip.style.left = `${Math.max(GAP, left)}px`;
  tip.style.top = `${top}px`;
}

function hide() {
  pointed?.removeAttribute('aria-describedby');
  pointed = null;
  tip.hidden = true;
}

// Moves the focus to the next correction in the text that has it, or from its beginning on.
function step(event) {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const text = event.target.closest?.('.text');
  if (by === undefined || !text) return;
  const words = [...text.querySelectorAll('[data-draft]')].filter((word) => word.checkVisibility());
  const next = words.indexOf(event.target) + by;
  if (words.length === 0) return;
  event.preventDefault();
  words.at(next % words.length).focus();
}

export function prepareTips() {
  addEventListener('mouseover', ({ target }) => {
    if (target.dataset?.draft !== undefined) show(target);
    else if (!tip.contains(target) && document.activeElement !== pointed) hide();
  });
  addEventListener('click', ({ target }) => { // or a touch
    if (target.dataset?.draft !== undefined) show(target);
  });
  addEventListener('focusin', ({ target }) => {
    if (target.dataset?.draft !== undefined) show(target);
    else hide();
  });
  addEventListener('focusout', hide);
  addEventListener('scroll', hide, { capture: true, passive: true });
  addEventListener('keydown', (event) => {
    if (event.key === 'Escape') hide();
    else step(event);
  });
}
