"""Streams a story and reports the acceptance of its draft: story.py TARGET DRAFT [PROMPT]

Needs the package `tandem` (docs/python.md). On a terminal, accepted draft tokens are green.
"""

import asyncio
import sys

import tandem

GREEN, PLAIN = ("\033[32m", "\033[0m") if sys.stdout.isatty() else ("", "")


async def tell(engine: tandem.Engine, prompt: str) -> tandem.Completion:
    async with engine.stream(prompt, max_tokens=96, temperature=0.7, seed=1) as stream:
        async for piece in stream:
            colour = GREEN if "a" in piece.provenance else PLAIN
            print(f"{colour}{piece.text}{PLAIN}", end="", flush=True)
        return await stream.wait_async()


def main() -> None:
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    target, draft = sys.argv[1:3]
    prompt = sys.argv[3] if len(sys.argv) == 4 else "Once upon a time there lived an old king"
    try:
        with tandem.Engine(target, draft=draft) as engine:
            story = asyncio.run(tell(engine, prompt))
    except (OSError, ValueError, tandem.EngineError) as error:
        sys.exit(f"story.py: {error}")
    stats = story.stats
    print(f"\n{100 * stats.acceptance_rate:.0f} % of {stats.proposed} draft tokens were accepted, "
          f"{stats.tokens_per_round:.2f} tokens per round")


if __name__ == "__main__":
    main()
