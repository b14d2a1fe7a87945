"""Prompts that one engine reads for another."""
import secrets

import pytest
import tandem

from conftest import DRAFT, TARGET

PROMPT = "Once upon a time there was a little girl who lived in a house near the forest. " * 6
SECRET = secrets.token_hex(32)


def worker():
    return tandem.Engine(TARGET, draft=DRAFT, threads=1, draft_tokens=3, kv_transfer="127.0.0.1:0", kv_transfer_secret=SECRET)


def test_one_engine_reads_the_prompt_and_another_writes_the_answer():
    asked = tandem.KvTransferParams()
    asked.do_remote_decode = True
    with worker() as prefill, worker() as decode:
        try:
            read = prefill.generate(PROMPT, max_tokens=1, temperature=0, kv_transfer_params=asked)
        except tandem.EngineError as error:
            pytest.skip(str(error))
        found = read.kv_transfer_params
        assert found.do_remote_prefill and found.remote_num_tokens > 0
        found.tokens_per_second = 20.0  # so slow that the other worker waits
        answer = decode.generate(PROMPT, max_tokens=16, temperature=0, kv_transfer_params=found)
        alone = prefill.generate(PROMPT, max_tokens=16, temperature=0, cache_salt="anew")
        assert list(answer.token_ids) == list(alone.token_ids)
        assert answer.transfer_tokens == found.remote_num_tokens
        assert decode.load.transfer.pages_hit > answer.transfer_tokens // 16  # of both models
        assert prefill.load.transfer.pages_sent == decode.load.transfer.pages_received


def test_invalid_values_are_refused():
    with pytest.raises(tandem.FieldError, match="kv_transfer: must be HOST:PORT"):
        tandem.Engine(TARGET, kv_transfer="nowhere")
    with pytest.raises(tandem.FieldError, match="kv_transfer_secret: is required by kv_transfer"):
        tandem.Engine(TARGET, kv_transfer="127.0.0.1:0")
    asked = tandem.KvTransferParams()
    asked.do_remote_decode = True
    with tandem.Engine(TARGET, draft="", threads=1) as engine:
        with pytest.raises(tandem.FieldError, match="kv_transfer_params"):
            engine.generate("Once", max_tokens=1, kv_transfer_params=asked)
