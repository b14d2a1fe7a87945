"""Generations that are read piece by piece, with `for` or `async for`."""

from __future__ import annotations

import asyncio
import collections
import os
import threading
from typing import TYPE_CHECKING, Any, Callable, Deque, NoReturn, Optional, Union

from . import _native

_Item = Union[_native.Piece, _native.Completion, Exception]


class Stream:
    """A generation's pieces, in order; the completion comes after them. It runs from the start,
    whether it is read or not. Thread-safe, except that only one reader may read at a time. It
    belongs to its engine's process: in a forked child, reading and waiting raise EngineError.

    A stream that is left early, by `break`, an exception or the cancellation of its task, goes on
    until `cancel` is called. As a context manager it is cancelled when its block is left:

        with engine.stream(prompt) as stream:
            for piece in stream: ...
        async with engine.stream(prompt) as stream:
            async for piece in stream: ...
    """

    def __init__(
        self, engine: _native.Engine, request: _native.Request, keeps_pieces: bool = True
    ) -> None:
        self._changed = threading.Condition()
        self._items: Deque[_Item] = collections.deque()
        self._wake: Optional[Callable[[], object]] = None
        self._end: Optional[Union[_native.Completion, Exception]] = None
        self._engine = engine
        self._process = os.getpid()
        on_piece = self._on_piece if keeps_pieces else None
        self._id = engine.submit(request, on_piece, self._on_done)

    def __repr__(self) -> str:
        end = self._end  # without the lock, which a thread that forked may have held
        if os.getpid() != self._process:
            state = "of another process"
        elif end is None:
            state = "running"
        elif isinstance(end, Exception):
            state = f"failed: {end!r}"
        else:
            state = f"ended: {end.finish_reason}, {len(end.provenance)} tokens"
        return f"<tandem.{type(self).__name__} {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stream cannot be pickled or copied: it belongs to its process")

    def _on_piece(self, piece: _native.Piece) -> None:
        self._add(piece)

    def _on_done(
        self, completion: Optional[_native.Completion], error: Optional[Exception]
    ) -> None:
        end = completion if completion is not None else error
        assert end is not None
        self._add(end)

    def _add(self, item: _Item) -> None:
        with self._changed:
            if isinstance(item, _native.Piece):
                self._items.append(item)
            else:
                self._end = item
            self._changed.notify_all()
            wake, self._wake = self._wake, None
        if wake is not None:
            wake()

    def cancel(self) -> None:
        """Ends the generation at its next round; it completes as "cancelled". A second call, a call
        after the end, or a call in a forked child does nothing."""
        if os.getpid() != self._process:
            return
        with self._changed:
            if self._end is not None:
                return
        self._engine.cancel(self._id)

    @property
    def done(self) -> bool:
        """Whether the generation has ended. Unread pieces may be left."""
        self._engine.check_process()
        with self._changed:
            return self._end is not None

    def wait(self, timeout: Optional[float] = None) -> _native.Completion:
        """Waits for the end and returns the completion, or raises its error. Raises TimeoutError
        after `timeout` seconds, but the generation goes on."""
        self._engine.check_process()
        with self._changed:
            if not self._changed.wait_for(lambda: self._end is not None, timeout):
                raise TimeoutError(f"the generation has not ended after {timeout} s")
            return self._completed()

    async def wait_async(self) -> _native.Completion:
        """The same for asyncio tasks. Unread pieces are dropped."""
        while await self._next_async() is not None:
            pass
        return self.wait()

    def _completed(self) -> _native.Completion:
        if isinstance(self._end, Exception):
            raise self._end
        assert self._end is not None
        return self._end

    # ---- Reading ----

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> _native.Piece:
        self._engine.check_process()
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._end is not None)
            if self._items:
                return self._taken()
            self._completed()
        raise StopIteration

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> _native.Piece:
        piece = await self._next_async()
        if piece is None:
            raise StopAsyncIteration
        return piece

    def _taken(self) -> _native.Piece:
        item = self._items.popleft()
        assert isinstance(item, _native.Piece)
        return item

    async def _next_async(self) -> Optional[_native.Piece]:
        """The next piece; None after the last."""
        self._engine.check_process()
        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                if self._items:
                    return self._taken()
                if self._end is not None:
                    self._completed()
                    return None
                woken: asyncio.Future[None] = loop.create_future()
                self._wake = lambda: _wake_in(loop, woken)
            await woken

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.cancel()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        self.cancel()


class ChatStream(Stream):
    """The answer to a conversation as a stream. Its pieces are ChatPieces and its completion is a
    ChatCompletion: with separate reasoning, content and tool calls."""

    def __init__(
        self, engine: _native.Engine, request: _native.Request, reader: _native.ChatAnswerReader
    ) -> None:
        self._reader = reader
        super().__init__(engine, request)

    def _on_piece(self, piece: _native.Piece) -> None:
        self._add(self._reader.push(piece))

    def _on_done(
        self, completion: Optional[_native.Completion], error: Optional[Exception]
    ) -> None:
        if completion is not None:
            rest = self._reader.finish()
            if rest is not None:
                self._add(rest)
            completion = self._reader.read(completion)
        super()._on_done(completion, error)

    if TYPE_CHECKING:

        def wait(self, timeout: Optional[float] = None) -> _native.ChatCompletion: ...

        async def wait_async(self) -> _native.ChatCompletion: ...

        def __iter__(self) -> ChatStream: ...

        def __next__(self) -> _native.ChatPiece: ...

        def __aiter__(self) -> ChatStream: ...

        async def __anext__(self) -> _native.ChatPiece: ...

        def __enter__(self) -> ChatStream: ...

        async def __aenter__(self) -> ChatStream: ...


def _wake_in(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> None:
    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    try:
        loop.call_soon_threadsafe(wake)
    except RuntimeError:
        # The loop is closed, and so are the tasks that waited on it.
        if not loop.is_closed():
            raise
