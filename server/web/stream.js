// POST /v1/completions as a stream of server-sent events.

// What the server, or the way to it, said no with.
export class ApiError extends Error {
  constructor(message, { status = 0, param = null } = {}) {
    super(message);
    this.status = status;
    this.param = param;
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
    // Whatever stands between this page and the server need not speak JSON.
  }
  return new ApiError(error.message ?? 'the answer was no JSON', {
    status: response.status,
    param: error.param,
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

export async function fetchModel(key) {
  const response = await request('/v1/models', { headers: headersOf(key) });
  return (await response.json()).data[0];
}

// Calls onChunk(chunk, time) with every event, `time` in ms since the request was sent. Rejects with
// an ApiError, or an AbortError once `signal` says so.
export async function streamCompletion(body, { key, signal, onChunk }) {
  const start = performance.now();
  const response = await request('/v1/completions', {
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
      if (chunk.error) throw new ApiError(chunk.error.message, { param: chunk.error.param });
      onChunk(chunk, time);
    }
  }
}
