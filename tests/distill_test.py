"""The recipe that makes drafts, models/training/distill.py: distill_test.py TANDEM [unittest's arguments]

Tests that need numpy, torch or gguf are skipped with a message if these are missing.
"""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

sys.dont_write_bytecode = True  # Do not write into the repository.
SOURCE = pathlib.Path(__file__).resolve().parent.parent
TRAINING = SOURCE / "models/training"
sys.path.insert(0, str(TRAINING))
import distill_program  # noqa: E402

TANDEM = ""
TARGET = SOURCE / "models/storyteller-7m"
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
ONE_THREAD = ["--threads", "1"]


def wants(*modules):
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return unittest.skipIf(missing, f"{' and '.join(missing)} not installed")


class World(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, target=TARGET):
        return distill_program.Program(TANDEM, str(target), ONE_THREAD)

    def model_that_chats(self):
        """The target with a chat template."""
        folder = self.folder / "chats"
        shutil.copytree(TARGET, folder)
        config = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": CHATML}))
        return folder

    def writer(self, folder, target=TARGET, **options):
        import distill_text
        chosen = dict(prompts="", text="", sequences=16, length=12, top=4, at_once=16, seed=3, prompt_tokens=[5, 9])
        return distill_text.Writer(distill_program.Form(self.program(target)), str(self.folder / folder),
                                   types.SimpleNamespace(**{**chosen, **options}), 1024)

    def runs(self, folder):
        import numpy as np
        return {file.name: dict(np.load(file)) for file in sorted((self.folder / folder).glob("*.npz"))}


class Forms(World):
    def test_ends_that_prompts_share_do_not_overlap(self):
        shared_ends = distill_program.shared_ends
        self.assertEqual(shared_ends([[1, 2, 7, 3], [1, 2, 8, 9, 3]]), ([1, 2], [3]))
        self.assertEqual(shared_ends([[1, 1], [1, 1, 1]]), ([1, 1], []))
        self.assertEqual(shared_ends([[5], [6]]), ([], []))

    def test_a_question_is_the_text_before_its_complete_closing(self):
        question_in = distill_program.question_in
        self.assertEqual(question_in([4, 5, 8, 9, 6, 8, 9], [8, 9]), [4, 5])
        self.assertEqual(question_in([4, 8, 5, 8, 9], [8, 9]), [4, 8, 5])
        self.assertIsNone(question_in([4, 5, 8], [8, 9]))
        self.assertIsNone(question_in([8, 9, 4], [8, 9]), "an empty question")

    def test_the_token_in_front_of_a_prompt_is_found(self):
        form = distill_program.Form(self.program())
        self.assertEqual((form.front, form.opening), ([0], None))
        self.assertIn("has no chat template", form.why_plain)

    def test_the_form_of_a_question_matches_the_template(self):
        program = self.program(self.model_that_chats())
        form = distill_program.Form(program)
        prompt = "<|im_start|>user\nWho is there?<|im_end|>\n<|im_start|>assistant\n"
        self.assertEqual(form.chat_ids(["Who is there?"]), program.tokenize([prompt]))
        self.assertEqual(program.tokenize(["<|im_start|>user\n"])[0], form.opening)
        self.assertEqual(form.opening + program.tokenize(["Who is there?"])[0] + form.closing, form.chat_ids(["Who is there?"])[0])
        self.assertEqual(form.chat_ids(["Who?", "Who? " * 2000])[1], None, "longer than the context")


class Text(World):
    @wants("numpy")
    def test_lessons_equal_the_targets_logprobs_at_each_position(self):
        self.writer("data").write(400, 600)
        runs = self.runs("data")
        self.assertEqual([name.split("-")[1] for name in runs], ["beginnings.npz", "continuations.npz", "beginnings.npz"])
        self.assertEqual([float(run["temperature"]) for run in runs.values()], [.7, 0, .85][:len(runs)])
        for run in runs.values():
            for i in (0, 7, 15):
                length, prompt = int(run["length"][i]), int(run["prompt"][i])
                ids = run["ids"][i, :prompt + length].tolist()
                self.assertEqual(length, 12)
                read = self.program().write([{"prompt_ids": ids}], "--max-tokens", 1, "--prompt-logprobs", 4, "--kv-cache", "bf16")
                for place, told in enumerate(read[0]["prompt_logprobs"][prompt:]):
                    self.assertEqual(run["top"][i, place].tolist(), [token for token, _ in told["top"]])
                    for seen, (_, value) in zip(run["lp"][i, place], told["top"]):
                        self.assertAlmostEqual(float(seen), value, delta=abs(value) / 1024)  # float16 has 11 bits
            if run["temperature"] == 0:
                self.assertEqual(run["top"][3, 0, 0], run["ids"][3, run["prompt"][3]])

    @wants("numpy")
    def test_an_interrupted_run_is_written_again(self):
        self.writer("data").write(500, 600)
        whole = self.runs("data")
        (self.folder / "data" / list(whole)[-1]).unlink()
        self.writer("data").write(500, 600)
        self.assertEqual([(name, key, x.tolist()) for name, run in whole.items() for key, x in run.items()],
                         [(name, key, x.tolist()) for name, run in self.runs("data").items() for key, x in run.items()])
        self.writer("others", seed=4).write(200, 600)
        name = next(iter(whole))
        self.assertNotEqual(self.runs("others")[name]["ids"].tolist(), whole[name]["ids"].tolist(), "another seed gives another text")

    @wants("numpy")
    def test_a_held_out_question_is_excluded_everywhere(self):
        prompts = self.folder / "questions.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": f"Who is number {i}?"}) + "\n" for i in range(20)))
        form = distill_program.Form(self.program(self.model_that_chats()))
        writer = self.writer("data", target=self.folder / "chats", prompts=str(prompts))
        self.assertEqual(writer.plan, ["conversations", "answers", "questions", "questions"])
        asked = [form.chat_ids([f"Who is number {i}?"])[0] for i in range(20)]
        for nth in range(4):
            ids, held = writer.questions(nth, None)
            self.assertEqual([asked.index(x) % 16 == 0 for x in ids], held)
        self.assertEqual(asked.index(writer.questions(1, None)[0][0]), 16, "it continues where it stopped")

    @wants("numpy")
    def test_models_without_own_questions_get_more_conversations(self):
        self.writer("data", target=self.model_that_chats(), length=6).write(150, 600)
        self.assertEqual([name[6:] for name in self.runs("data")], ["conversations.npz", "conversations.npz"])


class Student(World):
    @wants("numpy", "torch")
    def test_the_loss_and_its_gradients_match_the_definition(self):
        import torch
        import distill_train
        distill_train.T.SHORT = torch.float32
        torch.manual_seed(0)
        states, weight = torch.randn(7, 8, requires_grad=True), torch.randn(50, 8, requires_grad=True)
        lp, top = torch.log_softmax(2 * torch.randn(7, 50), -1).topk(5)

        def defined(rest_counts):
            q, p = torch.softmax(states @ weight.T, -1).gather(1, top), lp.exp()
            rest, q_rest = 1 - p.sum(-1), 1 - q.sum(-1)
            return ((p * (lp - q.log())).sum(-1) + rest_counts * rest * (rest / q_rest).log()).mean()

        ours = distill_train.HeadKl.apply(states, weight, top, lp, True)
        gradients = torch.autograd.grad(ours, (states, weight))
        self.assertAlmostEqual(ours.item(), defined(1).item(), delta=1e-5)
        self.assertNotAlmostEqual(ours.item(), defined(0).item(), delta=1e-2, msg="the rest counts")
        for seen, known in zip(gradients, torch.autograd.grad(defined(1), (states, weight))):
            self.assertLess(float((seen - known).abs().max()), 1e-5)

    @wants("numpy", "torch", "gguf", "safetensors")
    def test_the_embedding_of_a_gguf_file_matches_the_folder(self):
        import distill_train
        file = self.folder / "x.gguf"
        self.program().run("quantize", TARGET, "--to", "q8_0", "--out", file)
        known, seen = (distill_train.embedding_of(str(path)) for path in (TARGET, file))
        largest = known.reshape(len(known), -1, 32).abs().amax(-1, keepdim=True).expand(-1, -1, 32).reshape(known.shape)
        # The error is half a step of largest / 127, and the scale is rounded to 11 bits.
        self.assertTrue(bool(((seen - known).abs() <= largest * (.5 / 127 + 1 / 2048) + 1e-7).all()))

    @wants("numpy", "torch", "safetensors")
    def test_the_recipe_makes_an_accepted_draft_and_resumes(self):
        out = self.folder / "draft"

        def recipe(*options, status=0):
            command = [sys.executable, "-B", str(TRAINING / "distill.py"), "--target", str(TARGET), "--out", str(out), "--tandem", TANDEM,
                       "--engine", "--threads 1", "--tokens", "6000", "--sequences", "48", "--length", "48", "--hidden", "64",
                       "--layers", "1", "--ffn", "64", "--tell", "60", "--measure-prompts", "6", "--measure-tokens", "24", *options]
            done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"})
            self.assertEqual(done.returncode, status, done.stdout)
            return json.loads((self.folder / "draft.work/facts.json").read_text())

        untrained = recipe("--steps", "0")
        self.assertEqual(untrained["training"]["steps"], 0)
        trained = recipe("--steps", "120", "--resume")
        self.assertEqual(trained["training"]["steps"], 120)
        self.assertLess(trained["training"]["kl"], untrained["training"]["kl"] - .5)
        self.assertEqual(recipe("--only", "train", "--steps", "120")["training"], trained["training"], "it was finished")
        self.assertGreater(trained["measured"]["rate"], untrained["measured"]["rate"] + .01)
        self.assertTrue(trained["measured"]["identical"])
        self.assertEqual(sorted(file.name for file in out.iterdir()), ["README.md", "config.json", "model.safetensors"])
        self.assertIn("| in use, greedy, k 4 | ", (out / "README.md").read_text())
        recipe("--only", "export", "--to", "q8_0")
        self.assertEqual(sorted(file.name for file in out.iterdir()), ["README.md", "draft.q8_0.gguf"])
        (out / "notes.txt").write_text("somebody's")
        recipe("--only", "export", status=1)
        self.assertEqual(sorted(file.name for file in out.iterdir()), ["README.md", "draft.q8_0.gguf", "notes.txt"])


class Heads(World):
    SHAPE = dict(hidden=16, heads=4, kv_heads=2, head_dim=8, ffn=24, theta=1e4, eps=1e-5, vocab=40)

    def head(self, kind):
        import torch
        import distill_head
        distill_head.T.SHORT = torch.float32
        torch.manual_seed(0)
        states = 3 if kind == "eagle3" else 1
        head = distill_head.Head({**self.SHAPE, "kind": kind, "states": states, "layers": []}, torch.arange(0, 40, 2), torch.randn(40, 16),
                                 torch.randn(40, 16))
        return head, torch.randn(1, 9, 16 * states)

    @wants("numpy")
    def test_the_states_belong_to_the_written_text(self):
        import numpy as np
        import distill_text
        self.writer("data", top=0).write(150, 600)
        program, layers = self.program(), self.program().inspect()["architecture"]["num_layers"]
        distill_text.write_states(program, str(self.folder / "data"), [1, layers])
        for file in distill_text.run_files(str(self.folder / "data")):
            run, left = np.load(file), np.load(distill_text.states_file(file))
            self.assertNotIn("top", run)
            self.assertEqual(left["lengths"].tolist(), (run["prompt"] + run["length"]).tolist())
            self.assertEqual(left["ids"].tolist(), [i for ids, n in zip(run["ids"], left["lengths"]) for i in ids[:n]])
            self.assertEqual(left["states"].shape, (len(left["ids"]), 2, program.inspect()["architecture"]["hidden_size"]))
            # The same tokens give the same states when they are read alone.
            first = int(left["lengths"][0])
            program.features([left["ids"][first:first + int(left["lengths"][1])].tolist()], ["1", "last"], str(self.folder / "alone.npz"))
            alone = np.load(self.folder / "alone.npz")["states"]
            self.assertTrue((alone == left["states"][first:first + len(alone)]).all())

    @wants("numpy", "torch")
    def test_text_without_states_is_refused(self):
        import types
        import distill_head
        import numpy as np
        import torch
        data = self.folder / "data"
        data.mkdir()
        options = types.SimpleNamespace(seed=1, train_device="cpu", unroll=2)
        train = lambda: distill_head.train(str(data), {"states": 1}, torch.zeros(40, 16), torch.zeros(40, 16), str(self.folder / "x.pt"), options)
        with self.assertRaisesRegex(SystemExit, "data: the text is missing"):
            train()
        np.savez(data / "00000-text.npz", ids=np.zeros((1, 4), np.int32))
        with self.assertRaisesRegex(SystemExit, "00000-text.npz: has no states"):
            train()

    @wants("numpy", "torch")
    def test_the_unrolled_steps_match_drafting(self):
        import torch
        for kind in ("one_layer", "eagle3"):
            head, states = self.head(kind)
            ids = torch.randint(0, 40, (1, 9))
            unrolled = list(head.unroll(ids, states, 3))
            for anchor in (0, 4, 5):
                # The known rows one after the other, then the draft's own rows.
                first = torch.nn.functional.linear(states, head.fc) if kind == "eagle3" else states
                rows = [(ids[:, 1:anchor + 2], first[:, :anchor + 1])]
                for step in range(3):
                    tokens, read = (torch.cat(part, 1) for part in zip(*rows))
                    state = head.step(0, tokens, read, [], None)[:, -1:]
                    self.assertLess(float((head.norm(state)[0, 0] - unrolled[step][0, anchor]).abs().max()), 1e-4, (kind, anchor, step))
                    rows.append((ids[:, anchor + 2 + step:anchor + 3 + step], state))

    @wants("numpy", "torch")
    def test_the_loss_and_its_gradients_match_the_definition(self):
        import torch
        import distill_head
        distill_head.T.SHORT = torch.float32
        torch.manual_seed(0)
        states, weight, lessons = torch.randn(7, 8, requires_grad=True), torch.randn(30, 8, requires_grad=True), 2 * torch.randn(7, 30)
        known = torch.nn.functional.kl_div(torch.log_softmax(states @ weight.T, -1), torch.softmax(lessons, -1), reduction="batchmean")
        ours = distill_head.DraftKl.apply(states, weight, lessons, True)
        self.assertAlmostEqual(ours.item(), known.item(), delta=1e-5)
        for seen, defined in zip(torch.autograd.grad(ours, (states, weight)), torch.autograd.grad(known, (states, weight))):
            self.assertLess(float((seen - defined).abs().max()), 1e-5)

    @wants("numpy", "torch")
    def test_its_tokens_are_the_most_frequent_in_the_text(self):
        import numpy as np
        import distill_head
        ids = np.array([[7, 7, 7, 9, 9, 2000, 5]])
        np.savez(self.folder / "run.npz", ids=ids, prompt=np.array([3]), length=np.array([4]))
        found, share = distill_head.frequent_tokens([self.folder / "run.npz"], 4096, .7, 16384)
        self.assertEqual((len(found), share), (1024, 1.0))
        self.assertIn(2000, found)
        self.assertTrue((np.diff(found) > 0).all())
        found, share = distill_head.frequent_tokens([self.folder / "run.npz"], 4096, .7, 1)
        self.assertEqual((found.tolist(), share), ([9], .5))


if __name__ == "__main__":
    TANDEM = os.path.abspath(sys.argv.pop(1))
    program = unittest.main(verbosity=2, exit=False)
    # For ctest: skipped if every test was skipped.
    result = program.result
    everything_skipped = len(result.skipped) == result.testsRun > 0
    sys.exit(77 if everything_skipped else not result.wasSuccessful())
