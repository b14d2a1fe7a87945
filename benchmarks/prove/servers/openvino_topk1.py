#!/usr/bin/env python3
"""OpenVINO GenAI without HTTP: answers at T 1 with top_k 1 and with top_p 0.001 next to the greedy one, plain and with a draft.

  openvino_topk1.py TARGET DRAFT
"""
import sys

import numpy
import openvino
import openvino_genai as genai

IDS = numpy.array([[47, 1460, 623, 259, 537]], dtype=numpy.int64)  # "Once upon a time"
CASES = (("greedy", 0, {}), ("top_k 1", 0, {"top_k": 1}), ("top_k 1", 1, {"top_k": 1}), ("top_p 0.001", 0, {"top_p": 0.001}))
for name, options in (("plain", {}), ("draft", {"draft_model": genai.draft_model(sys.argv[2], "CPU")})):
    pipeline = genai.LLMPipeline(sys.argv[1], "CPU", scheduler_config=genai.SchedulerConfig(), **options)
    for text, seed, fields in CASES:
        config = genai.GenerationConfig()
        config.max_new_tokens, config.rng_seed, config.do_sample = 12, seed, bool(fields)
        for key, value in fields.items():
            setattr(config, key, value)
        if options:
            config.num_assistant_tokens = 4
        inputs = genai.TokenizedInputs(openvino.Tensor(IDS), openvino.Tensor(numpy.ones_like(IDS)))
        print(name, text, "seed", seed, list(pipeline.generate(inputs, config).tokens[0]), flush=True)
