"""Runs Hugging Face transformers on the CPU: JSON lines in, JSON lines out. Started by compare_transformers.py."""
import time

from comparison import serve_worker


def load(state, target, draft, dtype, threads):
    import torch
    import transformers
    torch.set_num_threads(threads)
    state.clear()
    for name, folder in (("target", target), ("draft", draft)):
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        # No end token, so that every run generates the requested number of tokens.
        model.generation_config.eos_token_id = None
        state[name] = model.eval()
    return {"torch": torch.__version__, "transformers": transformers.__version__}


def generate(state, ids, tokens, sample, assisted, draft_tokens, seed):
    """Returns the ids, the milliseconds of the whole call, and the number of passes of the target.

    `draft_tokens`: a fixed number of draft tokens per round, or None for the default of transformers.
    """
    import torch
    options = {"do_sample": sample, "max_new_tokens": tokens, "use_cache": True, "pad_token_id": 0}
    if sample:
        options |= {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    if assisted:
        options["assistant_model"] = state["draft"]
        settings = state["draft"].generation_config
        settings.num_assistant_tokens = draft_tokens or 20
        settings.num_assistant_tokens_schedule = "constant"
        # Above 0, the default of transformers, a draft ends early if the draft model is unsure.
        settings.assistant_confidence_threshold = 0.0 if draft_tokens else 0.4
    passes = []
    hook = state["target"].register_forward_hook(lambda *unused: passes.append(1))
    torch.manual_seed(seed)
    start = time.perf_counter()
    with torch.inference_mode():
        output = state["target"].generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                                          **options)
    elapsed = time.perf_counter() - start
    hook.remove()
    return {"ids": output[0, len(ids):].tolist(), "ms": elapsed * 1e3, "passes": len(passes)}


if __name__ == "__main__":
    state = {}
    serve_worker(lambda do, arguments: {"load": load, "generate": generate}[do](state, **arguments))
