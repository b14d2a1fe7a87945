"""Events of the cache over ZeroMQ: kv_events_test.py TANDEM [unittest's arguments]

A subscriber rebuilds the contents of a real server's prefix cache with pyzmq and msgpack, and is compared with the prefix hits of later
requests. Without pyzmq or msgpack the test is skipped with a message.
"""

import json
import os
import pathlib
import sys
import tempfile
import time
import unittest
import urllib.request

sys.dont_write_bytecode = True  # Do not write into the repository.
SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "benchmarks"))
import serving  # noqa: E402

try:
    import msgpack
    import zmq
except ImportError as missing:
    print(f"skipped: {missing} (Debian's packages python3-zmq and python3-msgpack)")
    sys.exit(77)

TANDEM = ""
PAGE = 4
MODEL = ["--target", str(SOURCE / "models/storyteller-1m"), "--drafter", "none", "--threads", "1", "--page-size", str(PAGE)]
LAST = -1  # the number that ends a replay


def number(frame):
    return int.from_bytes(frame, "big", signed=True)


class Blocks:
    """The contents of the cache according to the events so far: the text up to and including each block, by the block's hash."""

    def __init__(self):
        self.texts = {}
        self.tenants = {}

    def apply(self, payload):
        _, events, rank = msgpack.unpackb(payload)
        assert rank == 0, rank
        for event in events:
            kind = event.pop("type")
            if kind == "BlockRemoved":
                for block in event["block_hashes"]:
                    del self.texts[block]  # fails unless the block was stored
            else:
                self.store(**event)

    def store(self, block_hashes, parent_block_hash, token_ids, block_size, extra_keys=None, **others):
        assert others == {"lora_id": None, "lora_name": None, "medium": "GPU"}, others
        assert block_size == PAGE and len(token_ids) == PAGE * len(block_hashes)
        before = () if parent_block_hash is None else self.texts[parent_block_hash]
        tenant = extra_keys[0][0] if extra_keys else self.tenants.get(parent_block_hash)
        for index, block in enumerate(block_hashes):
            assert block not in self.texts, "stored twice"
            before += tuple(token_ids[index * PAGE:][:PAGE])
            self.texts[block] = before
            self.tenants[block] = tenant

    def hit(self, ids):
        """The number of a prompt's tokens that the cache has without a salt. The last token is always computed."""
        known = {text for block, text in self.texts.items() if self.tenants[block] is None}
        length = 0
        while length + PAGE < len(ids) and tuple(ids[:length + PAGE]) in known:
            length += PAGE
        return length


class KvEvents(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tandem_events_")
        self.addCleanup(self.folder.cleanup)
        self.context = zmq.Context()
        self.addCleanup(self.context.destroy, 0)
        self.live, self.again = (f"ipc://{self.folder.name}/{name}" for name in ("live", "again"))

    def serving(self, *options):
        return serving.Server(TANDEM, [*MODEL, "--kv-events", self.live, "--kv-events-replay", self.again, *options])

    def subscribe(self, topic=""):
        socket = self.context.socket(zmq.SUB)
        self.addCleanup(socket.close, 0)
        socket.subscribe(topic.encode())
        socket.connect(self.live)
        return socket

    def replay(self, first, topic=""):
        """[(number, batch)] from this number on."""
        batches = []
        with self.context.socket(zmq.DEALER) as socket:
            socket.connect(self.again)
            socket.send_multipart([b"", first.to_bytes(8, "big")])
            while True:
                empty, named, at, payload = socket.recv_multipart()
                self.assertEqual((empty, named), (b"", topic.encode()))
                if number(at) == LAST:
                    self.assertEqual(payload, b"")
                    return batches
                batches.append((number(at), payload))

    def ask(self, server, ids, tokens=6, **more):
        """The prompt's tokens that came from the cache."""
        body = {"prompt": ids, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}
        request = urllib.request.Request(server.url() + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["usage"]["prompt_tokens_details"]["cached_tokens"]

    def blocks(self):
        blocks = Blocks()
        batches = self.replay(0)
        self.assertEqual([at for at, _ in batches], list(range(len(batches))))
        for _, payload in batches:
            blocks.apply(payload)
        return blocks

    def test_events_match_the_prefix_hits_of_later_requests(self):
        """The cache is too small for all prompts, so that blocks are evicted."""
        prompts = [[3 + index * 7 % 90 + j for j in range(5 + index * 3)] for index in range(12)]
        prompts += [prompt + [5, 6, 7, 8, 9] for prompt in prompts[::3]]
        with self.serving("--kv-memory", "200K", "--context", "64", "--max-batch", "2") as server:
            num_hits = 0
            for prompt in prompts * 2:
                server.await_idle()
                blocks = self.blocks()
                expected = blocks.hit(prompt)
                self.assertEqual(self.ask(server, prompt), expected, prompt)
                num_hits += expected > 0
            self.assertGreater(num_hits, 5)
            server.await_idle()
            blocks = self.blocks()
            removed = sum(event["type"] == "BlockRemoved" for _, batch in self.replay(0) for event in msgpack.unpackb(batch)[1])
            self.assertGreater(removed, 0)
            samples = server.metrics()
            self.assertEqual(samples["tandem_kv_event_batches_published_total"], len(self.replay(0)))
            self.assertEqual(samples["tandem_kv_event_batches_lost_total"], 0)
            info = next(name for name in samples if name.startswith("vllm:cache_config_info"))
            self.assertIn(f'block_size="{PAGE}"', info)
            self.assertLessEqual(len(blocks.texts), int(info.split('num_gpu_blocks="')[1].split('"')[0]))

    def test_late_and_missed_batches_are_replayed(self):
        with self.serving("--kv-memory", "16M", "--kv-events-topic", "kv@pod@model") as server:
            sleeper = self.subscribe()  # never reads
            self.assertIsNotNone(sleeper)
            self.ask(server, list(range(3, 40)))
            while not self.replay(0, "kv@pod@model"):  # until the first batch is out
                time.sleep(0.01)
            late = self.subscribe("kv@")
            batches = []
            while not late.poll(10):  # until the publisher has the subscription
                self.ask(server, list(range(4 + len(batches), 60)))
                batches.append(None)
            topic, at, payload = late.recv_multipart()
            self.assertEqual(topic, b"kv@pod@model")
            missed = self.replay(0, "kv@pod@model")
            self.assertEqual([seen for seen, _ in missed], list(range(len(missed))))
            self.assertGreater(number(at), 0)
            self.assertEqual(dict(missed)[number(at)], payload)
            whole = Blocks()
            for _, batch in missed:
                whole.apply(batch)
            self.assertTrue(whole.texts)

    def test_tenants_are_named_without_revealing_their_salts(self):
        with self.serving("--kv-memory", "16M") as server:
            prompt = list(range(3, 30))
            self.ask(server, prompt, cache_salt="secret of a tenant")
            server.await_idle()
            blocks = self.blocks()
            self.assertTrue(blocks.texts)
            self.assertNotIn(None, blocks.tenants.values())
            self.assertEqual(blocks.hit(prompt), 0)
            self.assertEqual(self.ask(server, prompt), 0)
            for _, batch in self.replay(0):
                self.assertNotIn(b"secret", batch)

    def test_a_taken_endpoint_is_one_error(self):
        taken = self.context.socket(zmq.REP)
        self.addCleanup(taken.close)
        port = taken.bind_to_random_port("tcp://127.0.0.1")
        command = [TANDEM, "serve", "--port", "0", *MODEL, "--kv-events", f"tcp://127.0.0.1:{port}"]
        done = serving.subprocess.run(command, stdout=serving.subprocess.PIPE, stderr=serving.subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1, done)
        self.assertRegex(done.stderr, f"--kv-events: cannot bind tcp://127.0.0.1:{port}: Address already in use")
        for options in (["--kv-events", "5557"], ["--kv-events-replay", "tcp://*:5558"], ["--kv-events-topic", "x"],
                        ["--kv-events", "tcp://*:5557", "--no-prefix-cache"]):
            done = serving.subprocess.run([TANDEM, "serve", *MODEL, *options], stdout=serving.subprocess.PIPE, stderr=serving.subprocess.PIPE,
                                          text=True, check=False)
            self.assertEqual(done.returncode, 2, done)


class Reading(unittest.TestCase):
    """Faults that this test must see."""

    def test_sees_a_block_that_is_removed_and_never_stored(self):
        blocks = Blocks()
        with self.assertRaises(KeyError):
            blocks.apply(msgpack.packb([1.0, [{"type": "BlockRemoved", "block_hashes": [b"x"], "medium": "GPU"}], 0]))


if __name__ == "__main__":
    TANDEM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
