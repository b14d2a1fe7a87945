"""The store of pages on disk."""
import pytest
import tandem

from conftest import DRAFT, TARGET


def test_a_later_engine_finds_pages_of_an_earlier_one(tmp_path):
    folder = tmp_path / "pages"
    prompt = "Once upon a time there was a little girl who lived in a house near the forest. " * 3
    completions = []
    for _ in range(2):
        with tandem.Engine(TARGET, draft=DRAFT, threads=1, kv_store=folder) as engine:
            completions.append(engine.generate(prompt, max_tokens=8, temperature=0))
            counts = engine.load.store
    assert list(completions[0].token_ids) == list(completions[1].token_ids)
    assert completions[0].store_tokens == 0
    for completion in completions:
        assert completion.memory_tokens + completion.store_tokens == completion.cached_tokens
    # The number of pages that are read depends on the speed of the disk.
    assert counts.pages_read >= counts.pages_hit
    assert counts.pages_damaged == 0
    assert (folder / "pages-2.sqlite").stat().st_size > 0


def test_stores_that_are_too_small_are_refused():
    with pytest.raises(tandem.FieldError, match="kv_store_size: must be at least 1048576, got 5"):
        tandem.Engine(TARGET, kv_store="x", kv_store_bytes=5)
