// The form: the options of the server, and the settings of a request.

const MOST_DRAFT_TOKENS = 8;
const FIRST_DRAFT_TOKENS = '3'; // with 'auto' there are often fewer colours to see
const VERIFIERS = ['auto', 'exact_match', 'block', 'token'];
// The places of the slider for a limit on the reasoning. The last one is no limit.
const THINKING_TOKENS = [0, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, undefined];
// Maps the fields of a request to the controls that set them.
const CONTROLS = {
  prompt: 'prompt',
  messages: 'prompt',
  max_tokens: 'max-tokens',
  temperature: 'temperature',
  seed: 'seed',
  max_thinking_tokens: 'thinking',
  'speculation.draft_tokens': 'draft-tokens',
  'speculation.drafter': 'drafter',
  'speculation.verifier': 'verifier',
};

const byId = (id) => document.getElementById(id);

function fill(select, options) {
  const choices = options.map(([value, text]) => new Option(text, value));
  select.replaceChildren(...choices);
}

// Returns the number, or undefined if the control is empty.
function numberIn(id) {
  const text = byId(id).value.trim();
  return text === '' ? undefined : Number(text);
}

// Undefined if there is no limit, or nothing to limit.
function thinkingTokens() {
  return byId('thinking-field').hidden ? undefined : THINKING_TOKENS[Number(byId('thinking').value)];
}

function showThinking() {
  const tokens = thinkingTokens();
  const words = tokens === undefined ? 'no limit' : `${tokens.toLocaleString('en')} tokens`;
  byId('thinking-words').textContent = tokens === 0 ? 'none' : words;
  byId('thinking').setAttribute('aria-valuetext', byId('thinking-words').textContent);
}

// Shows buttons for texts, [name, text] each, that call onPick(text).
export function offerExamples(examples, onPick) {
  byId('examples').replaceChildren(...examples.map(([name, text]) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = name;
    button.addEventListener('click', () => onPick(text));
    return button;
  }));
}

export function prepareForm() {
  const counts = Array.from({ length: MOST_DRAFT_TOKENS }, (_, i) => [String(i + 1), String(i + 1)]);
  fill(byId('draft-tokens'), [['auto', 'auto'], ['0', 'off'], ...counts]);
  byId('draft-tokens').value = FIRST_DRAFT_TOKENS;
  fill(byId('verifier'), VERIFIERS.map((name) => [name, name.replace('_', ' ')]));
  fill(byId('drafter'), [['none', 'none']]);
  byId('thinking').max = THINKING_TOKENS.length - 1;
  byId('thinking').value = THINKING_TOKENS.length - 1;
  byId('thinking').addEventListener('input', showThinking);
}

export function offer(model) {
  const drafters = [...new Set([model.drafter, ...model.drafters, 'none'])];
  fill(byId('drafter'), drafters.map((name) => [name, name]));
  byId('max-tokens').max = model.max_model_len;
  byId('thinking-field').hidden = !model.has_reasoning;
  showThinking();
}

export function readSettings() {
  const drafter = byId('drafter').value;
  const draftTokens = byId('draft-tokens').value;
  const speculation = { drafter, verifier: byId('verifier').value };
  if (drafter !== 'none') {
    speculation.draft_tokens = draftTokens === 'auto' ? 'auto' : Number(draftTokens);
  }
  return {
    max_tokens: numberIn('max-tokens'),
    temperature: numberIn('temperature'),
    seed: numberIn('seed'),
    max_thinking_tokens: thinkingTokens(),
    speculation,
  };
}

// Marks the control that the error's field belongs to.
export function markField(param) {
  for (const id of Object.values(CONTROLS)) {
    byId(id).removeAttribute('aria-invalid');
    byId(id).removeAttribute('aria-describedby');
  }
  const control = byId(CONTROLS[param?.split('[')[0]]); // messages[1] belongs to messages
  if (control === null) return;
  control.setAttribute('aria-invalid', 'true');
  control.setAttribute('aria-describedby', 'error');
}
