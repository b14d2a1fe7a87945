"""The options of engines and the parameters of generations, by the library's names
(docs/library.md)."""

from __future__ import annotations

import difflib
import json
import re
import reprlib
from typing import Any, Iterable, Mapping, Optional, Sequence, TypedDict, Union

import numpy as np

from . import _native
from .errors import FieldError

Prompt = Union[str, Sequence[int], np.ndarray]


class EngineParams(TypedDict, total=False):
    """Options of an engine, without its target. Omitted options have the library's defaults."""

    draft: str  # a model's or a draft head's folder or GGUF file; "self", "self:FORMAT"
    drafter: str  # "auto", "none", "model", "ngram", "model+ngram", "eagle3", "eagle3+ngram"
    all_drafters: bool
    draft_tokens: int  # -1: as many as pay off
    verifier: str  # "auto", "exact_match", "block", "token"
    device: str
    cuda_tune: str  # "off", "load", or a file of choices among a device's equal kernels
    threads: int  # 0: the physical cores
    compute: str
    quantize: str
    draft_quantize: str
    draft_head_tokens: int  # -1: as many as pay off; 0: all
    draft_window: int  # the last tokens of a long prompt that the draft reads; 0: all; -1: auto
    draft_mask_token: str  # "auto", "none", or the id of a parallel draft's mask token, as text
    kv_cache: str  # "auto", "f32", "bf16", "int8"
    draft_kv_cache: str  # "": the same as kv_cache
    kv_memory_bytes: int
    draft_memory_bytes: int  # to draft from earlier texts; 0: none
    draft_texts: Sequence[str]  # files to draft from
    draft_text_bytes: int  # maximum memory for such texts
    page_size: int
    tensor_parallel: int  # processes that compute the target's passes together
    draft_tensor_parallel: bool
    rank_program: str  # the `tandem` program for the other processes; "": found in PATH
    rank: int  # must be 0 here: other ranks are `tandem --rank R`
    rendezvous: str  # HOST:PORT where rank 0 waits for other machines; "": it starts the ranks
    rendezvous_secret: str  # of all ranks, required; two lines while it is replaced
    context: int  # maximum context length in tokens; 0: all of the target's
    max_batch: int
    max_generations: int
    chunk_tokens: int  # 0: as many as suit the device
    prefix_cache: bool
    packed_weights: str
    packed_weights_bytes: int  # limit of that folder; 0: none
    kv_store: str  # folder for pages of both caches; "": none
    kv_store_bytes: int
    kv_transfer: str  # HOST:PORT for exchanging pages with other workers; "": none
    kv_transfer_secret: str  # of all workers, required; two lines while it is replaced
    kv_transfer_peers: str  # networks to which a request may make the engine connect; "": its own
    kv_transfer_fabric: str  # "tcp", "ucx"
    kv_transfer_bytes: int  # maximum memory for pages kept for other workers
    kv_transfer_lease_seconds: int
    kv_events: str  # ZeroMQ endpoint that publishes changes of the prefix cache; "": none
    kv_events_replay: str
    kv_events_topic: str
    allow_unknown_config: Sequence[str]
    warm_up: bool


class RequestParams(TypedDict, total=False):
    """Parameters of a generation. Omitted parameters have the library's defaults."""

    max_tokens: int
    time_limit: Optional[float]  # seconds
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    logit_bias: Mapping[int, float]
    min_tokens: int
    constraint: Optional[_native.OutputConstraint]
    choice_law: str  # "masked", "conditional": how one of the constraint's choices is chosen
    seed: Optional[int]
    sequence: int
    stop: Union[str, Sequence[str]]
    stop_tokens: Sequence[int]
    ignore_eos: bool
    include_stop: bool
    skip_special_tokens: bool
    shown_special_tokens: Sequence[int]
    parse_special: bool
    draft_tokens: Optional[int]
    drafter: Optional[str]
    verifier: Optional[str]
    prediction: str
    cache_salt: str  # the tenant, which shares its prefixes and remembered texts with no other
    client: str  # whose request it is: clients take turns
    kv_transfer_params: _native.KvTransferParams
    request_id: str  # in log lines
    prompt_progress: bool  # pieces also tell how much of the prompt was read
    logprobs: Union[int, _native.LogprobOptions]  # a number: this many most likely tokens
    prompt_logprobs: Union[int, _native.LogprobOptions]


_SAMPLING = frozenset(
    name for name in dir(_native.SamplingParams) if not name.startswith("_")
)


def _assign(target: object, name: str, value: Any) -> None:
    try:
        setattr(target, name, value)
    except FieldError:
        raise
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        params = EngineParams if isinstance(target, _native.EngineOptions) else RequestParams
        allowed = params.__annotations__[name]
        words = _words_of(getattr(allowed, "__forward_arg__", allowed))
        raise TypeError(f"{name}: found {reprlib.repr(value)}, allowed: {words}") from error


def _words_of(annotation: str) -> str:
    """A type in the words of messages: "float or None"."""
    text = annotation.replace("_native.", "tandem.")
    text = re.sub(r"^Optional\[(.*)\]$", r"\1 or None", text)
    return re.sub(r"^Union\[(\w+), (.*)\]$", r"\1 or \2", text)


def _unknown(name: str, kind: str, known: Iterable[str], others: Mapping[str, str]) -> TypeError:
    """The error for a name that is not among `known`. `others` describes further names."""
    close = difflib.get_close_matches(name, list(known), 1)
    if name in others:
        hint = f"it is {others[name]}"
    elif close:
        hint = f"did you mean {close[0]}?"
    else:
        hint = "allowed: " + ", ".join(known)
    return TypeError(f"{name}: not {kind}; {hint}")


def _plain(value: Any) -> Any:
    """Converts a NumPy scalar to a plain Python value."""
    return value.item() if isinstance(value, np.generic) else value


def ids_of(ids: Any, field: str = "prompt", or_else: str = "") -> np.ndarray:
    """Token ids as the engine expects them: int32, one dimension, contiguous. FieldError for
    other values; `or_else` names a further allowed kind."""
    try:
        array = np.asarray(ids)
    except ValueError:  # lists of different lengths
        array = np.empty((), dtype=object)
    if array.size == 0 and array.ndim == 1:
        return np.zeros(0, dtype=np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise FieldError(
            f"{field}: found {reprlib.repr(ids)}, allowed: {or_else}token ids, as a list of "
            "integers or an array of them with one dimension",
            field,
        )
    limits = np.iinfo(np.int32)
    for index in (int(array.argmin()), int(array.argmax())):
        if not limits.min <= int(array[index]) <= limits.max:
            raise FieldError(
                f"{field}: found {int(array[index])} at {index}, allowed: ids of 32 bits", field
            )
    return np.ascontiguousarray(array, dtype=np.int32)


def are_prompts(prompt: Any) -> bool:
    """Whether `prompt` is a list of prompts, and not a list of token ids."""
    return (
        isinstance(prompt, (list, tuple))
        and len(prompt) > 0
        and isinstance(prompt[0], (str, list, tuple, np.ndarray))
    )


def messages_of(messages: Any) -> list[Any]:
    """A conversation as a list of messages. FieldError for anything else."""
    allowed = 'allowed: a list of messages, {"role": "user", "content": "Hi"} and so on'
    if isinstance(messages, (str, bytes, Mapping)) or not hasattr(messages, "__iter__"):
        raise FieldError(f"messages: found {reprlib.repr(messages)}, {allowed}", "messages")
    listed = list(messages)
    for index, message in enumerate(listed):
        if not isinstance(message, Mapping):
            field = f"messages[{index}]"
            raise FieldError(f"{field}: found {reprlib.repr(message)}, {allowed}", field)
    return listed


def options_of(target: str, params: EngineParams) -> _native.EngineOptions:
    options = _native.EngineOptions()
    for name, value in {"target": target, **params}.items():
        if name != "target" and name not in EngineParams.__annotations__:
            others = dict.fromkeys(RequestParams.__annotations__, "a parameter of generations")
            raise _unknown(name, "an option of an engine", EngineParams.__annotations__, others)
        if name in ("target", "draft", "cuda_tune", "packed_weights", "kv_store"):
            value = _path(name, value)
        _assign(options, name, _plain(value))
    return options


def _path(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if hasattr(value, "__fspath__"):
        return str(value.__fspath__())
    raise TypeError(f"{name}: found {value!r}, allowed: a path")


def request_of(prompt: Prompt, params: RequestParams) -> _native.Request:
    request = _native.Request()
    if isinstance(prompt, str):
        request.prompt = _text("prompt", prompt)
    else:
        request.prompt_ids = ids_of(prompt, "prompt", "text, or ")
    for name, value in params.items():
        if name not in RequestParams.__annotations__:
            others = dict.fromkeys(EngineParams.__annotations__, "an option of engines")
            raise _unknown(
                name, "a parameter of a generation", RequestParams.__annotations__, others
            )
        value = _plain(value)
        if name in _SAMPLING:
            if name == "logit_bias" and isinstance(value, Mapping):
                value = [(int(token), float(bias)) for token, bias in value.items()]
            _assign(request.sampling, name, value)
            continue
        if name == "stop" and isinstance(value, str):
            value = [value]
        if name in ("stop_tokens", "shown_special_tokens"):
            value = ids_of(value, name).tolist()
        if name in ("logprobs", "prompt_logprobs") and isinstance(value, int):
            value = _native.LogprobOptions(value)
        _assign(request, name, value)
    return request


def _text(field: str, text: str) -> str:
    """`text`, which must be valid UTF-8: FieldError for half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FieldError(f"{field}: found text that is not UTF-8: {error}", field) from error
    return text


def json_of(field: str, value: Any) -> str:
    """`value` as JSON. FieldError naming `field` if JSON cannot express it."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise FieldError(f"{field}: found a value that JSON cannot hold: {error}", field) from error
