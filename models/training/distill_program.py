"""The program `tandem` with one target, and the form that the target's prompts have. Needs the standard library alone."""
import json
import subprocess
import tempfile

# What a prompt may begin with, beside the tokens of the template and those that end a text.
BEGINNINGS = ("<s>", "<|begin_of_text|>", "<|im_start|>", "<|startoftext|>", "<bos>", "<|endoftext|>", "<|user|>", "<|system|>")


class Program:
    """`tandem` with its target. A command that fails is a RuntimeError with its words."""

    def __init__(self, program, target, options=()):
        self.program, self.target, self.options = program, target, list(options)
        self.known = None  # by inspect

    def run(self, *command, lines=None, partial=False):
        """What the command prints; with `partial` also if it failed for some lines."""
        done = subprocess.run([self.program, *map(str, command)], input=lines, capture_output=True, text=True, check=False)
        if done.returncode != 0 and not (partial and done.stdout.rstrip().endswith("]")):
            error = (done.stderr.strip().splitlines() or [f"{command[0]} ended with {done.returncode}"])[-1]
            raise RuntimeError(error.removeprefix("tandem: error: "))
        return done.stdout

    def inspect(self):
        if self.known is None:
            self.known = json.loads(self.run("inspect", self.target, "--json"))
        return self.known

    def tokenize(self, texts, special="plain"):
        """Ids of texts, nothing in front of them; with "parse" special tokens that are written in them count."""
        lines = "".join(json.dumps({"text": text, "special": special}) + "\n" for text in texts)
        printed = self.run("tokenize", "--tokenizer", self.target, "--jsonl", "-", lines=lines)
        return [json.loads(line)["ids"] for line in printed.split("\n") if line]

    def generate(self, prompts, *options):
        """Answers in the order of `prompts`, which are dicts as `generate --prompts` reads them; some may be {"error": ...}."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.writelines(json.dumps(prompt) + "\n" for prompt in prompts)
            file.flush()
            return json.loads(self.run("generate", "--target", self.target, "--prompts", file.name, "--json", *options, *self.options,
                                       partial=True))

    def write(self, prompts, *options):
        return self.generate(prompts, "--drafter", "none", "-k", 0, *options)


def shared_ends(lists):
    """The longest common beginning and the longest common end of lists, which do not overlap in the shortest."""
    shortest = min(map(len, lists))
    start = next((i for i in range(shortest) if len({ids[i] for ids in lists}) > 1), shortest)
    end = next((i for i in range(shortest - start) if len({ids[-1 - i] for ids in lists}) > 1), shortest - start)
    return lists[0][:start], lists[0][len(lists[0]) - end:]


class Form:
    """How text is put to the target. `front`: ids in front of plain text. `opening` and `closing`: what its chat template has around a
    question, or None without a template. The program tells the ids of a prompt but for the first (nothing predicts it), which is therefore
    looked for: it is the one with which all the others have the log-probabilities that they have in the prompt, bit for bit."""

    def __init__(self, program, first_token=None):
        self.program = program
        if first_token is not None:
            self.candidates = [first_token]
        else:
            written = program.tokenize(BEGINNINGS, "parse") + program.tokenize(BEGINNINGS)
            self.candidates = [ids[0] for ids in written] + program.inspect()["eos_token_ids"] + [0, 1, 2]
        self.front = self._find_front("The sea is wide")
        self.opening = self.closing = None
        self.why_plain = ""
        try:
            self.opening, self.closing = shared_ends(self.chat_ids(["A", "7 b", "é?"]))
        except RuntimeError as error:
            if "template" not in str(error):
                raise
            self.why_plain = str(error)

    def _prompts(self, prompts, *options):
        """What is told of the prompts' tokens; None for a prompt that is refused, as one that is too long, unless all are."""
        answers = self.program.write(prompts, "--max-tokens", 1, "--prompt-logprobs", 0, *options)
        if all("error" in answer for answer in answers):
            raise RuntimeError(answers[0]["error"])
        return [answer.get("prompt_logprobs") for answer in answers]

    def _first(self, known, candidates):
        """The first id of a prompt of which `known` is told."""
        rest = [token["id"] for token in known[1:]]
        candidates = list(dict.fromkeys(candidates))
        for first, seen in zip(candidates, self._prompts([{"prompt_ids": [first, *rest]} for first in candidates])):
            if seen is not None and seen[1:] == known[1:]:
                return first
        raise RuntimeError("which token the target's prompts begin with could not be found out: give --first-token")

    def _find_front(self, text):
        ids = self.program.tokenize([text])[0]
        known = self._prompts([{"prompt": text}])[0]
        rest = [token["id"] for token in known[1:]]
        if len(known) == len(ids):
            return []
        if rest != ids:
            raise RuntimeError(f"the target's prompts begin with {len(known) - len(ids)} tokens: only one is known how to deal with")
        return [self._first(known, self.candidates)]

    def chat_ids(self, questions):
        """Ids of the prompts by which the template puts these questions; None for those that are refused."""
        known = self._prompts([{"prompt": question} for question in questions], "--chat")
        if self.opening:
            first = self.opening[0]
        else:
            told = next(prompt for prompt in known if prompt)
            first = self._first(told, self.front + self.candidates + [token["id"] for token in told[1:]])
        return [prompt and [first, *(token["id"] for token in prompt[1:])] for prompt in known]


def question_in(ids, closing):
    """The ids that the target wrote before it closed a question as its template does, or None."""
    ids, closing = list(ids), list(closing)
    for i in range(1, len(ids) - len(closing) + 1):
        if ids[i:i + len(closing)] == closing:
            return ids[:i]
    return None
