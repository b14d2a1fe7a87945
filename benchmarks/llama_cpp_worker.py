"""Runs llama.cpp through the C functions that llama-cpp-python binds: JSON lines in, JSON lines out.

Started by compare_llama_cpp.py with the Python of its environment. Times are milliseconds around `llama_decode` and the
fetch of the logits. A pass takes at least a hundred microseconds, and the calls through ctypes take about five.
"""
import ctypes
import os
import sys
import time

import comparison as lib
import numpy


def status_bytes(key):
    return lib.status_bytes("/proc/self/status", key)


class Engine:
    """A model and its context. `settings`: threads, flash_attention, load_mode, repack, context, cache ("f16", "f32")."""

    def __init__(self, api, path, settings):
        self.api = api
        options = api.llama_model_default_params()
        options.n_gpu_layers = 0
        options.use_extra_bufts = settings["repack"]
        options.load_mode = {"mmap": api.LLAMA_LOAD_MODE_MMAP, "read": api.LLAMA_LOAD_MODE_NONE}[settings["load_mode"]]
        self.model = api.llama_model_load_from_file(path.encode(), options)
        if not self.model:
            raise RuntimeError(f"llama.cpp could not load {path}")
        options = api.llama_context_default_params()
        options.n_ctx = settings["context"]
        options.n_batch = options.n_ubatch = 512
        options.n_threads = options.n_threads_batch = settings["threads"]
        options.flash_attn_type = (api.LLAMA_FLASH_ATTN_TYPE_ENABLED if settings["flash_attention"]
                                   else api.LLAMA_FLASH_ATTN_TYPE_DISABLED)
        options.type_k = options.type_v = {"f16": api.GGML_TYPE_F16, "f32": api.GGML_TYPE_F32}[settings["cache"]]
        options.no_perf = True
        self.context = api.llama_init_from_model(self.model, options)
        if not self.context:
            raise RuntimeError("llama.cpp could not make a context")
        self.memory = api.llama_get_memory(self.context)
        self.vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.batch = api.llama_batch_init(512, 0, 1)

    def close(self):
        self.api.llama_batch_free(self.batch)
        self.api.llama_free(self.context)
        self.api.llama_model_free(self.model)

    def run(self, ids, position, all_logits=False):
        """Runs one pass over `ids` at `position`. Returns its milliseconds and the logits of its last row."""
        batch = self.batch
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i] = token
            batch.pos[i] = position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = all_logits or i == len(ids) - 1
        start = time.perf_counter()
        if self.api.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        logits = self.api.llama_get_logits_ith(self.context, -1)
        elapsed = time.perf_counter() - start
        return elapsed * 1e3, logits

    def next_greedy(self, token, position):
        """Returns the token after `token`. `run` must have filled a batch of one row before, so that only changes are written."""
        self.batch.token[0] = token
        self.batch.pos[0] = position
        if self.api.llama_decode(self.context, self.batch) != 0:
            raise RuntimeError("llama_decode failed")
        return self.argmax(self.api.llama_get_logits_ith(self.context, -1))

    def row(self, logits):
        row = (ctypes.c_float * self.vocabulary).from_address(ctypes.addressof(logits.contents))
        return numpy.frombuffer(row, dtype=numpy.float32)

    def argmax(self, logits):
        return int(self.row(logits).argmax())

    def forget(self, position=0):
        """Drops every token from `position` on."""
        self.api.llama_memory_seq_rm(self.memory, 0, position, -1)

    def read(self, ids):
        """Reads a prompt in batches. Returns the logits after it."""
        self.forget()
        for begin in range(0, len(ids), 512):
            _, logits = self.run(ids[begin:begin + 512], begin)
        return logits


def some_ids(engine, count, seed):
    return numpy.random.default_rng(seed).integers(0, min(engine.vocabulary, 256), count).tolist()


def log_softmax(rows):
    rows = rows.astype(numpy.float64)
    rows = rows - rows.max(axis=1, keepdims=True)
    return rows - numpy.log(numpy.exp(rows).sum(axis=1, keepdims=True))


def logprobs(engine, ids):
    """Returns the log-probabilities of every token after each of `ids`, which are read in one pass."""
    engine.forget()
    engine.run(ids, 0, all_logits=True)
    rows = [engine.row(engine.api.llama_get_logits_ith(engine.context, i)).copy() for i in range(len(ids))]
    return {"rows": log_softmax(numpy.array(rows)).tolist()}


def golden(folder):
    """Returns the reference in a folder of tests/data/models: ids, and the log-probabilities after each."""
    import safetensors_to_gguf
    found = dict(safetensors_to_gguf.tensors(os.path.join(folder, "golden.safetensors"), integers=True))
    return {"ids": found["input_ids"].tolist(), "rows": log_softmax(found["logits"]).tolist()}


def passes(engine, rows, context, repeat):
    """Times `repeat` passes of `rows` rows with logits for all rows, after `context` tokens and an uncounted pass."""
    engine.read(some_ids(engine, context, 1))
    times = []
    for turn in range(repeat + 1):
        elapsed, _ = engine.run(some_ids(engine, rows, 2 + turn), context, all_logits=True)
        engine.forget(context)
        times.append(elapsed)
    return {"ms": times[1:]}


def prefill(engine, tokens, repeat):
    """Times `repeat` prompts of `tokens` tokens with logits for the last token, after an uncounted prompt."""
    times = []
    for turn in range(repeat + 1):
        engine.forget()
        times.append(engine.run(some_ids(engine, tokens, turn), 0)[0])
    return {"ms": times[1:]}


def generate(engine, ids, tokens):
    """Decodes greedily. Returns the ids, and the milliseconds per token after the second, including argmax and Python."""
    written = [engine.argmax(engine.read(ids))]
    written.append(engine.argmax(engine.run(written, len(ids))[1]))
    start = time.perf_counter()
    while len(written) < tokens:
        written.append(engine.next_greedy(written[-1], len(ids) + len(written) - 1))
    return {"ids": written, "ms_per_token": (time.perf_counter() - start) * 1e3 / max(tokens - 2, 1)}


def greedy_answer(engine, draft, ids, tokens, ends, draft_tokens):
    """Writes a greedy answer of at most `tokens` tokens, including its end token. Returns it, and its total milliseconds.

    Each round checks up to `draft_tokens` of the draft's greedy tokens in one batch; 0 decodes without a draft.
    """
    start = time.perf_counter()
    written, rounds, kept_of_draft, proposed = [engine.argmax(engine.read(ids))], 0, 0, 0
    if draft_tokens:
        draft.read(ids)
    known = len(ids)  # positions in the draft's cache
    while len(written) < tokens and written[-1] not in ends:
        here = len(ids) + len(written) - 1  # the position of the last token, which neither model has read
        if draft_tokens:
            draft.forget(min(known, here))
        unread = written[min(known, here) - len(ids):]
        proposal = []
        for _ in range(min(draft_tokens, tokens - len(written) - 1)):
            begin = len(ids) + len(written) + len(proposal) - len(unread)
            proposal.append(draft.argmax(draft.run(unread, begin)[1]))
            unread = proposal[-1:]
        known = here + len(proposal)
        engine.run([written[-1], *proposal], here, all_logits=True)
        rounds, proposed = rounds + 1, proposed + len(proposal)
        for i in range(len(proposal) + 1):
            chosen = engine.argmax(engine.api.llama_get_logits_ith(engine.context, i))
            written.append(chosen)
            if chosen in ends or i == len(proposal) or chosen != proposal[i]:
                kept_of_draft += i
                if i < len(proposal):
                    engine.forget(here + i + 1)
                known = min(known, here + i + 1)
                break
    return {"ids": written, "ms": (time.perf_counter() - start) * 1e3, "rounds": rounds, "accepted": kept_of_draft,
            "proposed": proposed}


def answers(state, prompts, tokens, ends, draft_tokens):
    """Returns the answers to all prompts; decodes plainly if `draft_tokens` is 0."""
    engine, draft = state["engine"], state.get("draft")
    return {"answers": [greedy_answer(engine, draft, ids, tokens, ends, draft_tokens) for ids in prompts]}


def load(api, state, path, settings):
    """Loads a model and reads a prompt of 16 tokens. Returns the milliseconds to its logits, and the peak memory beyond Python's."""
    if state.get("engine"):
        state.pop("engine").close()
    before = status_bytes("VmRSS")
    start = time.perf_counter()
    engine = state["engine"] = Engine(api, path, settings)
    engine.argmax(engine.read(some_ids(engine, 16, 1)))
    elapsed = time.perf_counter() - start
    return {"ms": elapsed * 1e3, "peak_bytes": status_bytes("VmHWM") - before, "anonymous_bytes": status_bytes("RssAnon")}


def answer(api, state, do, arguments):
    if do == "about":
        import llama_cpp
        return {"version": llama_cpp.__version__, "system": api.llama_print_system_info().decode()}
    if do == "write":
        import safetensors_to_gguf
        safetensors_to_gguf.write(**arguments)
        return {"bytes": os.path.getsize(arguments["path"])}
    if do == "load_draft":
        state["draft"] = Engine(api, **arguments)
        return {}
    if do == "golden":
        return golden(**arguments)
    if do in ("load", "answers"):
        return load(api, state, **arguments) if do == "load" else answers(state, **arguments)
    return {"passes": passes, "logprobs": logprobs, "prefill": prefill, "generate": generate}[do](state["engine"], **arguments)


def main():
    import llama_cpp.llama_cpp as api
    silence = api.llama_log_callback(lambda level, text, data: None)
    if "--verbose" not in sys.argv:
        api.llama_log_set(silence, ctypes.c_void_p(0))
    api.llama_backend_init()
    state = {}
    lib.serve_worker(lambda do, arguments: answer(api, state, do, arguments))


if __name__ == "__main__":
    main()
