#!/usr/bin/env python3
"""Runs llama.cpp's own server out of the package xllamacpp: xllamacpp_server.py MODEL PORT [DRAFT [probabilistic]]"""
import sys
import threading

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.n_parallel, params.n_ctx = 8, 8192
parts = [params.cpuparams, params.cpuparams_batch]
if len(sys.argv) > 3:
    params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    draft = params.speculative.draft
    draft.mparams.path, draft.n_max, draft.probabilistic = sys.argv[3], 4, len(sys.argv) > 4
    parts += [draft.cpuparams, draft.cpuparams_batch]
for part in parts:
    part.n_threads = 1
server = xllamacpp.Server(params)
print(xllamacpp.__version__, xllamacpp.BUILD_INFO, server.listening_address, flush=True)
threading.Event().wait()
