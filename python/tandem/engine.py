"""The engine, and what is done with it."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, List, Mapping, Optional, Sequence, Union

import numpy as np

from . import _native
from .parameters import EngineParams, Prompt, RequestParams, json_of, options_of, request_of
from .stream import Stream

if TYPE_CHECKING:
    from typing_extensions import Unpack

_open: weakref.WeakSet[_native.Engine] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Ends the engines' threads, which may call Python, while there is a Python."""
    for engine in list(_open):
        engine.close()


class Engine:
    """Generates text with a target model, sped up by a drafter. With a seed, or at temperature 0,
    the output is the target's alone, token for token. Thread-safe; the GIL is free while the engine
    works.

    `target` is a folder with config.json, a tokenizer and *.safetensors, or a GGUF file; the options
    are EngineParams'. Raises FileNotFoundError, FieldError (a ValueError), NotImplementedError and
    EngineError, whose messages name the file or the field, what was found and what is allowed.

    An engine belongs to the process that made it. A forked child has none of its threads, so
    everything but `close` raises EngineError there; the child may make an engine of its own.
    """

    def __init__(
        self, target: Union[str, os.PathLike[str]], **options: Unpack[EngineParams]
    ) -> None:
        self._native = _native.Engine(options_of(target, options))  # type: ignore[arg-type]
        _open.add(self._native)
        self._lock = threading.Lock()
        self._tokenizer: Optional[_native.Tokenizer] = None
        self._chat_template: Optional[_native.ChatTemplate] = None

    def close(self) -> None:
        """Cancels what runs, waits for its callbacks, and frees the models. Later calls raise
        EngineError; closing again does nothing, nor does closing in a forked child. Not in a
        callback."""
        self._native.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    # ---- Generations ----

    def generate(
        self,
        prompt: Prompt,
        on_piece: Optional[Callable[[_native.Piece], Optional[bool]]] = None,
        **params: Unpack[RequestParams],
    ) -> _native.Completion:
        """A whole generation. `prompt` is text, which gets the tokens that the tokenizer puts around
        it, or token ids (a sequence, or a NumPy array with one dimension), taken as they are.
        `on_piece` runs on a thread of the engine's; returning False ends the generation, and what it
        raises is raised here. KeyboardInterrupt cancels."""
        return self._native.generate(request_of(prompt, params), on_piece)

    def stream(self, prompt: Prompt, **params: Unpack[RequestParams]) -> Stream:
        """A generation to be read by `for` or `async for`. It has been queued on return."""
        return Stream(self._native, request_of(prompt, params))

    # ---- Conversations ----

    def chat_prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        variables: Optional[Mapping[str, Any]] = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> np.ndarray:
        """The ids of a conversation's prompt, as the target's template makes it. What messages say
        never becomes a special token. `variables` are the template's: enable_thinking, say."""
        return self.chat_template.encode(
            self.tokenizer,
            json_of("messages", list(messages)),
            tools=None if tools is None else json_of("tools", list(tools)),
            variables=json_of("variables", dict(variables or {})),
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            now=time.time(),
        )

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        on_piece: Optional[Callable[[_native.Piece], Optional[bool]]] = None,
        **params: Unpack[RequestParams],
    ) -> _native.Completion:
        """The answer to a conversation: messages with "role" and "content"."""
        return self.generate(self.chat_prompt(messages), on_piece, **self._of_chat(params))

    def stream_chat(
        self, messages: Sequence[Mapping[str, Any]], **params: Unpack[RequestParams]
    ) -> Stream:
        """Likewise, to be read piece by piece."""
        return self.stream(self.chat_prompt(messages), **self._of_chat(params))

    def _of_chat(self, params: RequestParams) -> RequestParams:
        ends = list(params.get("stop_tokens", ()))
        ends += self.chat_template.end_token_ids(self.tokenizer)
        return {**params, "stop_tokens": ends}

    # ---- What it is made of ----

    @property
    def tokenizer(self) -> _native.Tokenizer:
        """The target's, read when it is first asked for. It outlives the engine."""
        path = self.target_info.path
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = _native.Tokenizer.load(path)
            return self._tokenizer

    @property
    def chat_template(self) -> _native.ChatTemplate:
        """Likewise."""
        path = self.target_info.path
        with self._lock:
            if self._chat_template is None:
                self._chat_template = _native.ChatTemplate.load(path)
            return self._chat_template

    @property
    def target_info(self) -> _native.ModelInfo:
        return self._native.target_info

    @property
    def draft_info(self) -> Optional[_native.ModelInfo]:
        return self._native.draft_info

    @property
    def drafter(self) -> str:
        """Of generations that name none."""
        return self._native.drafter

    @property
    def drafters(self) -> List[str]:
        """That generations may name, beside "none"."""
        return self._native.drafters

    @property
    def device_description(self) -> str:
        return self._native.device_description

    @property
    def stats(self) -> _native.RoundStats:
        """Of all generations that have ended."""
        return self._native.stats

    @property
    def load(self) -> _native.EngineLoad:
        """Between two rounds, for who watches it."""
        return self._native.load

    def check_integrity(self) -> None:
        """Counts every page of both caches; EngineError unless each is where it should be."""
        self._native.check_integrity()


def generate(
    target: Union[str, os.PathLike[str]],
    prompt: Prompt,
    *,
    engine: Optional[EngineParams] = None,
    **params: Unpack[RequestParams],
) -> _native.Completion:
    """One generation by an engine of its own, whose options are `engine`. For more than one make an
    Engine: loading takes longer than generating."""
    with Engine(target, **(engine or {})) as made:
        return made.generate(prompt, **params)
