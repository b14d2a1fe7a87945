"""The program under faults of the machine: faults_test.py TANDEM [--sanitized] [--failing-malloc LIBRARY] [unittest's arguments]

Signals that interrupt system calls, descriptors that run out during loading and serving, a small share of a processor,
little memory, allocations that fail, and a clock that is set. None of these may end the server or change an answer, or end a command other than with one error.
Tests that a machine cannot run are skipped with a message.
"""

import concurrent.futures
import contextlib
import itertools
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True  # Do not write into the repository.
SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "benchmarks"))
import serving  # noqa: E402

TANDEM = ""
IS_SANITIZED = False
FAILING_MALLOC = ""  # the library that tests/faults/failing_malloc.cc becomes
PAIR = ["--target", str(SOURCE / "models/storyteller-7m"), "--draft", str(SOURCE / "models/storyteller-1m")]
MEGABYTE = 1 << 20
STEP = int(os.environ.get("TANDEM_FAULTS_STEP_MB", "200")) * MEGABYTE  # of the sweeps of memory limits
BODIES = [{"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0},
          {"prompt": "The king", "max_tokens": 40, "temperature": 0.8, "seed": 3, "n": 3},
          {"prompt": "A", "max_tokens": 20, "temperature": 1.2, "seed": 4, "logprobs": 3}]
LIBRARIES = pathlib.Path("/usr/lib")
GROUPS = pathlib.Path("/sys/fs/cgroup")


def limited(kind, amount):
    """For subprocess: sets a resource limit in the new process."""
    return lambda: resource.setrlimit(kind, (amount, amount))


NUMBERS = itertools.count()


def constrained():
    """Constraints that no server has kept: cheap and costly to compile, and one that is costly to follow."""
    number = next(NUMBERS)
    fields = ({"guided_json": {"enum": [f"{number} {i:06}" for i in range(4000)]}},
              {"guided_regex": f"{number}( a?){{400}}"},
              {"guided_grammar": f'root ::= root root | "{number}"'},
              {"guided_choice": [f"{number}", "a" * 50000]})
    return {"prompt": "A", "max_tokens": 30, **fields[number % len(fields)]}


def everything():
    """One request of each kind in turn."""
    number = next(NUMBERS)
    schema = {"type": "object", "properties": {f"name{number % 50}": {"type": "string"}}}
    chat = {"messages": [{"role": "user", "content": f"Tell me about king {number}."}], "max_tokens": 30, "logprobs": True,
            "tools": [{"type": "function", "function": {"name": "look", "parameters": schema}}]}
    forms = (("/v1/chat/completions", chat),
             ("/v1/chat/completions", {**chat, "stream": True, "stream_options": {"include_usage": True}}),
             ("/v1/responses", {"input": "The king", "max_output_tokens": 30}),
             ("/v1/completions", {"prompt": ["The king", "A"], "max_tokens": 30, "n": 2, "echo": True, "seed": number,
                                  "frequency_penalty": 0.5, "logit_bias": {"7": 1}, "stop": ["qqq"], "user": f"{number}"}),
             ("/v1/completions", {"prompt": "A", "max_tokens": 9, "guided_json": schema, "include_token_texts": True}),
             ("/v1/completions", {"prompt": "A", "max_tokens": "many", "unknown": [{"a": number}]}),
             ("/v1/embeddings", {"input": ["The king", "A"]}),
             ("/tokenize", {"prompt": "The king " * 100}))
    path, body = forms[number % len(forms)]
    return {"path": path, **body}


LOADS = {"constraints": constrained,
         "bodies": lambda: {"prompt": "A long text, number " * 100000, "max_tokens": 1},
         "streams": lambda: {"prompt": "The king", "max_tokens": 300, "n": 4, "logprobs": 5, "stream": True}}


def endure(server, body):
    """Sends a request to a server without memory: it is answered, cut off or refused, and does not hang."""
    path = body.pop("path", "/v1/completions")
    try:
        with server.connect() as connection:
            connection.sendall(serving.request_bytes(path, body, "Connection: close\r\n"))
            while connection.recv(1 << 16):
                pass
    except (ConnectionError, BrokenPipeError):
        pass


def ask(server, body):
    """The status, and the answer's choices or its error; status 0 without an answer."""
    answer = b""
    with server.connect() as connection:
        try:
            connection.sendall(serving.request_bytes("/v1/completions", body, "Connection: close\r\n"))
            while part := connection.recv(1 << 16):
                answer += part
        except (ConnectionResetError, BrokenPipeError):
            return 0, None
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head:
        return 0, None
    status, answer = int(head.split(b" ", 2)[1]), json.loads(body)
    if status != 200:
        return status, answer["error"]["message"]
    return status, [(choice["text"], choice["token_ids"], choice["finish_reason"]) for choice in answer["choices"]]


def generate(*options, **how):
    """Runs `tandem generate` until it ends, and returns its status, output and errors."""
    command = [TANDEM, "generate", *PAIR, "--prompt", "The king", "--max-tokens", "12", "--temperature", "0", "--threads", "2",
               *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, **how)
    return done.returncode, done.stdout, done.stderr


@contextlib.contextmanager
def control_group(case, controller, **settings):
    """Makes a control group with these settings. Yields a function that moves the calling process into it."""
    for parent in (GROUPS / controller, GROUPS):
        group = parent / f"tandem_faults_{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            for name, value in settings.items():
                file = group / name.replace("__", ".")
                if not file.exists():
                    break
                file.write_text(str(value))
            else:
                yield lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
                return
        finally:
            group.rmdir()
    case.skipTest(f"cannot create a control group with the controller {controller}")


class Faults(unittest.TestCase):
    @contextlib.contextmanager
    def serving(self, wrapper=()):
        """A server that must end with 0 on SIGTERM, after it has checked its caches."""
        with serving.Server(TANDEM, [*PAIR, "--threads", "2"], wrapper=wrapper) as server:
            yield server
            self.assertIsNone(server.process.poll(), server.log())
            self.assertTrue(server.await_idle(), "a request is still running")
            self.assertEqual(server.stop(), 0, server.log())
            self.assertNotIn("[critical]", server.log())

    def answers(self, server):
        answers = [ask(server, body) for body in BODIES]
        self.assertEqual([status for status, _ in answers], [200] * len(BODIES), answers)
        return answers

    def skip_under_sanitizers(self, why):
        if IS_SANITIZED:
            self.skipTest(f"under sanitizers {why}")

    def test_signals_that_interrupt_change_no_answer(self):
        """Stopped and continued processes see their system calls interrupted, without a handler."""
        with self.serving() as server:
            alone = self.answers(server)
            is_over = threading.Event()

            def trouble():
                draw = random.Random(1)
                while not is_over.wait(0.001):
                    server.process.send_signal(draw.choice([signal.SIGSTOP, signal.SIGWINCH, signal.SIGURG, signal.SIGCHLD]))
                    server.process.send_signal(signal.SIGCONT)

            thread = threading.Thread(target=trouble)
            thread.start()
            try:
                for _ in range(3):
                    self.assertEqual(self.answers(server), alone)
            finally:
                is_over.set()
                thread.join()

    def test_descriptors_that_run_out_while_serving(self):
        with self.serving() as server:
            alone = self.answers(server)
            used = max(int(name) for name in os.listdir(f"/proc/{server.process.pid}/fd")) + 1
            limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (used + 4, limits[1]))
            crowd = [server.connect() for _ in range(20)]  # the system accepts them, but the server cannot
            for connection in crowd:
                connection.close()
            for _ in range(3):
                self.assertEqual(self.answers(server), alone)
            if IS_SANITIZED:  # the check of a thread's object reports an invalid one if it cannot open a pipe
                resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)

    def test_every_limit_of_descriptors_at_load(self):
        wanted = generate()
        self.assertEqual(wanted[0], 0, wanted)
        outcomes = []
        for limit in range(4, 40):
            status, output, errors = generate(preexec_fn=limited(resource.RLIMIT_NOFILE, limit))
            if status == 127:  # the program's libraries could not be opened
                continue
            outcomes.append(status)
            if status == 0:
                self.assertEqual(output, wanted[1])
            else:
                self.assertEqual(status, 1, f"{limit} descriptors: {errors}")
                self.assertRegex(errors, "(?i)too many open files|error", f"{limit} descriptors")
        self.assertIn(0, outcomes)

    def test_a_small_share_of_a_processor_changes_no_answer(self):
        wanted = generate()
        settings = {"cpu__cfs_period_us": 100000, "cpu__cfs_quota_us": 20000} if (GROUPS / "cpu").exists() else {"cpu__max": "20000 100000"}
        with control_group(self, "cpu", **settings) as enter:
            self.assertEqual(generate(preexec_fn=enter)[:2], wanted[:2])

    def test_a_limit_of_memory_of_a_group(self):
        """The system kills a process beyond the limit. A process that ends by itself gives the right answer or one error."""
        self.skip_under_sanitizers("memory is counted differently")
        wanted = generate()
        name = "memory__limit_in_bytes" if (GROUPS / "memory").exists() else "memory__max"
        outcomes = []
        for limit in (24, 48, 96, 400):
            with control_group(self, "memory", **{name: limit * MEGABYTE}) as enter:
                status, output, errors = generate(preexec_fn=enter)
            outcomes.append(status)
            self.assertIn(status, (0, 1, -signal.SIGABRT, -signal.SIGKILL), f"{limit} MB: {errors}")
            if status == 0:
                self.assertEqual(output, wanted[1])
        self.assertEqual(outcomes[-1], 0, "400 MB are enough")

    def test_every_limit_of_memory_at_start(self):
        """A server that lacks memory or threads starts, or ends with one error."""
        self.skip_under_sanitizers("memory is reserved in terabytes")
        has_started = False
        for limit in range(STEP // 2, 100 * STEP, STEP):
            process = subprocess.Popen([TANDEM, "serve", *PAIR, "--port", "0"], stderr=subprocess.PIPE, text=True,
                                       preexec_fn=limited(resource.RLIMIT_AS, limit))
            with process:
                errors = ""
                while (line := process.stderr.readline()) and not has_started:
                    errors += line
                    if has_started := "address=" in line:
                        process.terminate()
            with self.subTest(limit=limit // MEGABYTE):
                if has_started:
                    self.assertEqual(process.returncode, 0, errors)
                    return
                self.assertIn(process.returncode, (1, 127), errors)  # 127: the program's libraries do not fit
                self.assertRegex(errors, "(?i)error|cannot allocate")
        self.fail("never started")

    def test_every_limit_of_memory_while_serving(self):
        """From less memory than the server has to enough. It lives, and answers as before once it has memory again."""
        self.skip_under_sanitizers("memory is reserved in terabytes")
        for name, load in LOADS.items():
            with self.serving() as server, concurrent.futures.ThreadPoolExecutor(8) as pool:
                alone = self.answers(server)
                for more in range(-STEP, 401 * MEGABYTE, STEP):
                    with open(f"/proc/{server.process.pid}/statm", encoding="ascii") as file:
                        used = int(file.read().split()[0]) * resource.getpagesize()
                    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))
                    list(pool.map(lambda load: endure(server, load()), [load] * 12))
                    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
                    with self.subTest(load=name, more=more // MEGABYTE):
                        self.assertIsNone(server.process.poll(), server.log()[-2000:])
                        self.assertEqual(self.answers(server), alone)

    def test_allocations_that_fail_while_serving(self):
        """Some requests fail. The server lives, and answers as before once allocations succeed again."""
        self.skip_under_sanitizers("they allocate themselves")
        if not FAILING_MALLOC:
            self.skipTest("without --failing-malloc")
        for name, load in {**LOADS, "everything": everything}.items():
            for one_of in (100, 300, 1000):
                wrapper = ["env", f"LD_PRELOAD={FAILING_MALLOC}", f"FAILING_MALLOC={one_of}"]
                with (self.subTest(load=name, one_of=one_of), self.serving(wrapper=wrapper) as server,
                      concurrent.futures.ThreadPoolExecutor(8) as pool):
                    alone = self.answers(server)
                    server.process.send_signal(signal.SIGUSR2)
                    list(pool.map(lambda load: endure(server, load()), [load] * 60))
                    server.process.send_signal(signal.SIGUSR1)
                    self.assertIsNone(server.process.poll(), server.log()[-2000:])
                    while ask(server, BODIES[0])[0] != 200:  # until the process has taken the signal
                        time.sleep(0.01)
                    self.assertEqual(self.answers(server), alone)
                    self.assertIn("out of memory", server.log())

    def test_allocations_that_fail_while_models_are_loaded(self):
        """Two models that do not fit together, asked for in turn. Both answer as before afterwards."""
        self.skip_under_sanitizers("they allocate themselves")
        if not FAILING_MALLOC:
            self.skipTest("without --failing-malloc")
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as models:
            for name, target in ("a", PAIR[1]), ("b", PAIR[3]):
                models.write(f'[[model]]\nname = "{name}"\ntarget = "{target}"\nkv-memory = "16M"\n')
            models.flush()
            bodies = [{"prompt": "The king", "max_tokens": 8, "seed": 3, "model": name} for name in "ab"]
            for one_of in 100, 1000, 10000:
                wrapper = ["env", f"LD_PRELOAD={FAILING_MALLOC}", f"FAILING_MALLOC={one_of}"]
                words = ["--models", models.name, "--models-memory", "45M", "--threads", "1"]
                with (self.subTest(one_of=one_of), serving.Server(TANDEM, words, wrapper=wrapper) as server,
                      concurrent.futures.ThreadPoolExecutor(8) as pool):
                    alone = [ask(server, body) for body in bodies]
                    self.assertEqual([status for status, _ in alone], [200, 200], alone)
                    server.process.send_signal(signal.SIGUSR2)
                    list(pool.map(lambda body: endure(server, dict(body)), bodies * 30))
                    server.process.send_signal(signal.SIGUSR1)
                    for body, answer in zip(bodies, alone):
                        while (after := ask(server, body))[0] != 200:  # a failed load is tried again after ten seconds
                            self.assertIsNone(server.process.poll(), server.log()[-2000:])
                            time.sleep(0.1)
                        self.assertEqual(after, answer)
                    self.assertEqual(server.stop(), 0, server.log()[-2000:])
                    self.assertIn("out of memory", server.log())

    def test_a_clock_that_is_set_changes_neither_answers_nor_times(self):
        library = next(iter(LIBRARIES.glob("*/faketime/libfaketimeMT.so.1")), None)
        if library is None:
            self.skipTest("libfaketime is not installed (Debian's package faketime)")
        self.skip_under_sanitizers("libraries preloaded before theirs are refused")
        with tempfile.NamedTemporaryFile("w", suffix=".faketime") as clock:

            def set_clock(offset):
                clock.seek(0)
                clock.truncate()
                clock.write(offset)
                clock.flush()

            set_clock("+0")
            wrapper = ["env", f"LD_PRELOAD={library}", f"FAKETIME_TIMESTAMP_FILE={clock.name}", "FAKETIME_NO_CACHE=1",
                       "DONT_FAKE_MONOTONIC=1"]
            with self.serving(wrapper=wrapper) as server:
                alone = self.answers(server)
                for offset in ("-1h", "+0", "-10d", "+1h", "-5"):
                    set_clock(offset)
                    self.assertEqual(self.answers(server), alone)
                for name, value in server.metrics().items():
                    if "_seconds" in name:
                        self.assertGreaterEqual(value, 0, name)
                        # Longer than this can take, and far below an hour.
                        self.assertLess(value, 3000 if "_sum" in name else float("inf"), name)


if __name__ == "__main__":
    TANDEM = os.path.abspath(sys.argv.pop(1))
    if "--sanitized" in sys.argv:
        sys.argv.remove("--sanitized")
        IS_SANITIZED = True
    if "--failing-malloc" in sys.argv:
        FAILING_MALLOC = sys.argv.pop(sys.argv.index("--failing-malloc") + 1)
        sys.argv.remove("--failing-malloc")
    program = unittest.main(verbosity=2, exit=False)
    # For ctest: skipped if every test was skipped.
    result = program.result
    everything_skipped = len(result.skipped) == result.testsRun > 0
    sys.exit(77 if everything_skipped else not result.wasSuccessful())
