// Buttons, and copying to the clipboard.

const COPIED_MS = 1500;

// The clipboard is available only to pages from https or from this machine. Others copy a
// selection.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const { activeElement } = document;
  const area = document.createElement('textarea');
  area.value = text;
  area.className = 'unseen';
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand('copy');
  area.remove();
  activeElement?.focus({ preventScroll: true });
  if (!isCopied) throw new Error('not copied');
}

export function smallButton(text, label, onClick, classes = '') {
  const button = document.createElement('button');
  button.type = 'button';
  button.className = `tiny ${classes}`;
  button.textContent = text;
  button.setAttribute('aria-label', label);
  button.addEventListener('click', onClick);
  return button;
}

// Returns a button that copies the result of `text()`, and shows whether that succeeded.
export function copyButton(label, text) {
  const button = smallButton('Copy', label, async () => {
    const words = await copy(text()).then(() => 'Copied', () => 'Not copied');
    button.textContent = words;
    document.getElementById('status').textContent = `${words}.`; // screen readers announce it
    setTimeout(() => { button.textContent = 'Copy'; }, COPIED_MS);
  });
  return button;
}
