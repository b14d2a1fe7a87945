"""Speculative decoding of draft and target model pairs: the target's own output, faster.

    import tandem

    with tandem.Engine("models/storyteller-7m", draft="models/storyteller-1m") as engine:
        story = engine.generate("Once upon a time", max_tokens=64, temperature=0.7, seed=1)
        print(story.text, story.stats.acceptance_rate)
        for piece in engine.stream("Once upon a time", max_tokens=64):
            print(piece.text, end="")
"""

from ._native import (
    ChatCompletion,
    ChatPiece,
    ChatTemplate,
    ChoiceLogprob,
    Completion,
    DraftTextInfo,
    EngineLoad,
    KvTransferParams,
    LogprobOptions,
    ModelInfo,
    OutputConstraint,
    Piece,
    PromptProgress,
    RoundReport,
    RoundStats,
    StoreCounts,
    Timings,
    Tokenizer,
    TokenLogprobs,
    ToolCall,
    TransferCounts,
    __version__,
)
from .engine import Engine, generate
from .errors import EngineError, FieldError
from .parameters import EngineParams, RequestParams
from .stream import ChatStream, Stream

__all__ = [
    "ChatCompletion",
    "ChatPiece",
    "ChatStream",
    "ChatTemplate",
    "ChoiceLogprob",
    "Completion",
    "DraftTextInfo",
    "Engine",
    "EngineError",
    "EngineLoad",
    "EngineParams",
    "FieldError",
    "KvTransferParams",
    "LogprobOptions",
    "ModelInfo",
    "OutputConstraint",
    "Piece",
    "PromptProgress",
    "RequestParams",
    "RoundReport",
    "RoundStats",
    "StoreCounts",
    "Stream",
    "Timings",
    "TokenLogprobs",
    "Tokenizer",
    "ToolCall",
    "TransferCounts",
    "__version__",
    "generate",
]
