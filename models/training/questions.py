"""Makes questions for `distill.py --prompts`, of the kinds that users ask a small assistant, as JSON lines {"prompt": ...}.

  python questions.py --text TEXT.txt.xz --pairs django/conf/locale/de/LC_MESSAGES/django.po --count 20000 --out questions.jsonl

Requests for summaries and questions about passages quote TEXT. Functions to complete come from Python's standard library, cut after their
docstrings. Sentences to translate are the translations in PAIRS (gettext files). Arithmetic and general questions are filled in from lists
in this file. The output depends only on the options and the seed. Needs only the standard library.
"""
import argparse
import ast
import json
import lzma
import os
import random
import re
import sysconfig

NAMES = ("Anna Ben Carla Daniel Elena Farid Grace Hugo Ines Jamal Kira Leo Mina Noah Olga Pedro Quinn Rosa Samuel Tara Umar Vera Will Xenia "
         "Yusuf Zoe").split()
THINGS = ("apples pencils marbles tickets books cupcakes stickers bottles eggs chairs tiles candles coins photographs plants postcards buttons "
          "sandwiches balloons shells").split()
TOPICS = ("the water cycle|black holes|the French Revolution|photosynthesis|inflation|vaccines|the Roman Empire|machine learning|the Great Wall "
          "of China|volcanoes|the human heart|supply and demand|Shakespeare|the Moon landing|renewable energy|ancient Egypt|DNA|earthquakes|"
          "the stock market|the Industrial Revolution|jazz|chess|the Amazon rainforest|bread baking|the Renaissance|climate change|bees|the "
          "solar system|gravity|the immune system|the Silk Road|democracy|coral reefs|the printing press|electric cars|sleep|the Olympic Games|"
          "probability|the ozone layer|tea|penguins|the Eiffel Tower|antibiotics|glaciers|the Cold War|rainbows|whales|the internet|magnets|"
          "the Sahara").split("|")
GENERAL = (
    "What is {t}?", "Explain {t} to a child.", "Why does {t} matter?", "Write a short poem about {t}.", "Give me five facts about {t}.",
    "How did people first learn about {t}?", "Write an email to a colleague about {t}.", "What are the pros and cons of studying {t}?",
    "Compare {t} and {u}.", "Tell me a story about {n} and {t}.", "List three books that a beginner in {t} could read, with a sentence each.",
    "I have a test about {t} tomorrow. What should I know?", "Write a product description for a course on {t}.",
    "Make a plan for a week in which {n} learns about {t}.", "What would happen without {t}?", "When did {t} begin, and who was involved?",
    "Write a dialogue between {n} and {m} about {t}.", "Draft a blog post about {t} for travellers.", "What is a common mistake about {t}?",
    "Give the answer as a bulleted list: what are the parts of {t}?", "Write a Python program that prints facts about {t}.",
    "Act as a teacher. Ask me three questions about {t} and give the answers.", "Who is known for work on {t}?")
ARITHMETIC = (
    "{n} has {a} {x}. {m} has {b} times as many. How many {x} do they have together?",
    "{n} buys {a} boxes of {x}. There are {b} {x} in each box, and each costs ${c}. How much does {n} pay?",
    "A shop sells {a} {x} on Monday, twice as many on Tuesday and {b} fewer than on Tuesday on Wednesday. How many does it sell in all?",
    "{n} gives {b} {x} to each of {c} friends and has {a} left. How many {x} did {n} have at first?",
    "{n} earns ${a} an hour and works {c} hours a day. After {b} days {n} spends half of the money. How much is left?",
    "There are {a} {x} on a table. {n} takes a quarter of them, and {m} takes {c} more than {n}. How many remain?",
    "A train goes {a} miles in {c} hours. How far does it go in {b} hours at the same speed?",
    "{n} reads {c} pages on the first day and {b} more on every day after it. How many pages does {n} read in {d} days?",
    "{n} saves ${c} every week. A bicycle costs ${e}, and {m} gives {n} ${a} for it. In how many weeks can {n} buy it?",
    "What is {a} * {b} + {c}?", "{n} is {b} years older than {m}. In {c} years {n} will be {a}. How old is {m} now?")
SUMMARISE = ("Summarize: {p}", "Summarize the following text in three sentences.\n\n{p}", "{p}\n\nWhat are the main points of this text?",
             "Write a short summary of this passage:\n{p}", "Shorten this for a newspaper: {p}")
PASSAGES = ("{p}\n\nUsing the passages above, tell me about {t}.", "Answer from the text alone.\n\n{p}\n\nQuestion: what is said about {t}?",
            "Here is some context:\n{p}\n\nWho is mentioned in it, and what do they do?", "{p}\nWhat happens in this text, and why?")
FUNCTION = ("Complete this function.\n\n{p}", "Write the body of this Python function:\n\n{p}", "{p}", "Explain and finish this code.\n```python\n{p}```")
TRANSLATE = ("Translate German to English: {p}", "Translate into English: \"{p}\"", "What does \"{p}\" mean in English?")


def read(path):
    with (lzma.open(path, "rt", encoding="utf-8") if path.endswith(".xz") else open(path, encoding="utf-8")) as file:
        return file.read()


def functions():
    """Returns functions of Python's standard library, up to the end of their docstrings."""
    found, folder = [], sysconfig.get_paths()["stdlib"]
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".py"):
            continue
        source = read(os.path.join(folder, name))
        lines = source.splitlines(keepends=True)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and node.col_offset == 0 and ast.get_docstring(node):
                text = "".join(lines[node.lineno - 1:node.body[0].end_lineno])
                if len(text) < 2000:
                    found.append(text)
    return found


def translations(path):
    """Returns the translated sentences of a gettext file."""
    entries = re.findall(r'^msgstr ((?:".*"\n)+)', read(path), re.MULTILINE)
    texts = ["".join(ast.literal_eval(line) for line in entry.splitlines()) for entry in entries]
    return [text for text in texts if 25 < len(text) < 400 and "%" not in text and "{" not in text]


class Asker:
    def __init__(self, text, pairs, rng):
        self.text, self.rng, self.functions = text, rng, functions()
        self.sentences = [sentence for path in pairs for sentence in translations(path)]
        self.kinds = ["general", "arithmetic", "arithmetic", "summary", "passages", "function"] + ["translation"] * bool(pairs)

    def passage(self, size):
        """Returns about `size` characters of the text, from the beginning of a line to the end of a sentence."""
        place = self.rng.randrange(len(self.text) - 2 * size)
        place = self.text.find("\n", place) + 1
        return self.text[place:place + size].rpartition(".")[0].strip() + "."

    def fill(self, forms, **more):
        rng, (n, m), (t, u) = self.rng, self.rng.sample(NAMES, 2), self.rng.sample(TOPICS, 2)
        return rng.choice(forms).format(n=n, m=m, t=t, u=u, x=rng.choice(THINGS), a=rng.randrange(8, 121, 4), b=rng.randrange(2, 13),
                                        c=rng.randrange(2, 10), d=rng.randrange(3, 8), e=rng.randrange(130, 400, 10), **more)

    def question(self):
        rng = self.rng
        kind = rng.choice(self.kinds)
        if kind == "general":
            return self.fill(GENERAL)
        if kind == "arithmetic":
            return self.fill(ARITHMETIC)
        if kind == "summary":
            return self.fill(SUMMARISE, p=self.passage(rng.choice((600, 1200, 2400, 4000))))
        if kind == "passages":
            return self.fill(PASSAGES, p="\n\n".join(self.passage(rng.choice((500, 800))) for _ in range(rng.randrange(1, 5))))
        if kind == "function":
            return self.fill(FUNCTION, p=rng.choice(self.functions))
        return self.fill(TRANSLATE, p=rng.choice(self.sentences))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="plain text to quote, also as .xz")
    parser.add_argument("--pairs", nargs="*", default=[], help="gettext files, whose translations are to be translated back")
    parser.add_argument("--count", type=int, default=20_000, help="number of questions [%(default)s]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    asker = Asker(read(options.text), options.pairs, random.Random(options.seed))
    with open(options.out, "w", encoding="utf-8") as file:
        for _ in range(options.count):
            file.write(json.dumps({"prompt": asker.question()}) + "\n")


if __name__ == "__main__":
    main()
