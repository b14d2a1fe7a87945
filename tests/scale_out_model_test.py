"""The cost model of scaling out, benchmarks/scale_out_model.py: scale_out_model_test.py [unittest's arguments]

Its formulas are compared with known closed forms and with a simulation of the same system, and the simulation with other closed
forms. Everything is seeded. Each comparison also sees a planted fault.
"""
import contextlib
import copy
import io
import json
import math
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True  # Do not write into the repository.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "benchmarks"))
import queueing  # noqa: E402
import scale_out_model as model  # noqa: E402
import scale_out_simulation as simulation  # noqa: E402


def document(**changes):
    """The example with replaced members: load_x, engine_x and so on, or a whole section."""
    found = copy.deepcopy(model.EXAMPLE)
    for key, value in changes.items():
        group, _, member = key.partition("_")
        if member and group in found:
            found[group][member] = value
        else:
            found[key] = value
    return model.document_of(json.dumps(found), "F.json")


def system(**changes):
    return model.system_of(document(**changes))


def batch_means(values, batches=20):
    """The mean and its standard error, if neighbouring values depend on each other."""
    size = len(values) // batches
    means = [sum(values[i * size:(i + 1) * size]) / size for i in range(batches)]
    mean = sum(means) / batches
    return mean, math.sqrt(sum((one - mean) ** 2 for one in means) / (batches - 1) / batches)


def batch_shares(routing, rate, round_seconds, places, workers):
    return queueing.batch_occupancy("x", rate, 10, round_seconds, places, workers, routing).shares


class ClosedForms(unittest.TestCase):
    def test_erlang_c(self):
        self.assertAlmostEqual(queueing.erlang_c(1, 0.7), 0.7)
        self.assertAlmostEqual(queueing.erlang_c(2, 1.0), 1 / 3)
        load, servers = 8.0, 10  # by its definition
        last = load ** servers / math.factorial(servers) * servers / (servers - load)
        before = sum(load ** k / math.factorial(k) for k in range(servers))
        self.assertAlmostEqual(queueing.erlang_c(servers, load), last / (before + last))
        self.assertLess(queueing.erlang_c(5000, 4500.0), 1e-6)

    def test_waits_of_one_server(self):
        for utilization in (0.1, 0.5, 0.9):
            exact = utilization / (1 - utilization) * 2.0  # M/M/1 with a service time of 2 s
            for scv, wanted in ((1.0, exact), (0.0, exact / 2), (4.0, exact * 2.5)):  # M/M/1, M/D/1, M/G/1
                for routing in ("random", "round_robin", "shortest", "power_of_two"):
                    wait = queueing.station_wait("x", utilization / 2, 2.0, scv, 1, routing)
                    self.assertAlmostEqual(wait.mean, wanted)
                    self.assertAlmostEqual(wait.beyond(0), utilization)
            wait = queueing.station_wait("x", utilization / 2, 2.0, 1.0, 1, "random")
            for time in (0.5, 3.0, 20.0):  # exact for M/M/1
                self.assertAlmostEqual(wait.beyond(time), utilization * math.exp(-time * (1 - utilization) / 2))

    def test_waits_of_pools(self):
        wait = queueing.station_wait("x", 8.0, 1.0, 1.0, 10, "shortest")
        self.assertAlmostEqual(wait.mean, queueing.erlang_c(10, 8.0) / 2)
        # Little's law, from the numbers in the system.
        shares = batch_shares("power_of_two", 0.07, lambda k: float(k), 50, 5000)
        jobs = sum(k * share for k, share in enumerate(shares))
        self.assertAlmostEqual(queueing.station_wait("x", 3500.0, 1.0, 1.0, 5000, "power_of_two").mean + 1, jobs / 0.7, places=3)
        order = [queueing.station_wait("x", 40.0, 1.0, 1.0, 50, routing).mean
                 for routing in ("shortest", "power_of_two", "round_robin", "random")]
        self.assertEqual(order, sorted(order))

    def test_regular_arrivals_of_equal_prompts_do_not_wait(self):
        self.assertEqual(queueing.station_wait("x", 0.9, 1.0, 0.0, 1, "random", arrivals=0.0).beyond(0), 0.0)

    def test_points_have_the_distribution_of_the_wait(self):
        wait = queueing.Wait(0.6, 3.0)
        points = wait.points()
        self.assertAlmostEqual(sum(points) / len(points), 3.0, delta=0.03)  # the last of the 200 points is truncated
        self.assertAlmostEqual(sum(point > 0 for point in points) / len(points), 0.6, delta=1 / queueing.POINTS)

    def test_rounds_that_do_not_slow_down_are_independent(self):
        """The number of jobs, each with its own speed, has a Poisson distribution."""
        for routing in ("random", "shortest"):
            shares = batch_shares(routing, 0.4, lambda k: 1.0, 400, 1)
            for k in range(12):
                self.assertAlmostEqual(shares[k], math.exp(-4) * 4 ** k / math.factorial(k), places=5)

    def test_rounds_as_long_as_their_batch_share_one_processor(self):
        """The number of jobs has the distribution of M/M/1, or Mitzenmacher's for the shorter of two queues."""
        shares = batch_shares("random", 0.07, lambda k: float(k), 50, 10)
        for k in range(12):
            self.assertAlmostEqual(shares[k], 0.3 * 0.7 ** k, places=4)
        shares = batch_shares("power_of_two", 0.07, lambda k: float(k), 50, 10)
        for k in range(5):
            self.assertAlmostEqual(sum(shares[k:]), 0.7 ** (2 ** k - 1), places=3)

    def test_an_overload_names_its_place(self):
        with self.assertRaisesRegex(queueing.Overloaded, "prefill"):
            queueing.station_wait("prefill", 2.0, 0.5, 1.0, 1, "random")
        with self.assertRaisesRegex(queueing.Overloaded, "decoding"):
            queueing.batch_occupancy("decoding", 0.4, 10, lambda k: 1.0, 4, 1, "random")

    def test_distributions_are_added_and_split_into_points(self):
        coin = queueing.points_of([(0.0, 0.5), (1.0, 0.5)])
        both = queueing.added(coin, coin)
        for value, share in ((0.0, 0.25), (1.0, 0.5), (2.0, 0.25)):
            self.assertAlmostEqual(both.count(value) / len(both), share, delta=0.01)
        self.assertEqual(queueing.percentile([(3, 1), (1, 1), (2, 2)], 75), 2)
        self.assertEqual(queueing.percentile([(3, 1), (1, 1), (2, 2)], 76), 3)


def prefill_times(scv, seed=5):
    """Only prompts: a mean service time of 1 s, a utilization of 0.7 of one worker, and a wait that M/G/1 gives exactly."""
    alone = system(load_prompt_tokens={"mean": 8000, "scv": scv}, load_output_tokens=1, load_requests_per_second=0.7,
                   engine_round_ms={"16": 1e-6}, link={"bytes_per_second": 1e18}, routing="random")
    firsts, _ = simulation.simulate(alone, "disaggregated", (1, 1), 40000, seed)
    # The service time's distribution is that of the points that prompts are drawn from.
    exact = 0.7 / (2 * (1 - 0.7)) * (1 + model.scv_of(alone.prompts)) + 1
    return batch_means(firsts), exact


class Simulation(unittest.TestCase):
    def test_matches_closed_forms(self):
        for scv in (0.0, 1.0, 3.0):  # M/D/1, M/M/1 and M/G/1
            (mean, error), exact = prefill_times(scv)
            self.assertLess(abs(mean - exact), 4 * error, f"scv {scv}: {mean} +- {error}, not {exact}")
            self.assertLess(error, 0.1 * exact)

    def test_sees_a_wrong_closed_form(self):
        (mean, error), exact = prefill_times(0.0)
        self.assertGreater(abs(mean - (2 * exact - 1)), 4 * error)  # the wait of M/M/1, which is twice that of M/D/1

    def test_decodes_as_processor_sharing_does(self):
        """Rounds take time in proportion to their batch, so the time in the system is that of M/M/1, whatever the distribution of lengths."""
        sizes = {str(k): 10.0 * k for k in range(1, 65)}
        shared = system(load_prompt_tokens=1, load_output_tokens={"values": [50, 150]}, load_requests_per_second=0.6,
                        engine_round_ms=sizes, engine_max_batch=64, engine_tokens_per_round=1,
                        engine_cache_memory_bytes=1e15, routing="random")
        _, gaps = simulation.simulate(shared, "disaggregated", (1, 1), 6000, 3)
        prediction = model.predict_disaggregated(shared, 1, 1)
        for percent in (50, 95):
            simulated = queueing.percentile([(gap, 1) for gap in gaps], percent) * 1e3
            self.assertAlmostEqual(prediction.itl_ms(percent) / simulated, 1, delta=0.15)

    def test_is_the_same_for_a_seed(self):
        one = system(load_requests_per_second=2)
        self.assertEqual(simulation.simulate(one, "aggregated", (2,), 50, 9), simulation.simulate(one, "aggregated", (2,), 50, 9))
        self.assertNotEqual(simulation.simulate(one, "aggregated", (2,), 50, 9), simulation.simulate(one, "aggregated", (2,), 50, 8))

    def test_every_request_gets_its_tokens(self):
        one = system(load_requests_per_second=4, load_output_tokens=24, engine_tokens_per_round=2, routing="random")
        firsts, gaps = simulation.simulate(one, "aggregated", (2,), 400, 2)
        self.assertEqual((len(firsts), len(gaps)), (360, 400 * 12 * 9 // 10))  # 23 tokens after the first, two per round


def errors_of(one, form, counts, requests, seed=7):
    """The formulas' errors relative to the simulation, for each time and percentile."""
    prediction = model.PREDICT[form](one, *counts)
    firsts, gaps = simulation.simulate(one, form, counts, requests, seed)
    found = model.Prediction(firsts, [(gap, 1) for gap in gaps], {})
    return {f"{name} p{percent}": getattr(prediction, name)(percent) / getattr(found, name)(percent) - 1
            for name in ("ttft_ms", "itl_ms") for percent in (50, 95)}


class Formulas(unittest.TestCase):
    def check(self, one, form, counts, requests=5000, ttft=0.15, itl=0.1):
        for name, error in errors_of(one, form, counts, requests).items():
            self.assertLess(abs(error), ttft if name.startswith("ttft") else itl, f"{form} {counts} {name}")

    def test_match_the_simulation_of_separate_workers(self):
        for routing in model.ROUTINGS:
            with self.subTest(routing):
                self.check(system(load_requests_per_second=6, routing=routing), "disaggregated", (4, 3), itl=0.13)
        self.check(system(load_requests_per_second=40, routing="power_of_two"), "disaggregated", (27, 16), 8000)

    def test_match_the_simulation_of_replicas(self):
        for routing in ("random", "round_robin"):
            for rate in (1.0, 2.0):
                with self.subTest(f"{routing} {rate}"):
                    self.check(system(load_requests_per_second=rate, routing=routing), "aggregated", (4,), 3000)

    def test_overestimate_queues_of_replicas_with_smart_routers(self):
        """A router that looks at queues spreads prompts better than the formulas assume."""
        for routing in ("power_of_two", "shortest"):
            errors = errors_of(system(load_requests_per_second=2, routing=routing), "aggregated", (4,), 5000)
            self.assertGreater(errors["ttft_ms p95"], 0)
            self.assertLess(errors["ttft_ms p95"], 0.6)
            self.assertLess(abs(errors["itl_ms p95"]), 0.1)

    def test_streams_next_to_long_prompts(self):
        """Four streams, and prompts of 4,000 tokens that arrive regularly: the streams wait only with replicas."""
        streams = system(load_requests_per_second=0.3, load_prompt_tokens=4000, load_output_tokens=1,
                         load_background_streams=4, load_arrivals="regular")
        for form, counts in (("aggregated", (1,)), ("disaggregated", (1, 1))):
            self.check(streams, form, counts, 1500)
        chunk = 256 / 8000
        self.assertAlmostEqual(model.predict_aggregated(streams, 1).itl_ms(99), 25 + 1e3 * chunk)
        self.assertAlmostEqual(model.predict_disaggregated(streams, 1, 1).itl_ms(99), 25)

    def test_the_comparison_sees_a_wrong_formula(self):
        one = system(load_requests_per_second=6, routing="random")
        with unittest.mock.patch.object(queueing, "station_wait", lambda *unused: queueing.Wait()):
            with self.assertRaises(AssertionError):
                self.check(one, "disaggregated", (4, 3))


class Plans(unittest.TestCase):
    def test_use_no_more_workers_than_needed(self):
        _, targets, plans = model.plan(document())
        one = system()
        for found in plans:
            self.assertEqual(model.missed(one, targets, found.form, found.counts), "")
            for i in range(len(found.counts)):
                fewer = tuple(count - (i == j) for j, count in enumerate(found.counts))
                self.assertNotEqual(model.missed(one, targets, found.form, fewer), "")
                self.assertIn(model.missed(one, targets, found.form, fewer), found.bound)

    def test_hold_in_the_simulation(self):
        one, targets, plans = model.plan(document(load_requests_per_second=8, targets_itl_ms=70))
        for found in plans:
            simulated = model.simulated(one, found.form, found.counts)
            self.assertLess(simulated.ttft_ms(targets.percentile), 1.15 * targets.ttft_ms)
            self.assertLess(simulated.itl_ms(targets.percentile), 1.1 * targets.itl_ms)

    def test_choose_separate_workers_where_reading_disturbs_decoding(self):
        def cheaper(**changes):
            _, _, plans = model.plan(document(**changes))
            return min(plans, key=lambda found: found.cost).form

        self.assertEqual(cheaper(), "disaggregated")  # a chunk makes a round longer than the target
        self.assertEqual(cheaper(load_requests_per_second=0.5, targets_itl_ms=70), "aggregated")  # one replica is enough

    def test_reach_thousands_of_workers(self):
        _, _, plans = model.plan(document(load_requests_per_second=4000))
        self.assertGreater(sum(plans[1].counts), 3000)
        _, _, few = model.plan(document(load_requests_per_second=40))
        self.assertLess(sum(plans[1].counts), 105 * sum(few[1].counts))

    def test_name_targets_that_no_number_of_workers_meets(self):
        for changes, aggregated, disaggregated in (
                ({"targets_ttft_ms": 10}, "TTFT", "TTFT"), ({"targets_itl_ms": 5}, "ITL", "ITL"),
                ({"link": {"bytes_per_second": 1e8}}, None, "the link: computing a prompt is faster")):
            _, _, plans = model.plan(document(**changes, routing="random"))
            self.assertIn(disaggregated, plans[1].bound)
            self.assertEqual(plans[1].counts, ())
            if aggregated:
                self.assertEqual(plans[0].counts, ())
                self.assertIn(aggregated, plans[0].bound)

    def test_bytes_of_a_cache_limit_the_batch(self):
        self.assertEqual(system().engine.max_batch, 16)
        held = (4000 + 300) * 150000
        self.assertEqual(system(engine_cache_memory_bytes=5.5 * held).engine.max_batch, 5)

    def test_the_minimum_is_found(self):
        for wanted in (*range(1, 20), 1000, 12345, 100_000):
            self.assertEqual(model.least(lambda n, w=wanted: n >= w), wanted)
        self.assertIsNone(model.least(lambda n: False))

    def test_rounds_between_measured_sizes_are_on_a_line(self):
        engine = system().engine
        self.assertEqual([round(engine.round_seconds(k) * 1e3, 9) for k in (0, 1, 3, 4, 12)], [0, 22, 24, 25, 35.5])


class Input(unittest.TestCase):
    def test_errors_name_the_field_and_what_is_allowed(self):
        for changes, message in (
                ({"load_requests_per_second": 0}, r"load.requests_per_second: must be more than 0, got 0"),
                ({"load_prompt_tokens": "many"}, r'load.prompt_tokens: must be a number, got "many"'),
                ({"load_prompt_tokens": {"mean": 5}}, r"load.prompt_tokens.scv: is missing"),
                ({"load_prompt_tokens": {"mean": 5, "scv": 30}}, r"load.prompt_tokens.scv: must be at most 25, got 30"),
                ({"load_prompt_tokens": {"values": []}}, r"load.prompt_tokens.values: must be a list of numbers, got \[\]"),
                ({"load_prompt_tokens": {"values": [1, 0]}}, r"load.prompt_tokens.values\[1\]: must be at least 1, got 0"),
                ({"load_prompt_tokens": True}, r"load.prompt_tokens: must be a number, got true"),
                ({"load_cached_share": 1}, r"load.cached_share: must be at most 0.99, got 1"),
                ({"load_speed": 1}, r"load.speed: there is no such field; there are .*background_streams"),
                ({"load_background_streams": 1.5}, r"load.background_streams: must be an integer, got 1.5"),
                ({"engine_round_ms": {}}, r"engine.round_ms: must map batch sizes to milliseconds, got {}"),
                ({"engine_round_ms": {"a": 1}}, r'engine.round_ms: batch sizes must be positive integers, got "a"'),
                ({"engine_round_ms": {"8": 1}}, r"engine.round_ms: must reach max_batch, 16, got sizes up to 8"),
                ({"engine_round_ms": {"16": 0}}, r"engine.round_ms.16: must be more than 0, got 0"),
                ({"engine_tokens_per_round": 0.5}, r"engine.tokens_per_round: must be at least 1, got 0.5"),
                ({"engine_cache_memory_bytes": 1e6}, r"engine.cache_memory_bytes: must hold a request of mean length"),
                ({"targets_percentile": 99.9}, r"targets.percentile: must be at most 99, got 99.9"),
                ({"targets": None}, r"targets: must be an object, got null"),
                ({"link_latency_ms": -1}, r"link.latency_ms: must be at least 0, got -1"),
                ({"routing": "best"}, r'routing: must be one of random, round_robin, power_of_two, shortest, got "best"'),
                ({"cost_replica": 0}, r"cost.replica: must be more than 0, got 0"),
                ({"rooting": 1}, r"rooting: there is no such field")):
            with self.subTest(message), self.assertRaisesRegex(model.BadInput, message):
                model.plan(document(**changes))
        with self.assertRaisesRegex(model.BadInput, "F.json: must be JSON"):
            model.document_of("{", "F.json")
        with self.assertRaisesRegex(model.BadInput, "the file: must be an object, got 3"):
            model.document_of("3", "F.json")

    def test_errors_of_runs(self):
        run = {"form": "aggregated", "workers": 2, "ttft_ms": {"p50": 700}}
        for changes, message in (
                ({"form": "both"}, r'runs\[0\].form: must be one of aggregated, disaggregated, got "both"'),
                ({"workers": 0}, r"runs\[0\].workers: must be at least 1, got 0"),
                ({"ttft_ms": {"mean": 1}}, r"runs\[0\].ttft_ms: percentiles are called p50, p99 and so on, got \"mean\""),
                ({"ttft_ms": {"p50": 0}}, r"runs\[0\].ttft_ms.p50: must be more than 0, got 0"),
                ({"requests_per_second": 900}, r"runs\[0\]: more arrives than the model's reading prompts .* can take"),
                ({"seed": 1}, r"load.seed: there is no such field")):
            with self.subTest(message), self.assertRaisesRegex(model.BadInput, message):
                list(model.compare(document(load_requests_per_second=1, runs=[{**run, **changes}])))
        with self.assertRaisesRegex(model.BadInput, r"runs: must be a list of runs, got \[\]"):
            list(model.compare(document(runs=[])))

    def test_a_gamma_distribution_has_its_moments(self):
        for scv in (0.25, 1.0, 4.0):
            points = system(load_prompt_tokens={"mean": 3000, "scv": scv}).prompts
            self.assertAlmostEqual(sum(points) / len(points), 3000, delta=3)
            self.assertAlmostEqual(model.scv_of(points), scv, delta=0.1 * scv)


class Program(unittest.TestCase):
    def run_it(self, text, *arguments):
        with tempfile.NamedTemporaryFile(mode="w", suffix=".json") as file:
            file.write(text)
            file.flush()
            with contextlib.redirect_stdout(io.StringIO()) as shown:
                model.main([*arguments, file.name])
            return shown.getvalue()

    def test_prints_plans(self):
        small = copy.deepcopy(model.EXAMPLE)
        small["load"]["requests_per_second"], small["targets"]["itl_ms"] = 4, 70
        shown = self.run_it(json.dumps(small), "--simulate")
        for wanted in ("aggregated: ", "disaggregated: ", "simulated p95", "bound with one worker less", "cheaper: "):
            self.assertIn(wanted, shown)

    def test_compares_predictions_with_measured_runs(self):
        """Here the simulation takes the place of measurements."""
        base = {"requests_per_second": 4, "prompt_tokens": {"mean": 4000, "scv": 0.5}}
        one = system(**{f"load_{key}": value for key, value in base.items()})
        found = model.simulated(one, "disaggregated", (3, 2))
        runs = [{"form": "disaggregated", "prefill_workers": 3, "decode_workers": 2, "note": "simulated", **base,
                 "ttft_ms": {"p50": found.ttft_ms(50), "p95": found.ttft_ms(95)}, "itl_ms": {"p95": found.itl_ms(95)}}]
        example = {**model.EXAMPLE, "runs": runs}
        rows = list(model.compare(model.document_of(json.dumps(example), "F.json")))
        self.assertEqual([row[1:3] for row in rows], [("ttft_ms", "p50"), ("ttft_ms", "p95"), ("itl_ms", "p95")])
        for *_, predicted, measured in rows:
            self.assertAlmostEqual(predicted / measured, 1, delta=0.25)
        runs[0]["ttft_ms"]["p50"] *= 2  # an error that must show
        shown = self.run_it(json.dumps(example), "--measured")
        self.assertRegex(shown, r"0 TTFT    p50 .* -[34]\d\.\d%\n")
        self.assertIn("mean absolute error", shown)

    def test_ends_with_the_error(self):
        with self.assertRaisesRegex(SystemExit, "scale_out_model.py: engine: is missing"):
            self.run_it(json.dumps({"load": model.EXAMPLE["load"]}))
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            model.main(["--example"])
        self.assertEqual(json.loads(shown.getvalue()), model.EXAMPLE)


if __name__ == "__main__":
    unittest.main()
