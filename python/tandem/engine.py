"""The engine: generations, conversations, and its models."""

from __future__ import annotations

import atexit
import collections
import contextlib
import os
import threading
import time
import weakref
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Deque,
    Iterator,
    List,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
    Union,
    overload,
)

import numpy as np

from . import _native
from .errors import EngineError, FieldError
from .parameters import (
    EngineParams,
    Prompt,
    RequestParams,
    are_prompts,
    json_of,
    messages_of,
    options_of,
    request_of,
)
from .stream import ChatStream, Stream

if TYPE_CHECKING:
    from typing_extensions import Unpack

_open: weakref.WeakSet[_native.Engine] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Ends the engines' threads, which may call Python, while Python still runs."""
    for engine in list(_open):
        engine.close()


class Engine:
    """Generates text with a target model, sped up by a drafter. With a seed, or at temperature 0,
    the output is the target's alone, token for token. Thread-safe; the GIL is free while the engine
    works.

    `target` is a folder with config.json, a tokenizer and *.safetensors, a GGUF file, or the name
    of a model that `tandem fetch` lists, which brings its draft; the options are EngineParams'.
    Raises FileNotFoundError, FieldError (a ValueError), NotImplementedError and EngineError, whose
    messages name the file or the field, what was found and what is allowed.

    An engine belongs to the process that made it. A forked child has none of its threads, so
    everything but `close` raises EngineError there; the child may make an engine of its own.
    """

    def __init__(
        self, target: Union[str, os.PathLike[str]], **options: Unpack[EngineParams]
    ) -> None:
        self._native = _native.Engine(options_of(target, options))  # type: ignore[arg-type]
        _open.add(self._native)
        self._process = os.getpid()
        target = self._native.target_info.path
        draft = self._native.draft_info
        self._models = f"target={target!r}, " + (f"draft={draft.path!r}, " if draft else "")
        self._target_path = os.path.abspath(target)  # the current folder may change
        self._drafter = self._native.drafter
        self._is_closed = False
        self._lock = threading.Lock()
        self._tokenizer: Optional[_native.Tokenizer] = None
        self._chat_template: Optional[_native.ChatTemplate] = None

    def close(self) -> None:
        """Cancels running generations, waits for their callbacks, and frees the models. Later calls
        raise EngineError; closing again, or in a forked child, does nothing. Do not call it in a
        callback."""
        self._native.close()
        self._is_closed = True

    def __repr__(self) -> str:
        state = ""
        if os.getpid() != self._process:
            state = ", of another process"
        elif self._is_closed:
            state = ", closed"
        return f"<tandem.Engine {self._models}drafter={self._drafter!r}{state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an engine cannot be pickled or copied: it belongs to its process; make one in each"
        )

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    # ---- Texts to draft from ----

    def add_draft_text(
        self, texts: Union[str, Sequence[str]], *, name: str = "", cache_salt: str = ""
    ) -> _native.DraftTextInfo:
        """Adds texts that outputs may repeat in parts. Later rounds of the tenant draft from them,
        and of no other, until they are removed or the engine ends."""
        given = [texts] if isinstance(texts, str) else list(texts)
        return self._native.add_draft_text(given, name, cache_salt)

    def draft_texts(self, *, cache_salt: str = "") -> List[_native.DraftTextInfo]:
        """The tenant's texts, oldest first."""
        return self._native.draft_texts(cache_salt)

    def remove_draft_text(self, id: str, *, cache_salt: str = "") -> None:
        """Removes texts of the tenant by their id."""
        self._native.remove_draft_text(id, cache_salt)

    # ---- Generations ----

    @overload
    def generate(
        self,
        prompt: Prompt,
        on_piece: Optional[Callable[[_native.Piece], Optional[bool]]] = None,
        **params: Unpack[RequestParams],
    ) -> _native.Completion: ...

    @overload
    def generate(
        self, prompt: Sequence[Prompt], on_piece: None = None, **params: Unpack[RequestParams]
    ) -> List[_native.Completion]: ...

    def generate(
        self,
        prompt: Union[Prompt, Sequence[Prompt]],
        on_piece: Optional[Callable[[_native.Piece], Optional[bool]]] = None,
        **params: Unpack[RequestParams],
    ) -> Union[_native.Completion, List[_native.Completion]]:
        """A whole generation. `prompt` is text, which gets the tokens that the tokenizer puts
        around it, or token ids (a sequence, or a NumPy array with one dimension), taken as they
        are. `on_piece` runs on a thread of the engine. Returning False ends the generation, and an
        exception that it raises is raised here. KeyboardInterrupt cancels.

        A list of prompts gives the list of their completions. They run at the same time, and each
        completion is the same as for its prompt alone. An error in one is raised, and cancels the
        rest."""
        _check_on_piece(on_piece)
        if not are_prompts(prompt):
            return self._native.generate(request_of(prompt, params), on_piece)
        if on_piece is not None:
            raise TypeError("on_piece: found a function, allowed: None with a list of prompts")
        return self._generate_all(prompt, params)

    def _generate_all(
        self, prompts: Sequence[Prompt], params: RequestParams
    ) -> List[_native.Completion]:
        completions: List[_native.Completion] = []
        requests = []
        for index, prompt in enumerate(prompts):
            with _named(f"prompt[{index}]"):
                requests.append(request_of(prompt, params))
        with contextlib.ExitStack() as running:
            streams: Deque[Stream] = collections.deque()
            for index, request in enumerate(requests):
                with _named(f"prompt[{index}]"):
                    while (stream := self._begun(request, bool(streams))) is None:
                        completions.append(streams.popleft().wait())
                streams.append(running.enter_context(stream))
            completions.extend(stream.wait() for stream in streams)
        return completions

    def _begun(self, request: _native.Request, may_wait: bool) -> Optional[Stream]:
        """Starts the generation. None if the engine is full and `may_wait`: others are running,
        and the caller can wait for one of them."""
        try:
            return Stream(self._native, request, keeps_pieces=False)
        except EngineError as error:
            if not may_wait or error.code != "RESOURCE_EXHAUSTED":
                raise
            return None

    def stream(self, prompt: Prompt, **params: Unpack[RequestParams]) -> Stream:
        """A generation to be read with `for` or `async for`. It has been queued on return."""
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
        """The ids of a conversation's prompt, as the target's template makes it. The text of
        messages never becomes a special token. `variables` are the template's, such as
        enable_thinking. `tools` are functions as OpenAI's API has them; a template without a place
        for functions, calls and results gets them in a generic form (docs/server/tools.md)."""
        return self.chat_template.encode(
            self.tokenizer,
            json_of("messages", messages_of(messages)),
            tools=None if tools is None else json_of("tools", list(tools)),
            variables=json_of("variables", dict(variables or {})),
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            now=time.time(),
        )

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        on_piece: Optional[Callable[[_native.ChatPiece], Optional[bool]]] = None,
        *,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        variables: Optional[Mapping[str, Any]] = None,
        max_thinking_tokens: Optional[int] = None,
        **params: Unpack[RequestParams],
    ) -> _native.ChatCompletion:
        """The answer to a conversation: messages with "role" and "content". `tools` and `variables`
        are chat_prompt's; the arguments of a function with "strict": True match its schema.
        `max_thinking_tokens` ends the reasoning of a model that marks it (docs/thinking_budget.md).

        The answer has separate `reasoning`, `content` and `tool_calls`, and a `message` that
        continues the conversation:

            answer = engine.chat(messages, tools=tools)
            messages.append(answer.message)
            for call, sent in zip(answer.tool_calls, answer.message.get("tool_calls", [])):
                result = functions[call.name](**json.loads(call.arguments))
                messages.append({"role": "tool", "tool_call_id": sent["id"], "content": result})
        """
        _check_on_piece(on_piece)
        request, reader = self._of_chat(messages, tools, variables, max_thinking_tokens, params)

        def on_text(piece: _native.Piece) -> Optional[bool]:
            assert on_piece is not None
            return on_piece(reader.push(piece))

        completion = self._native.generate(request, None if on_piece is None else on_text)
        rest = reader.finish()
        if on_piece is not None and rest is not None and completion.finish_reason != "cancelled":
            on_piece(rest)
        return reader.read(completion)

    def stream_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        variables: Optional[Mapping[str, Any]] = None,
        max_thinking_tokens: Optional[int] = None,
        **params: Unpack[RequestParams],
    ) -> ChatStream:
        """The same answer as a stream, to be read piece by piece."""
        request, reader = self._of_chat(messages, tools, variables, max_thinking_tokens, params)
        return ChatStream(self._native, request, reader)

    def _of_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Optional[Sequence[Mapping[str, Any]]],
        variables: Optional[Mapping[str, Any]],
        max_thinking_tokens: Optional[int],
        params: RequestParams,
    ) -> Tuple[_native.Request, _native.ChatAnswerReader]:
        """The request for the answer, and its reader."""
        prompt = self.chat_prompt(messages, tools=tools, variables=variables)
        reader = _native.ChatAnswerReader.of(
            self.chat_template,
            self.tokenizer,
            prompt,
            tools=None if tools is None else json_of("tools", list(tools)),
            is_constrained=params.get("constraint") is not None,
            max_thinking_tokens=max_thinking_tokens,
            variables=json_of("variables", dict(variables or {})),
        )
        ends = self.chat_template.end_token_ids(self.tokenizer)
        params = {**params, "stop_tokens": [*params.get("stop_tokens", ()), *ends]}
        shown = [*params.get("shown_special_tokens", ()), *reader.shown_special_tokens]
        params["shown_special_tokens"] = shown
        if reader.constraint is not None:
            params["constraint"] = reader.constraint
        request = request_of(prompt, params)
        request.thinking_budget = reader.thinking_budget
        return request, reader

    # ---- Parts ----

    @property
    def tokenizer(self) -> _native.Tokenizer:
        """The target's, read when it is first asked for. It outlives the engine."""
        self._native.check_open()
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = _native.Tokenizer.load(self._target_path)
            return self._tokenizer

    @property
    def chat_template(self) -> _native.ChatTemplate:
        """The target's, read when it is first asked for. It outlives the engine."""
        self._native.check_open()
        with self._lock:
            if self._chat_template is None:
                self._chat_template = _native.ChatTemplate.load(self._target_path)
            return self._chat_template

    @property
    def target_info(self) -> _native.ModelInfo:
        return self._native.target_info

    @property
    def draft_info(self) -> Optional[_native.ModelInfo]:
        return self._native.draft_info

    @property
    def drafter(self) -> str:
        """The drafter of generations that do not name one."""
        return self._native.drafter

    @property
    def drafters(self) -> List[str]:
        """The drafters that generations may name; "none" is always possible."""
        return self._native.drafters

    @property
    def device_description(self) -> str:
        return self._native.device_description

    @property
    def stats(self) -> _native.RoundStats:
        """Counts over all generations that have ended."""
        return self._native.stats

    @property
    def load(self) -> _native.EngineLoad:
        """The engine's state between two rounds."""
        return self._native.load

    def check_integrity(self) -> None:
        """Counts every page of both caches; EngineError unless each is accounted for."""
        self._native.check_integrity()


def _check_on_piece(on_piece: object) -> None:
    if on_piece is not None and not callable(on_piece):
        raise TypeError(f"on_piece: found {on_piece!r}, allowed: a function of a piece, or None")


@contextlib.contextmanager
def _named(field: str) -> Iterator[None]:
    """Renames the prompt in its FieldErrors to `field`."""
    try:
        yield
    except FieldError as error:
        if error.field != "prompt":
            raise
        raise FieldError(field + str(error).removeprefix("prompt"), field) from error


def generate(
    target: Union[str, os.PathLike[str]],
    prompt: Union[Prompt, Sequence[Prompt]],
    *,
    engine: Optional[EngineParams] = None,
    **params: Unpack[RequestParams],
) -> Union[_native.Completion, List[_native.Completion]]:
    """Engine.generate with a new engine, whose options are `engine`. For more than one call make an
    Engine: loading takes longer than generating."""
    with Engine(target, **(engine or {})) as made:
        return made.generate(prompt, **params)
