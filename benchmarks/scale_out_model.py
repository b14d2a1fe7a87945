#!/usr/bin/env python3
"""Computes the workers that a load needs, as replicas, and as separate workers for prompts (prefill) and for decoding.

  scale_out_model.py F.json              the fewest workers of each form that meet the targets, their cost and
                                         their bound, and the cheaper form
  scale_out_model.py F.json --simulate   also simulates these systems, round by round, to check the formulas
  scale_out_model.py --measured F.json   compares predicted with measured times of the file's runs, with the errors
  scale_out_model.py --example           prints an input file with every field

The formulas are those of benchmarks/queueing.py; docs/sizing.md lists their omissions. TTFT is the time to the first token of
a request. ITL is the time between two events of a stream, which is one round; a round brings tokens_per_round tokens. A length
is a number, {"mean", "scv"} (a gamma law; scv: variance over the square of the mean, 1 for an exponential law) or
{"values": [...]}, all equally likely. This is a forecast, not a measurement.
"""
import argparse
import bisect
import functools
import json
import math
import random
import sys
from dataclasses import dataclass

sys.dont_write_bytecode = True  # Nothing is written into the repository.
import queueing  # noqa: E402
import scale_out_simulation  # noqa: E402

ROUTINGS = ("random", "round_robin", "power_of_two", "shortest")
MAX_WORKERS = 100_000
EXAMPLE = {
    "load": {"requests_per_second": 40, "prompt_tokens": {"mean": 4000, "scv": 0.5},
             "output_tokens": {"mean": 300, "scv": 1}, "cached_share": 0.0, "background_streams": 0},
    "engine": {"prefill_tokens_per_second": 8000, "tokens_per_round": 2.3, "max_batch": 16, "chunk_tokens": 256,
               "round_ms": {"1": 22, "2": 23, "4": 25, "8": 30, "16": 41}, "cache_bytes_per_token": 150000,
               "cache_memory_bytes": 40e9},
    "link": {"bytes_per_second": 2.5e9, "latency_ms": 2},
    "targets": {"percentile": 95, "ttft_ms": 3000, "itl_ms": 45},
    "routing": "power_of_two",
    "cost": {"replica": 1, "prefill_worker": 1, "decode_worker": 1},
    "runs": [{"form": "aggregated", "note": "invented, as every figure here is", "workers": 2, "requests_per_second": 1.5,
              "ttft_ms": {"p50": 700, "p95": 1500}, "itl_ms": {"p50": 25, "p95": 60}},
             {"form": "disaggregated", "prefill_workers": 1, "decode_workers": 1, "requests_per_second": 1.2,
              "ttft_ms": {"p50": 800}, "itl_ms": {"p99": 40}}],
}


class BadInput(Exception):
    """The message names the field, the value found and the values allowed."""


class Fields:
    """An object of the input, whose members are checked when they are read."""

    def __init__(self, value, name):
        if not isinstance(value, dict):
            raise BadInput(f"{name or 'the file'}: must be an object, got {json.dumps(value)}")
        self.value, self.name, self.taken = value, name, set()

    def path(self, key):
        return f"{self.name}.{key}" if self.name else key

    def get(self, key, default=None):
        self.taken.add(key)
        if key not in self.value and default is None:
            raise BadInput(f"{self.path(key)}: is missing")
        return self.value.get(key, default)

    def number(self, key, default=None, least=0.0, most=math.inf, above=False, integer=False):
        return checked_number(self.get(key, default), self.path(key), least, most, above, integer)

    def object(self, key, default=None):
        return Fields(self.get(key, default), self.path(key))

    def choice(self, key, allowed, default=None):
        found = self.get(key, default)
        if found not in allowed:
            raise BadInput(f"{self.path(key)}: must be one of {', '.join(allowed)}, got {json.dumps(found)}")
        return found

    def end(self):
        for key in self.value:
            if key not in self.taken:
                raise BadInput(f"{self.path(key)}: there is no such field; there are {', '.join(sorted(self.taken))}")


def checked_number(found, name, least=0.0, most=math.inf, above=False, integer=False):
    kind = "an integer" if integer else "a number"
    if isinstance(found, bool) or not isinstance(found, int if integer else (int, float)) or not math.isfinite(found):
        raise BadInput(f"{name}: must be {kind}, got {json.dumps(found)}")
    if found < least or (above and found <= least):
        raise BadInput(f"{name}: must be {'more than' if above else 'at least'} {least:g}, got {found:g}")
    if found > most:
        raise BadInput(f"{name}: must be at most {most:g}, got {found:g}")
    return found


def lengths(fields, key, factor=1.0):
    """Returns the law of a length as equally likely values."""
    found, name = fields.get(key), fields.path(key)
    if not isinstance(found, dict):
        return [max(1, round(checked_number(found, name, 1) * factor))]
    law = Fields(found, name)
    if "values" in found:
        values = law.get("values")
        if not isinstance(values, list) or not values:
            raise BadInput(f"{name}.values: must be a list of numbers, got {json.dumps(values)}")
        points = [checked_number(value, f"{name}.values[{i}]", 1) for i, value in enumerate(values)]
    else:
        mean, scv = law.number("mean", least=1), law.number("scv", most=25)
        points = [mean]
        if scv > 0:
            rng, each = random.Random(1), 100
            drawn = sorted(rng.gammavariate(1 / scv, scv) for _ in range(each * 2 * queueing.POINTS))
            points = [sum(drawn[i:i + each]) / each for i in range(0, len(drawn), each)]
            scale = mean * len(points) / sum(points)
            points = [point * scale for point in points]
    law.end()
    return [max(1, round(point * factor)) for point in points]


@dataclass(frozen=True)
class Engine:
    prefill_tokens_per_second: float
    tokens_per_round: float
    max_batch: int
    chunk_tokens: int
    round_table: tuple  # (sequences, seconds), beginning with (0, 0)
    cache_bytes_per_token: float

    def round_seconds(self, batch):
        """Returns the time of a round, interpolated linearly between measured sizes."""
        index = bisect.bisect_left(self.round_table, (batch, -1.0))
        size, seconds = self.round_table[index]
        if size == batch:
            return seconds
        below, before = self.round_table[index - 1]
        if below == 0:
            return seconds  # the time of the smallest measured batch
        return before + (seconds - before) * (batch - below) / (size - below)


@dataclass(frozen=True)
class System:
    requests_per_second: float
    prompts: tuple  # tokens to compute, without cached ones; equally likely
    outputs: tuple
    background_streams: int
    engine: Engine
    link_bytes_per_second: float
    link_latency_seconds: float
    routing: str
    arrivals: float = 1.0  # squared coefficient of variation of the times between arrivals

    def transfer_seconds(self, prompt):
        return prompt * self.engine.cache_bytes_per_token / self.link_bytes_per_second


def engine_of(fields, prompts, outputs):
    table = fields.get("round_ms")
    if not isinstance(table, dict) or not table:
        raise BadInput(f"engine.round_ms: must map batch sizes to milliseconds, got {json.dumps(table)}")
    rounds = [(0, 0.0)]
    for key, value in table.items():
        if not key.isdigit() or int(key) < 1:
            raise BadInput(f"engine.round_ms: batch sizes must be positive integers, got {json.dumps(key)}")
        rounds.append((int(key), checked_number(value, f"engine.round_ms.{key}", 0, above=True) / 1e3))
    rounds.sort()
    max_batch = fields.number("max_batch", least=1, integer=True)
    if max_batch > rounds[-1][0]:
        raise BadInput(f"engine.round_ms: must reach max_batch, {max_batch}, got sizes up to {rounds[-1][0]}")
    per_token = fields.number("cache_bytes_per_token", above=True)
    if "cache_memory_bytes" in fields.value:
        memory = fields.number("cache_memory_bytes", above=True)
        held = (mean(prompts) + mean(outputs)) * per_token
        if memory < held:
            raise BadInput(f"engine.cache_memory_bytes: must hold a request of mean length, {held:g}, got {memory:g}")
        max_batch = min(max_batch, int(memory / held))
    engine = Engine(fields.number("prefill_tokens_per_second", above=True), fields.number("tokens_per_round", least=1),
                    max_batch, fields.number("chunk_tokens", default=256, least=1, integer=True), tuple(rounds), per_token)
    fields.end()
    return engine


def mean(values):
    return sum(values) / len(values)


def scv_of(values):
    average = mean(values)
    return mean([value * value for value in values]) / (average * average) - 1


def system_of(document, run=None):
    """Returns the load on an engine. `run`: an entry of `runs`, whose members replace those of the load."""
    load = document.object("load")
    load = Fields({**load.value, **(run or {})}, load.name)
    computed = 1 - load.number("cached_share", default=0.0, most=0.99)
    prompts, outputs = lengths(load, "prompt_tokens", computed), lengths(load, "output_tokens")
    engine = engine_of(document.object("engine"), prompts, outputs)
    link = document.object("link", default={"bytes_per_second": 1.25e9, "latency_ms": 1})
    system = System(load.number("requests_per_second", above=True), tuple(prompts), tuple(outputs),
                    load.number("background_streams", default=0, integer=True), engine,
                    link.number("bytes_per_second", above=True), link.number("latency_ms", default=0.0) / 1e3,
                    document.choice("routing", ROUTINGS, default="random"),
                    {"random": 1.0, "regular": 0.0}[load.choice("arrivals", ("random", "regular"), default="random")])
    link.end()
    load.end()
    return system


@dataclass(frozen=True)
class Prediction:
    ttft: list  # seconds, equally likely
    itl: list  # (seconds, weight)
    busy: dict  # shares: of the time for reading or sending prompts, of the sequences that could be decoded

    def ttft_ms(self, percent):
        return queueing.percentile([(point, 1) for point in self.ttft], percent) * 1e3

    def itl_ms(self, percent):
        return queueing.percentile(self.itl, percent) * 1e3


class Workers:
    """A pool that runs rounds: the times of one worker by the number of its sequences."""

    def __init__(self, system, workers):
        self.system, self.workers = system, workers
        self.background = system.background_streams // workers
        self.places = system.engine.max_batch - self.background
        if self.places < 1:
            raise queueing.Overloaded("places for the background's streams")
        self.rate = system.requests_per_second / workers

    def seconds(self, sequences):
        return self.system.engine.round_seconds(self.background + min(sequences, self.places))

    def streams(self, sequences):
        return self.background + min(sequences, self.places)

    def occupancy(self, rounds, round_seconds):
        return queueing.batch_occupancy("decoding", self.rate, rounds, round_seconds, self.places, self.workers,
                                        self.system.routing)

    def load(self, rounds):
        """Returns the load as a share of the capacity with full batches."""
        return self.rate * rounds * self.seconds(self.places) / self.places

    def until_round_ends(self, occupancy, then):
        """Returns the law of the rest of the running round plus then(k), for an arrival that finds k sequences."""
        steps = 8
        return queueing.points_of([(self.seconds(k) * (i + 0.5) / steps + then(k), share / steps)
                                   for k, share in enumerate(occupancy.found) for i in range(steps)])


@functools.lru_cache(maxsize=256)
def decoding(system, decode_workers):
    """Returns, for a decode pool, its workers, the mean rounds of a sequence, the occupancy, and the time from a request's
    arrival at the pool to its first token."""
    workers = Workers(system, decode_workers)
    rounds = mean([max(1, math.ceil(output / system.engine.tokens_per_round)) for output in system.outputs])
    occupancy = workers.occupancy(rounds, workers.seconds)
    first = workers.until_round_ends(occupancy, lambda k: workers.seconds(k + 1))
    return workers, rounds, occupancy, queueing.added(occupancy.wait.points(), first)


def predict_disaggregated(system, prefill_workers, decode_workers):
    engine, rate = system.engine, system.requests_per_second
    prompts = [prompt / engine.prefill_tokens_per_second for prompt in system.prompts]
    transfers = [system.transfer_seconds(prompt) for prompt in system.prompts]
    if mean(transfers) > mean(prompts):
        raise queueing.Overloaded("the link: computing a prompt is faster than its transfer")
    wait = queueing.station_wait("prefill", rate, mean(prompts), scv_of(prompts), prefill_workers, system.routing,
                                 system.arrivals)
    links = min(prefill_workers, decode_workers)
    link_wait = queueing.station_wait("the link", rate, mean(transfers), scv_of(transfers), links, "random")
    workers, rounds, occupancy, first = decoding(system, decode_workers)
    ttft = [a + b + system.link_latency_seconds for a, b in zip(prompts, transfers)]
    for part in (wait.points(), link_wait.points(), first):
        ttft = queueing.added(ttft, part)
    itl = [(workers.seconds(k), share * workers.streams(k) / workers.seconds(k))
           for k, share in enumerate(occupancy.shares) if workers.streams(k)]
    return Prediction(ttft, itl, {"prefill": rate * mean(prompts) / prefill_workers, "decode": workers.load(rounds),
                                  "link": rate * mean(transfers) / links})


def predict_aggregated(system, num_workers):
    """Prompts are read in chunks, one per round: a chunk makes the round of decoding sequences longer, and these make the
    reading of the prompt longer. Solves for the fixed point of the share of time in which a worker reads."""
    engine = system.engine
    workers = Workers(system, num_workers)
    rounds = mean([math.ceil(max(0, output - 1) / engine.tokens_per_round) for output in system.outputs])
    chunk = engine.chunk_tokens / engine.prefill_tokens_per_second
    alone = [prompt / engine.prefill_tokens_per_second for prompt in system.prompts]
    passes = [math.ceil(prompt / engine.chunk_tokens) for prompt in system.prompts]
    reading = workers.rate * mean(alone)
    for _ in range(200):
        if reading >= 1:
            raise queueing.Overloaded("reading prompts next to decoding")

        def round_seconds(k, share=reading):
            seconds = workers.seconds(k)
            return 1 / ((1 - share) / seconds + share / (seconds + chunk))

        occupancy = workers.occupancy(rounds, round_seconds)
        beside = sum(share * workers.seconds(k) for k, share in enumerate(occupancy.shares))
        wanted = workers.rate * (mean(alone) + mean(passes) * beside)
        change, reading = abs(wanted - reading), wanted
        if change < 1e-5:
            break
    if reading >= 1:
        raise queueing.Overloaded("reading prompts next to decoding")
    service = queueing.points_of([(seconds + count * workers.seconds(k), share)
                                  for seconds, count in zip(alone, passes)
                                  for k, share in enumerate(occupancy.shares)])
    arrivals = system.arrivals / num_workers if system.routing == "round_robin" else system.arrivals
    wait = queueing.station_wait("reading prompts", workers.rate, mean(service), scv_of(service), 1, "random", arrivals)
    ttft = service
    for part in (wait.points(), occupancy.wait.points(), workers.until_round_ends(occupancy, lambda k: 0.0)):
        ttft = queueing.added(ttft, part)
    itl = []
    for k, share in enumerate(occupancy.shares):
        if workers.streams(k):
            seconds = workers.seconds(k)
            itl.append((seconds, share * workers.streams(k) * (1 - reading) / seconds))
            itl.append((seconds + chunk, share * workers.streams(k) * reading / (seconds + chunk)))
    return Prediction(ttft, itl or [(0.0, 1.0)], {"reading": reading, "decode": workers.load(rounds)})


PREDICT = {"aggregated": predict_aggregated, "disaggregated": predict_disaggregated}


@dataclass(frozen=True)
class Targets:
    percentile: float
    ttft_ms: float
    itl_ms: float

    def missed(self, prediction):
        found = []
        if prediction.ttft_ms(self.percentile) > self.ttft_ms:
            found.append("TTFT")
        if prediction.itl_ms(self.percentile) > self.itl_ms:
            found.append("ITL")
        return found


@dataclass(frozen=True)
class Plan:
    form: str
    counts: tuple  # empty if no number of workers suffices
    cost: float
    prediction: object
    bound: str  # the targets that would be missed with one worker less, or with any number of workers


def missed(system, targets, form, counts):
    """Returns the targets that these workers miss; empty if they meet all."""
    try:
        return " and ".join(targets.missed(PREDICT[form](system, *counts)))
    except queueing.Overloaded as what:
        return f"capacity of {what}"


def least(is_enough, most=MAX_WORKERS):
    """Returns the smallest number for which a monotone condition holds, or None."""
    high = 1
    while not is_enough(high):
        if high == most:
            return None
        high = min(2 * high, most)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def plan_aggregated(system, targets, cost):
    count = least(lambda n: not missed(system, targets, "aggregated", (n,)))
    if count is None:
        return Plan("aggregated", (), math.inf, None, missed(system, targets, "aggregated", (MAX_WORKERS,)))
    bound = missed(system, targets, "aggregated", (count - 1,)) if count > 1 else "one worker is enough"
    return Plan("aggregated", (count,), count * cost["replica"], predict_aggregated(system, count), bound)


def plan_disaggregated(system, targets, cost):
    """Returns the cheapest plan. More decode workers than the ITL needs may save prefill workers."""
    enough = MAX_WORKERS

    def keeps_itl(n):
        try:
            return "ITL" not in targets.missed(predict_disaggregated(system, enough, n))
        except queueing.Overloaded:
            return False

    def is_enough(prefill, decode):
        return not missed(system, targets, "disaggregated", (prefill, decode))

    def total(counts):
        return counts[0] * cost["prefill_worker"] + counts[1] * cost["decode_worker"]

    if unmet := missed(system, targets, "disaggregated", (enough, enough)):
        return Plan("disaggregated", (), math.inf, None, unmet)
    decode, best = least(keeps_itl), None
    while decode <= enough and (best is None or total((1, decode)) < total(best)):
        prefill = least(lambda n, d=decode: is_enough(n, d))
        if prefill is not None and (best is None or total((prefill, decode)) < total(best)):
            best = (prefill, decode)
        decode = max(decode + 1, math.ceil(decode * 1.08))
    best = best or (enough, enough)
    best = (best[0], least(lambda n: is_enough(best[0], n)))
    bounds = [f"{name}: " + (missed(system, targets, "disaggregated", fewer) if min(fewer) else "one is enough")
              for name, fewer in (("prefill", (best[0] - 1, best[1])), ("decode", (best[0], best[1] - 1)))]
    return Plan("disaggregated", best, total(best), predict_disaggregated(system, *best), "; ".join(bounds))


def targets_of(document):
    fields = document.object("targets")
    targets = Targets(fields.number("percentile", least=50, most=99), fields.number("ttft_ms", above=True),
                      fields.number("itl_ms", above=True))
    fields.end()
    return targets


def costs_of(document):
    fields = document.object("cost", default={"replica": 1})
    costs = {key: fields.number(key, default=1, above=True) for key in ("replica", "prefill_worker", "decode_worker")}
    fields.end()
    return costs


def document_of(text, name):
    try:
        document = Fields(json.loads(text), "")
    except json.JSONDecodeError as error:
        raise BadInput(f"{name}: must be JSON: {error}") from None
    for key in ("load", "engine", "link", "targets", "routing", "cost", "runs"):
        document.taken.add(key)
    document.end()
    return document


def plan(document):
    system, targets, costs = system_of(document), targets_of(document), costs_of(document)
    return system, targets, [plan_aggregated(system, targets, costs), plan_disaggregated(system, targets, costs)]


def simulated(system, form, counts, seed=1):
    """Returns simulated times, of enough requests for stable percentiles within some seconds of computation."""
    firsts, gaps = scale_out_simulation.simulate(system, form, counts, max(2000, 100 * sum(counts)), seed)
    return Prediction(firsts, [(gap, 1) for gap in gaps] or [(0.0, 1)], {})


def print_plans(system, targets, plans, with_simulation):
    percent = f"p{targets.percentile:g}"
    print(f"targets at {percent}: TTFT {targets.ttft_ms:g} ms, ITL {targets.itl_ms:g} ms; "
          f"{system.requests_per_second:g} requests/s, routing {system.routing}")
    for one in plans:
        if not one.counts:
            print(f"{one.form}: even {MAX_WORKERS} workers are not enough; missed: {one.bound}")
            continue
        names = ("replicas",) if one.form == "aggregated" else ("prefill workers", "decode workers")
        found = [("predicted", one.prediction)]
        if with_simulation:
            found.append(("simulated", simulated(system, one.form, one.counts)))
        print(f"{one.form}: {', '.join(f'{count} {name}' for count, name in zip(one.counts, names))}; cost {one.cost:g}")
        for word, values in found:
            print(f"  {word} {percent}: TTFT {values.ttft_ms(targets.percentile):.0f} ms, "
                  f"ITL {values.itl_ms(targets.percentile):.1f} ms")
        print("  busy: " + ", ".join(f"{name} {share:.0%}" for name, share in one.prediction.busy.items()))
        print(f"  bound with one worker less: {one.bound}")
    costs = {one.form: one.cost for one in plans if one.counts}
    if len(costs) == 2:
        cheaper = min(costs, key=costs.get)
        print(f"cheaper: {cheaper if len(set(costs.values())) > 1 else 'neither'}")


def compare(document):
    """Yields (run, name, percentile, predicted, measured) of the file's runs, in milliseconds."""
    runs = document.get("runs")
    if not isinstance(runs, list) or not runs:
        raise BadInput(f"runs: must be a list of runs, got {json.dumps(runs)}")
    for i, value in enumerate(runs):
        run = Fields(value, f"runs[{i}]")
        form = run.choice("form", tuple(PREDICT))
        names = ("workers",) if form == "aggregated" else ("prefill_workers", "decode_workers")
        counts = [run.number(name, least=1, integer=True) for name in names]
        times = {name: run.object(name, default={"": 0}).value for name in ("ttft_ms", "itl_ms") if name in value}
        own = {"form", "note", *names, *times}
        system = system_of(document, {key: entry for key, entry in value.items() if key not in own})
        try:
            prediction = PREDICT[form](system, *counts)
        except queueing.Overloaded as what:
            raise BadInput(f"runs[{i}]: more arrives than the model's {what} can take") from None
        for name, percents in times.items():
            for percent, measured in percents.items():
                if not percent.startswith("p") or not percent[1:].replace(".", "", 1).isdigit():
                    raise BadInput(f"runs[{i}].{name}: percentiles are called p50, p99 and so on, got {json.dumps(percent)}")
                checked_number(measured, f"runs[{i}].{name}.{percent}", above=True)
                yield i, name, percent, getattr(prediction, name)(float(percent[1:])), measured


def print_comparison(document):
    errors = []
    print(f"{'run':>3} {'time':7} {'':5} {'predicted ms':>12} {'measured ms':>12} {'error':>7}")
    for i, name, percent, predicted, measured in compare(document):
        errors.append(predicted / measured - 1)
        print(f"{i:3} {name[:-3].upper():7} {percent:5} {predicted:12.1f} {measured:12.1f} {errors[-1]:+7.1%}")
    print(f"mean absolute error {mean([abs(error) for error in errors]):.1%}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", nargs="?", help="a JSON file, or - for standard input")
    parser.add_argument("--simulate", action="store_true", help="also simulate the plans")
    parser.add_argument("--measured", metavar="F.json", help="compare predictions with the runs of this file")
    parser.add_argument("--example", action="store_true", help="print an input file")
    args = parser.parse_args(arguments)
    if args.example:
        print(json.dumps(EXAMPLE, indent=2))
        return
    path = args.measured or args.input
    if path is None:
        parser.error("an input file must be given; --example prints one")
    try:
        with (sys.stdin if path == "-" else open(path, encoding="utf-8")) as file:
            document = document_of(file.read(), path)
        if args.measured:
            print_comparison(document)
        else:
            print_plans(*plan(document), args.simulate)
    except (BadInput, OSError) as error:
        sys.exit(f"scale_out_model.py: {error}")


if __name__ == "__main__":
    main()
