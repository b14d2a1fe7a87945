#!/usr/bin/env python3
"""Every door reports the same draft tokens by source: the command line's text and JSON, HTTP whole and streamed, and the metrics.

  doors_test.py build/release/tandem
"""
import json
import pathlib
import re
import subprocess
import sys
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "benchmarks"))
import serving  # noqa: E402

PROMPT = "Once upon a time a little girl had a little dog. The little"
TANDEM = sys.argv.pop(1)
# Fixed lengths of one drafter: which of two sources drafts is decided by the time that they take.
DRAFTERS = ("model", "ngram")


def sources_of(text):
    """Returns the counts that a report names: "acceptance  66.7 % (2 of 3): model 1 of 2, lookup 1 of 1, rule ..."."""
    line = re.search(r"^acceptance .*\): (.*), rule ", text, re.MULTILINE)[1]
    return [{"source": name, "proposed": int(proposed), "accepted": int(accepted)}
            for name, accepted, proposed in re.findall(r"(\w+) (\d+) of (\d+)", line)]


class Doors(unittest.TestCase):
    def generate(self, drafter, *options):
        command = [TANDEM, "generate", *serving.PAIR, "--draft-memory", "0", "--prompt", PROMPT, "--max-tokens", "40", "--temperature", "0",
                   "--ignore-eos", "-k", "3", "--drafter", drafter, "--packed-weights", "none", *options]
        return subprocess.run(command, capture_output=True, text=True, check=True)

    def ask(self, server, drafter, **more):
        body = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "ignore_eos": True,
                "speculation": {"draft_tokens": 3, "drafter": drafter}, **more}
        request = urllib.request.Request(server.url() + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return answer.read().decode()

    def counted(self, server):
        """Returns the metrics' counts by source."""
        samples = server.metrics()
        names = {re.search(r'source="(\w+)"', name)[1] for name in samples if "_source_" in name}
        return {name: [int(samples[f'tandem_spec_decode_source_{what}_tokens_total{{source="{name}"}}']) for what in ("proposed", "accepted")]
                for name in names}

    def test_report_the_same_counts_by_source(self):
        with serving.Server(TANDEM, [*serving.PAIR, "--packed-weights", "none"]) as server:
            for drafter in DRAFTERS:
                with self.subTest(drafter):
                    told = json.loads(self.generate(drafter, "--json").stdout)["speculation"]
                    expected = told["by_source"]
                    self.assertEqual({of["source"] for of in expected} & {"model"}, {"model"} & {drafter})
                    self.assertEqual(sum(of["proposed"] for of in expected), told["proposed"])
                    self.assertIsNone(told["idle_reason"])
                    self.assertEqual(sources_of(self.generate(drafter).stderr), expected)
                    before = self.counted(server)
                    self.assertEqual(json.loads(self.ask(server, drafter))["speculation"]["by_source"], expected)
                    server.await_idle()
                    grown = {name: [new - old for new, old in zip(counts, before[name])] for name, counts in self.counted(server).items()}
                    self.assertEqual({name: counts for name, counts in grown.items() if counts[0] > 0},
                                     {of["source"]: [of["proposed"], of["accepted"]] for of in expected})
                    events = [json.loads(line[6:]) for line in self.ask(server, drafter, stream=True).splitlines()
                              if line.startswith("data: {")]
                    self.assertEqual([event["speculation"]["by_source"] for event in events if "speculation" in event], [expected])


if __name__ == "__main__":
    unittest.main()
