#!/usr/bin/env python3
"""Serves a Hugging Face folder with transformers' generate().

  assisted_server.py --target FOLDER --port P                  plain decoding
  assisted_server.py --target FOLDER --draft FOLDER --port P   assisted generation (assistant_model)

Log-probabilities are the log-softmax of generate()'s own `logits`, before temperature; token names are "token_id:5".
"""
import small_server
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig


class Pieces(list):
    def put(self, value):
        self.append(value.numel())

    def end(self):
        pass


class Engine:
    fields = {"top_k", "top_p", "min_p", "min_tokens", "logit_bias", "logprobs", "prompt_logprobs"}

    def __init__(self, args):
        self.tokenizer = AutoTokenizer.from_pretrained(args.target)
        self.model, self.draft = (AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval() if path else None
                                  for path in (args.target, args.draft))
        if self.draft:
            self.draft.generation_config.num_assistant_tokens = args.draft_tokens
            self.draft.generation_config.num_assistant_tokens_schedule = "constant"
        self.eos = self.model.generation_config.eos_token_id

    def tokenize(self, text):
        return self.tokenizer(text)["input_ids"]

    def answer(self, body, ids, index):
        config = dict(max_new_tokens=body["max_tokens"], min_new_tokens=body["min_tokens"], do_sample=body["temperature"] > 0,
                      eos_token_id=self.eos, pad_token_id=self.eos, return_dict_in_generate=True, output_logits=True,
                      stop_strings=body["stop"] or None)
        if config["do_sample"]:
            config.update(temperature=float(body["temperature"]), top_k=max(0, body["top_k"]), top_p=float(body["top_p"]),
                          min_p=body["min_p"] or None)
        if body["logit_bias"]:
            config["sequence_bias"] = [[[int(token)], float(bias)] for token, bias in body["logit_bias"].items()]
        if body["seed"] is not None and index == 0:
            torch.manual_seed(body["seed"])
        prompt, pieces, extra = torch.tensor([ids]), Pieces(), {}
        with torch.inference_mode():
            out = self.model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=GenerationConfig(**config),
                                      assistant_model=self.draft, tokenizer=self.tokenizer, streamer=pieces)
            rows = self.model(prompt).logits[0, :-1] if body["prompt_logprobs"] else []
        tokens = out.sequences[0, len(ids):].tolist()
        if body["logprobs"]:
            tops = [self.top(row[0], token, body["logprobs"]) for token, row in zip(tokens, out.logits) if token != self.eos]
            extra["logprobs"] = {"tokens": [f"token_id:{token}" for token in tokens[:len(tops)]],
                                 "token_logprobs": [top[token] for token, top in zip(tokens, tops)],
                                 "top_logprobs": [{f"token_id:{token}": x for token, x in top.items()} for top in tops]}
        if body["prompt_logprobs"]:
            tops = [self.top(row, token, body["prompt_logprobs"]) for token, row in zip(ids[1:], rows)]
            extra["prompt_logprobs"] = [None, *({token: {"logprob": x} for token, x in top.items()} for top in tops)]
        return tokens, pieces[1:], extra

    def top(self, logits, token, num):
        row = torch.log_softmax(logits.float(), -1)
        best = torch.topk(row, num)
        return {**dict(zip(best.indices.tolist(), best.values.tolist())), token: row[token].item()}


torch.set_num_threads(1)
small_server.serve(Engine, "transformers", transformers.__version__)
