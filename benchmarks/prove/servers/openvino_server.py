#!/usr/bin/env python3
"""Serves a folder of OpenVINO models with OpenVINO GenAI's LLMPipeline; the options are those of assisted_server.py.

Both sides use the continuous-batching backend. It tells no log-probabilities. A request without a seed gets a random one.
"""
import random

import numpy
import openvino
import openvino_genai as genai
import small_server


class Pieces(genai.StreamerBase):
    def write(self, value):
        self.sizes.append(len(value) if isinstance(value, list) else 1)
        return genai.StreamingStatus.RUNNING

    def end(self):
        pass


class Engine:
    fields = {"top_k", "top_p", "min_p", "min_tokens", "frequency_penalty"}

    def __init__(self, args):
        options = {"draft_model": genai.draft_model(args.draft, "CPU")} if args.draft else {}
        self.pipeline = genai.LLMPipeline(args.target, "CPU", scheduler_config=genai.SchedulerConfig(), **options)
        self.tokenizer = self.pipeline.get_tokenizer()
        self.draft_tokens = args.draft_tokens if args.draft else 0
        self.eos = self.tokenizer.get_eos_token_id()

    def tokenize(self, text):
        return self.tokenizer.encode(text).input_ids.data[0].tolist()

    def answer(self, body, ids, index):
        config = genai.GenerationConfig()
        config.set_eos_token_id(self.eos)
        config.max_new_tokens, config.min_new_tokens = body["max_tokens"], body["min_tokens"]
        config.frequency_penalty, config.stop_strings = float(body["frequency_penalty"]), set(body["stop"])
        if self.draft_tokens:
            config.num_assistant_tokens = self.draft_tokens
        config.do_sample = body["temperature"] > 0
        if config.do_sample:
            config.temperature, config.top_p, config.min_p = (float(body[key]) for key in ("temperature", "top_p", "min_p"))
            if body["top_k"] > 0:
                config.top_k = body["top_k"]
            config.rng_seed = random.getrandbits(31) if body["seed"] is None else body["seed"] + index
        prompt, pieces = numpy.array([ids], dtype=numpy.int64), Pieces()
        pieces.sizes = []
        inputs = genai.TokenizedInputs(openvino.Tensor(prompt), openvino.Tensor(numpy.ones_like(prompt)))
        return list(self.pipeline.generate(inputs, config, pieces).tokens[0]), pieces.sizes, {}


small_server.serve(Engine, "openvino-genai", genai.__version__)
