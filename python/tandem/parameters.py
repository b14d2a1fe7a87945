"""What engines and generations may be told, by the library's own names (docs/library.md)."""

from __future__ import annotations

import json
from typing import Any, Mapping, Optional, Sequence, TypedDict, Union

import numpy as np

from . import _native
from .errors import FieldError

Prompt = Union[str, Sequence[int], np.ndarray]


class EngineParams(TypedDict, total=False):
    """Options of an engine, next to its target. What is left out is the library's default."""

    draft: str  # a model's folder or GGUF file; "self", "self:FORMAT"
    drafter: str  # "auto", "none", "model", "ngram", "model+ngram"
    all_drafters: bool
    draft_tokens: int  # -1: as many as pay off
    verifier: str  # "auto", "exact_match", "block", "token"
    device: str
    threads: int  # 0: the physical cores
    compute: str
    quantize: str
    draft_quantize: str
    draft_head_tokens: int
    kv_cache: str
    kv_memory_bytes: int
    page_size: int
    context: int  # at most so many tokens of the target's; 0: all
    max_batch: int
    max_generations: int
    chunk_tokens: int
    prefix_cache: bool
    packed_weights: str
    allow_unknown_config: Sequence[str]
    warm_up: bool


class RequestParams(TypedDict, total=False):
    """Parameters of a generation. What is left out is the library's default."""

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
    logprobs: Union[int, _native.LogprobOptions]  # a number: of so many likely tokens
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
        allowed = getattr(allowed, "__forward_arg__", allowed)
        raise TypeError(f"{name}: found {value!r}, allowed: {allowed}") from error


def _plain(value: Any) -> Any:
    """A NumPy scalar as Python's own."""
    return value.item() if isinstance(value, np.generic) else value


def ids_of(ids: Any, field: str = "prompt") -> np.ndarray:
    """Token ids as the engine takes them: int32, one dimension, contiguous. FieldError for others."""
    try:
        array = np.asarray(ids)
    except ValueError as error:
        raise FieldError(f"{field}: found what is no list of token ids: {error}", field) from error
    if array.size == 0 and array.ndim == 1:
        return np.zeros(0, dtype=np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise FieldError(
            f"{field}: found an array of {array.dtype} with {array.ndim} dimensions, allowed: "
            "integers with one dimension",
            field,
        )
    limits = np.iinfo(np.int32)
    for index in (int(array.argmin()), int(array.argmax())):
        if not limits.min <= int(array[index]) <= limits.max:
            raise FieldError(
                f"{field}: found {int(array[index])} at {index}, allowed: ids of 32 bits", field
            )
    return np.ascontiguousarray(array, dtype=np.int32)


def options_of(target: str, params: EngineParams) -> _native.EngineOptions:
    options = _native.EngineOptions()
    for name, value in {"target": target, **params}.items():
        if name != "target" and name not in EngineParams.__annotations__:
            raise TypeError(f"{name}: not an option of an engine")
        if name in ("target", "draft", "packed_weights"):
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
        request.prompt_ids = ids_of(prompt)
    for name, value in params.items():
        if name not in RequestParams.__annotations__:
            raise TypeError(f"{name}: not a parameter of a generation")
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
    """`text`, which has to be one of UTF-8: FieldError for half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FieldError(f"{field}: found what is no UTF-8: {error}", field) from error
    return text


def json_of(field: str, value: Any) -> str:
    """`value` as JSON. FieldError naming `field` if it has none."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise FieldError(f"{field}: found what has no JSON: {error}", field) from error
