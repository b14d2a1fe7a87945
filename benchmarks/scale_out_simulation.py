"""Simulates the systems of scale_out_model.py event by event, to check its approximations.

Simulates every round: a worker runs a round over all decoding sequences and a chunk of the oldest unread prompt; sequences
that arrive during a round join the next one. Deterministic for a seed.
"""
import heapq
import itertools
import math
import random
from collections import deque


class Sequence:
    def __init__(self, arrived, prompt, rounds):
        self.arrived, self.unread, self.rounds, self.first = arrived, prompt, rounds, None


class Clock:
    def __init__(self):
        self.now, self._events, self._order = 0.0, [], itertools.count()
        self.is_open = True  # whether more requests will arrive

    def at(self, time, action, *arguments):
        heapq.heappush(self._events, (time, next(self._order), action, arguments))

    def run(self):
        while self._events:
            self.now, _, action, arguments = heapq.heappop(self._events)
            action(*arguments)


class Server:
    """Works on one job at a time, in order."""

    def __init__(self, clock):
        self.clock, self.queue, self.is_busy = clock, deque(), False

    def load(self):
        return len(self.queue) + self.is_busy

    def add(self, seconds, done):
        self.queue.append((seconds, done))
        if not self.is_busy:
            self._next()

    def _next(self):
        self.is_busy = bool(self.queue)
        if self.is_busy:
            seconds, done = self.queue.popleft()
            self.clock.at(self.clock.now + seconds, self._end, done)

    def _end(self, done):
        done()
        self._next()


class RoundWorker:
    """Runs rounds over all running sequences, with a chunk of the oldest unread prompt. `gaps` collects the times between
    the tokens of a sequence, `firsts` the times to the first token."""

    def __init__(self, clock, engine, background, gaps, firsts):
        self.clock, self.engine, self.background, self.gaps, self.firsts = clock, engine, background, gaps, firsts
        self.running, self.waiting, self.is_busy = [], deque(), False

    def load(self):
        return len(self.running) + len(self.waiting)

    def add(self, sequence):
        self.waiting.append(sequence)
        self.start()

    def start(self):
        if not self.is_busy:
            self._round()

    def _round(self):
        while self.waiting and len(self.running) + self.background < self.engine.max_batch:
            self.running.append(self.waiting.popleft())
        self.is_busy = bool(self.running) or (self.background > 0 and self.clock.is_open)
        if not self.is_busy:
            return
        decoding = [one for one in self.running if not one.unread]
        reading = next((one for one in self.running if one.unread), None)
        rows = min(reading.unread, self.engine.chunk_tokens) if reading else 0
        batch = self.background + len(decoding)
        seconds = self.engine.round_seconds(batch) + rows / self.engine.prefill_tokens_per_second
        self.clock.at(self.clock.now + seconds, self._end, decoding, reading, rows, seconds)

    def _end(self, decoding, reading, rows, seconds):
        self.gaps.extend([seconds] * (self.background + sum(one.first is not None for one in decoding)))
        for one in decoding:
            one.rounds -= 1
            self._note_first(one)
        if reading:
            reading.unread -= rows
            if not reading.unread:
                self._note_first(reading)
        self.running = [one for one in self.running if one.unread or one.rounds > 0]
        self._round()

    def _note_first(self, sequence):
        if sequence.first is None:
            sequence.first = self.clock.now
            self.firsts.append(self.clock.now - sequence.arrived)


class Router:
    """Chooses a worker. Each worker has its own queue; `shortest` looks at all queues."""

    def __init__(self, routing, rng):
        self.routing, self.rng, self.turn = routing, rng, itertools.count()

    def choose(self, workers):
        if self.routing == "round_robin":
            return workers[next(self.turn) % len(workers)]
        if self.routing == "random":
            return self.rng.choice(workers)
        among = workers
        if self.routing == "power_of_two" and len(workers) > 2:
            among = self.rng.sample(workers, 2)
        least = min(worker.load() for worker in among)
        return self.rng.choice([worker for worker in among if worker.load() == least])


def simulate(system, form, counts, num_requests, seed):
    """Returns the times to first tokens and between tokens, in seconds, as two lists without the first tenth of each.
    `counts`: (replicas,), or (prefill workers, decode workers)."""
    rng = random.Random(seed)
    clock, engine, gaps, firsts = Clock(), system.engine, [], []
    num_round_workers = counts[-1]
    background = system.background_streams // num_round_workers
    round_workers = [RoundWorker(clock, engine, background, gaps, firsts) for _ in range(num_round_workers)]
    to_rounds, to_prefill = Router(system.routing, rng), Router(system.routing, rng)
    prefill = [Server(clock) for _ in range(counts[0])] if form == "disaggregated" else []
    links = [Server(clock) for _ in range(min(counts))]  # as many as the side with fewer workers has

    def arrive(left):
        prompt, output = rng.choice(system.prompts), rng.choice(system.outputs)
        if form == "disaggregated":
            sequence = Sequence(clock.now, 0, max(1, math.ceil(output / engine.tokens_per_round)))
            worker = to_prefill.choose(prefill)

            def deliver():
                latency = system.link_latency_seconds
                clock.at(clock.now + latency, lambda: to_rounds.choose(round_workers).add(sequence))

            worker.add(prompt / engine.prefill_tokens_per_second,
                       lambda: rng.choice(links).add(system.transfer_seconds(prompt), deliver))
        else:
            rounds = math.ceil(max(0, output - 1) / engine.tokens_per_round)
            to_rounds.choose(round_workers).add(Sequence(clock.now, prompt, rounds))
        if left > 1:
            rate = system.requests_per_second
            clock.at(clock.now + (rng.expovariate(rate) if system.arrivals else 1 / rate), arrive, left - 1)
        clock.is_open = left > 1

    clock.at(0.0, arrive, num_requests)
    if background:
        for worker in round_workers:
            worker.start()
    clock.run()
    return firsts[len(firsts) // 10:], gaps[len(gaps) // 10:]
