// Completions and chats as streams of server-sent events.

// A refusal by the server, or by a proxy on the way to it.
export class ApiError extends Error {
  constructor(message, { status = 0, param = null, code = null } = {}) {
    super(message);
    this.status = status;
    this.param = param;
    this.code = code;
  }
}

function headersOf(key) {
  const headers = { 'Content-Type': 'application/json' };
  if (key) headers.Authorization = `Bearer ${key}`;
  return headers;
}

async function errorOf(response) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // A proxy between this page and the server may answer without JSON.
  }
  return new ApiError(error.message ?? 'the answer is not JSON', {
    status: response.status,
    param: error.param,
    code: error.code,
  });
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, credentials: 'omit', redirect: 'error' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError('the server cannot be reached');
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

export async function fetchModels(key) {
  const response = await request('/v1/models', { headers: headersOf(key) });
  return (await response.json()).data;
}

// Loads a model of a server that has several, and describes it.
export async function loadModel(name, key) {
  const path = `/v1/models/${encodeURIComponent(name)}/load`;
  return (await request(path, { method: 'POST', headers: headersOf(key) })).json();
}

// Gives a chat's chunk the form of a completion's.
function withText(chunk) {
  for (const choice of chunk.choices) choice.text ??= choice.delta?.content ?? '';
  return chunk;
}

// Requests the continuation of a prompt, or the answer to messages. Calls onChunk(chunk, time) for
// every event, with `time` in ms since the request was sent. Rejects with an ApiError, or with an
// AbortError after `signal` has fired.
export async function streamText(body, { key, signal, onChunk }) {
  const start = performance.now();
  const path = body.messages === undefined ? '/v1/completions' : '/v1/chat/completions';
  const response = await request(path, {
    method: 'POST',
    headers: headersOf(key),
    body: JSON.stringify({
      ...body,
      stream: true,
      stream_options: { include_token_texts: true },
    }),
    signal,
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new ApiError('the server ended the stream too early');
    const time = performance.now() - start;
    const events = (rest + value).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith('data: ')) continue;
      const data = event.slice(6);
      if (data === '[DONE]') return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(chunk.error.message, chunk.error);
      onChunk(withText(chunk), time);
    }
  }
}
