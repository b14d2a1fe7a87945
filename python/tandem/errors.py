"""The exceptions that an engine raises. Their messages are the engine's own."""

from __future__ import annotations

from typing import Any, Tuple

__all__ = ["EngineError", "FieldError", "exception_for"]


class FieldError(ValueError):
    """A request, an option or a file is not valid. `field` names it, such as "max_tokens"; it is
    empty if only the message names it."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class EngineError(RuntimeError):
    """An error that no request caused: out of memory, too many generations, a closed engine, or one
    that was made before the process forked. `code` is the status's: "RESOURCE_EXHAUSTED",
    "CANCELLED", "INTERNAL" and so on; "DATA_LOSS" if the process has lost its GPU."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (str(self), self.code)


def exception_for(code: str, message: str, field: str = "") -> Exception:
    """The exception for a status of the library, whose field `prompt_ids` is called `prompt`
    here."""
    if field == "prompt_ids":
        field, message = "prompt", "prompt" + message.removeprefix("prompt_ids")
    if code == "NOT_FOUND":
        return FileNotFoundError(message)
    if code == "DEADLINE_EXCEEDED":
        return TimeoutError(message)
    if code == "UNIMPLEMENTED":
        return NotImplementedError(message)
    if code in ("INVALID_ARGUMENT", "OUT_OF_RANGE") or field:
        return FieldError(message, field)
    return EngineError(message, code)
