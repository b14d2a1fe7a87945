"""An engine belongs to the process that made it."""

import subprocess
import sys

from conftest import DRAFT, TARGET

# Forks while a stream runs and another thread generates, so that locks may be held. In the child
# every use of the engine must raise, except closing and cancelling. A child that hangs makes the
# parent hang.
SCRIPT = f"""
import asyncio, os, threading
import tandem

engine = tandem.Engine({str(TARGET)!r}, draft={str(DRAFT)!r})
stream = engine.stream("Once", max_tokens=500, ignore_eos=True)
next(stream)
tokenizer = engine.tokenizer
TURN = [{{"role": "user", "content": "Hi"}}]
other = threading.Thread(target=lambda: engine.generate("Once", max_tokens=100, ignore_eos=True))
other.start()

async def first(stream):
    async with stream:
        async for piece in stream:
            return piece

def use_in_child():
    asks = [lambda: engine.generate("Once"), lambda: engine.stream("Once"), lambda: next(stream),
            lambda: stream.wait(), lambda: stream.done, lambda: asyncio.run(stream.wait_async()),
            lambda: asyncio.run(first(stream)), lambda: engine.generate(["Once", "Twice"]),
            lambda: engine.chat(TURN), lambda: engine.stream_chat(TURN), lambda: engine.chat_prompt(TURN),
            lambda: engine.load, lambda: engine.stats, lambda: engine.tokenizer, engine.check_integrity,
            lambda: engine.chat_template, lambda: engine.drafter, lambda: engine.drafters,
            lambda: engine.target_info, lambda: engine.draft_info, lambda: engine.device_description,
            engine.draft_texts, lambda: engine.add_draft_text("Once"), lambda: engine.remove_draft_text("dt-1")]
    named = {{name for name in dir(tandem.Engine) if not name.startswith("_")}}
    assert named == set('''generate stream chat stream_chat chat_prompt load stats tokenizer check_integrity
        chat_template drafter drafters target_info draft_info device_description close
        add_draft_text draft_texts remove_draft_text'''.split()), named
    for ask in asks:
        try:
            ask()
        except RuntimeError as error:
            assert isinstance(error, tandem.EngineError) and error.code == "FAILED_PRECONDITION", error
            assert "fork" in str(error), error
        else:
            raise AssertionError("it did not raise")
    assert "of another process" in repr(engine) and "of another process" in repr(stream)
    assert tokenizer.decode(tokenizer.encode("a king")) == "a king"
    stream.cancel()
    engine.close()
    with tandem.Engine({str(TARGET)!r}) as own:
        assert own.generate("Once", max_tokens=3).token_ids.size == 3

child = os.fork()
if child == 0:
    use_in_child()
    print("raised", flush=True)
else:
    status = os.waitpid(child, 0)[1]
    other.join()
    assert stream.wait().token_ids.size == 500
    engine.close()
    print("ended with", status)
"""


def test_a_forked_child_raises_and_does_not_hang():
    """The child leaves by the interpreter's end, which closes engines."""
    program = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert (program.stdout, program.returncode) == ("raised\nended with 0\n", 0), program.stderr
