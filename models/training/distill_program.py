"""Runs the program `tandem` with one target, and finds the form of the target's prompts. Needs only the standard library."""
import functools
import json
import subprocess
import tempfile

class Program:
    """`tandem` with its target. A command that fails raises RuntimeError with its message."""

    def __init__(self, program, target, options=()):
        self.program, self.target, self.options = program, target, list(options)

    def run(self, *command, lines=None, partial=False):
        """Runs a command and returns its output; with `partial` also if it failed for some lines."""
        done = subprocess.run([self.program, *map(str, command)], input=lines, capture_output=True, text=True, check=False)
        if done.returncode != 0 and not (partial and done.stdout.rstrip().endswith("]")):
            error = (done.stderr.strip().splitlines() or [f"{command[0]} ended with {done.returncode}"])[-1]
            raise RuntimeError(error.removeprefix("tandem: error: "))
        return done.stdout

    @functools.cache
    def inspect(self):
        return json.loads(self.run("inspect", self.target, "--json"))

    def tokenize(self, texts, *options):
        """Returns the ids of texts without a prefix, encoded as ordinary text unless options of `tokenize` say otherwise."""
        lines = "".join(json.dumps({"text": text, "special": "plain"}) + "\n" for text in texts)
        printed = self.run("tokenize", "--tokenizer", self.target, "--jsonl", "-", *options, lines=lines)
        return [json.loads(line)["ids"] for line in printed.split("\n") if line]

    def read(self, command, prompts, *options, **how):
        """Runs a command on the target with a file of prompts."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.writelines(json.dumps(prompt) + "\n" for prompt in prompts)
            file.flush()
            return self.run(command, "--target", self.target, "--prompts", file.name, *options, *self.options, **how)

    def generate(self, prompts, *options):
        """Returns the answers in the order of `prompts`, which are dicts in the form of `generate --prompts`; some may be {"error": ...}."""
        return json.loads(self.read("generate", prompts, "--json", *options, partial=True))

    def features(self, texts, layers, out):
        """Writes the inputs of these layers for each token of texts, which are lists of ids (`tandem features`)."""
        self.read("features", [{"prompt_ids": ids} for ids in texts], "--layers", ",".join(layers), "--out", out)

    def write(self, prompts, *options):
        return self.generate(prompts, "--drafter", "none", "-k", 0, *options)


def shared_ends(lists):
    """Returns the longest common beginning and the longest common end of lists. They do not overlap in the shortest list."""
    shortest = min(map(len, lists))
    start = next((i for i in range(shortest) if len({ids[i] for ids in lists}) > 1), shortest)
    end = next((i for i in range(shortest - start) if len({ids[-1 - i] for ids in lists}) > 1), shortest - start)
    return lists[0][:start], lists[0][len(lists[0]) - end:]


class Form:
    """The form of the target's prompts. `front`: ids before plain text. `opening` and `closing`: the ids that its chat template puts before
    and after a question, or None without a template."""

    def __init__(self, program):
        self.program = program
        text = ["The sea is wide"]
        ids, prompt = program.tokenize(text)[0], program.tokenize(text, "--as-prompt")[0]
        self.front = next(prompt[:i] for i in range(len(prompt)) if prompt[i:i + len(ids)] == ids)
        self.opening = self.closing = None
        self.why_plain = ""
        try:
            self.opening, self.closing = shared_ends(self.chat_ids(["A", "7 b", "é?"]))
        except RuntimeError as error:
            if "template" not in str(error):
                raise
            self.why_plain = str(error)

    def chat_ids(self, questions):
        """Returns the ids of these questions in the chat template's form; None for questions that leave no room for an answer."""
        most = self.program.inspect()["context_length"] - 1
        return [ids if len(ids) <= most else None for ids in self.program.tokenize(questions, "--chat")]


def question_in(ids, closing):
    """Returns the ids that the target wrote before it closed a question in the template's way, or None."""
    ids, closing = list(ids), list(closing)
    for i in range(1, len(ids) - len(closing) + 1):
        if ids[i:i + len(closing)] == closing:
            return ids[:i]
    return None
