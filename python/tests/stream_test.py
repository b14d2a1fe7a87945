"""Generations that are read piece by piece."""

import asyncio
import gc
import weakref

import pytest
import tandem

from conftest import TARGET

PROMPT = "Once upon a time there lived an old king"
SEEDED = {"max_tokens": 48, "temperature": 0.7, "seed": 11}
LONG = {"max_tokens": 800, "ignore_eos": True, "seed": 3, "draft_tokens": 0}


def test_pieces_of_a_stream_join_to_the_whole(engine):
    whole = engine.generate(PROMPT, **SEEDED)
    stream = engine.stream(PROMPT, **SEEDED)
    pieces = list(stream)
    assert len(pieces) > 1
    assert "".join(piece.text for piece in pieces) == whole.text
    assert [i for piece in pieces for i in piece.token_ids.tolist()] == whole.token_ids.tolist()
    assert sum(len(piece.rejected) for piece in pieces) == stream.wait().provenance.count("c")
    assert stream.done
    assert stream.wait().text == whole.text
    assert list(stream) == []


def test_pieces_tell_how_much_of_the_prompt_is_read():
    with tandem.Engine(TARGET, chunk_tokens=4, prefix_cache=False) as engine:
        whole = engine.generate(PROMPT, **SEEDED)
        seen = []
        assert engine.generate(PROMPT, seen.append, prompt_progress=True, **SEEDED).text == whole.text
        for pieces in seen, list(engine.stream(PROMPT, prompt_progress=True, **SEEDED)):
            assert "".join(piece.text for piece in pieces) == whole.text
            told = [piece.prompt_progress for piece in pieces if piece.prompt_progress]
            assert {progress.total for progress in told} == {whole.prompt_tokens}
            assert {progress.cached for progress in told} == {0}
            read = [progress.processed for progress in told]
            assert read == sorted(set(read)) and read[-1] == whole.prompt_tokens
            times = [progress.time for progress in told]
            assert times == sorted(times)
        assert all(piece.prompt_progress is None for piece in engine.stream(PROMPT, **SEEDED))


def test_concurrent_async_streams_give_whole_texts(engine):
    prompts = [PROMPT, "The wolf", "A cat and a mouse"]

    async def read(prompt):
        stream = engine.stream(prompt, **SEEDED)
        text = "".join([piece.text async for piece in stream])
        assert (await stream.wait_async()).text == text
        return text

    async def read_all():
        return await asyncio.gather(*(read(prompt) for prompt in prompts))

    assert asyncio.run(read_all()) == [engine.generate(p, **SEEDED).text for p in prompts]


def test_a_cancelled_stream_keeps_its_output(engine):
    stream = engine.stream(PROMPT, **LONG)
    text = next(stream).text
    stream.cancel()
    text += "".join(piece.text for piece in stream)
    completion = stream.wait()
    assert completion.finish_reason == "cancelled"
    assert completion.text == text
    assert len(completion.token_ids) < 800
    stream.cancel()  # does nothing after the end


def test_leaving_the_block_cancels_a_stream(engine):
    with engine.stream(PROMPT, **LONG) as stream:
        for _ in stream:
            break
    assert stream.wait().finish_reason == "cancelled"


def test_cancelling_a_task_cancels_its_stream(engine):
    streams = []

    async def read(begun):
        async with engine.stream(PROMPT, **LONG) as stream:
            streams.append(stream)
            async for _ in stream:
                begun.set()
        raise AssertionError("the task was not cancelled")

    async def cancel():
        begun = asyncio.Event()
        task = asyncio.create_task(read(begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert streams[0].wait().finish_reason == "cancelled"


def test_a_loop_may_end_before_its_stream(engine):
    streams = []

    async def begin():
        stream = engine.stream(PROMPT, **LONG)
        streams.append(stream)
        asyncio.get_running_loop().create_task(stream.wait_async())
        await asyncio.sleep(0)

    asyncio.run(begin())
    streams[0].cancel()
    assert streams[0].wait().finish_reason == "cancelled"


def test_waiting_has_a_time_limit(engine):
    with engine.stream(PROMPT, **LONG) as stream:
        with pytest.raises(TimeoutError):
            stream.wait(0)


def test_an_engine_that_closes_ends_its_streams():
    engine = tandem.Engine(TARGET)
    stream = engine.stream(PROMPT, **LONG)
    next(stream)
    engine.close()
    for _ in stream:
        pass
    assert stream.wait().finish_reason == "cancelled"


def test_too_many_generations_are_refused(engine):
    streams = []
    with pytest.raises(tandem.EngineError, match="max_generations") as caught:
        for _ in range(40):
            streams.append(engine.stream(PROMPT, **LONG))
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    for stream in streams:
        stream.cancel()
    assert {stream.wait().finish_reason for stream in streams} == {"cancelled"}


def test_nothing_keeps_a_stream_that_has_ended(engine):
    stream = engine.stream(PROMPT, max_tokens=4)
    stream.wait()
    engine.generate(PROMPT, max_tokens=1)  # the callbacks of the first have returned
    gone = weakref.ref(stream)
    del stream
    for _ in range(50):
        gc.collect()
        if gone() is None:
            break
        engine.generate(PROMPT, max_tokens=1)
    assert gone() is None
