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

    def recipe(self, out, *options, status=0):
        """Returns the facts that the recipe keeps, and its output."""
        command = [sys.executable, "-B", str(TRAINING / "distill.py"), "--target", str(TARGET), "--out", str(out), "--tandem", TANDEM,
                   "--engine", "--threads 1", "--tell", "60", *options]
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, status, done.stdout)
        facts = pathlib.Path(f"{out}.work/facts.json")
        return json.loads(facts.read_text()) if facts.exists() else {}, done.stdout

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

        def defined(rest_counts, by_row):
            q, p = torch.softmax(states @ weight.T, -1).gather(1, top), lp.exp()
            rest, q_rest = 1 - p.sum(-1), 1 - q.sum(-1)
            kl = (p * (lp - q.log())).sum(-1) + rest_counts * rest * (rest / q_rest).log()
            return (kl if by_row is None else kl * by_row).mean()

        for by_row in (None, torch.rand(7)):
            ours = distill_train.HeadKl.apply(states, weight, top, lp, True, by_row)
            gradients = torch.autograd.grad(ours, (states, weight))
            self.assertAlmostEqual(ours.item(), defined(1, by_row).item(), delta=1e-5)
            self.assertNotAlmostEqual(ours.item(), defined(0, by_row).item(), delta=1e-2, msg="the rest counts")
            for seen, known in zip(gradients, torch.autograd.grad(defined(1, by_row), (states, weight))):
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
            return self.recipe(out, "--tokens", "6000", "--sequences", "48", "--length", "48", "--hidden", "64", "--layers", "1", "--ffn", "64",
                               "--measure-prompts", "6", "--measure-tokens", "24", *options, status=status)[0]

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


class Parallel(World):
    OPTIONS = dict(depths=5, keep=.7, keep_least=.2, by_depth="kept", rate=1e-3, seed=1, start=None, mask_token=None)

    def student(self, name="llama-rope3", **options):
        """A student that begins as one of the small models, with a mask."""
        import torch
        import distill_draft
        import distill_parallel
        distill_parallel.HeadKl.forward.__globals__["T"].SHORT = torch.float32
        distill_parallel.BLOCK = 3
        chosen = types.SimpleNamespace(**{**self.OPTIONS, **options})
        shape, weights, _ = distill_draft.read_draft(str(SOURCE / "tests/data/models" / name))
        mask, shape, weights = distill_parallel.with_mask(shape, weights, chosen.mask_token, 1 << 20)
        student = distill_parallel.ParallelStudent(shape, mask, [name, False], weights, "cpu", 64, chosen)
        student.begin(None)
        return student

    def text(self):
        """Two texts of 11 and 8 tokens with prompts of 3 and 2, as `Text.batch` returns them."""
        import torch
        torch.manual_seed(0)
        ids = torch.randint(0, 280, (2, 11))
        ids[1, 8:] = 0
        places = torch.cat([torch.arange(2, 10), 11 + torch.arange(1, 7)])
        lp, top = torch.log_softmax(2 * torch.randn(14, 280), -1).topk(4)
        top[::2, 1] = ids.flatten()[places + 1][::2]  # half of the tokens are among the likely ones
        return types.SimpleNamespace(batch=lambda rows, device: [ids, places, top, lp])

    @wants("numpy", "torch", "safetensors")
    def test_the_models_match_the_reference(self):
        import torch
        from safetensors.torch import load_file
        import distill_draft
        from model import Config, Llama
        for name in ("llama-gqa", "llama-tied", "llama-rope3", "llama-bf16", "qwen2-bias", "qwen2-fp16", "qwen3-norm"):
            folder = SOURCE / "tests/data/models" / name
            shape, weights, mask = distill_draft.read_draft(str(folder))
            net = Llama(Config(**shape))
            net.load_state_dict(weights)
            golden = load_file(folder / "golden.safetensors")
            with torch.no_grad():
                seen = net(golden["input_ids"].long()[None])[0]
            self.assertLess(float((seen - golden["logits"]).abs().max()), 1e-4, name)
            self.assertIsNone(mask)
        for name in ("mistral-full", "llama-yarn"):
            with self.assertRaisesRegex(SystemExit, "found (mistral|yarn), allowed: "):
                distill_draft.read_draft(str(SOURCE / "tests/data/models" / name))

    @wants("numpy", "torch", "safetensors", "gguf")
    def test_a_gguf_file_gives_what_the_folder_does(self):
        import distill_draft
        sys.path.insert(0, str(SOURCE / "benchmarks"))
        import safetensors_to_gguf

        def both(folder):
            converter = safetensors_to_gguf.Converter(str(folder), str(self.folder / "x.gguf"))
            converter.writer.add_uint32("tandem.draft.mask_token_id", 284)
            converter.write("F32", has_tokens=False)
            return [distill_draft.read_draft(str(path)) for path in (folder, self.folder / "x.gguf")]

        whole_llama3 = self.folder / "llama3"
        shutil.copytree(SOURCE / "tests/data/models/llama-rope3", whole_llama3)
        config = json.loads((whole_llama3 / "config.json").read_text())
        with self.assertRaisesRegex(SystemExit, "rope_freqs.weight: found other divisors"):
            both(whole_llama3)
        config["rope_scaling"]["original_max_position_embeddings"] = 8192
        (whole_llama3 / "config.json").write_text(json.dumps(config))
        for folder in (whole_llama3, *(SOURCE / "tests/data/models" / name for name in ("llama-gqa", "qwen2-bias", "qwen3-norm"))):
            (shape, weights, mask), (seen_shape, seen, seen_mask) = both(folder)
            self.assertEqual((seen_shape, mask, seen_mask), (shape, None, 284))
            self.assertEqual(list(seen), list(weights))
            for name, known in weights.items():
                self.assertTrue(bool((seen[name] == known).all()), name)

    @wants("numpy", "torch", "safetensors")
    def test_a_pass_gives_the_rows_of_texts_one_by_one(self):
        import torch
        for name in ("llama-rope3", "qwen2-bias", "qwen3-norm"):
            student = self.student(name)
            ids, places, _, _, chains = student.batch(self.text(), None)
            with torch.no_grad():
                states = student.net.features(chains.ids(ids, student.mask), chains.positions, chains.attend).flatten(0, 1)[chains.picks]
                self.assertEqual(set(chains.depth.tolist()), {0, 1, 2, 3, 4})
                for state, depth, lesson in zip(states, chains.depth.tolist(), chains.lesson.tolist()):
                    row, anchor = divmod(int(places[lesson - depth]), 11)
                    alone = torch.cat([ids[row, :anchor + 1], torch.full((depth,), student.mask)])
                    self.assertLess(float((student.net.features(alone[None])[0, -1] - state).abs().max()), 1e-4, (name, row, anchor, depth))

    @wants("numpy", "torch", "safetensors")
    def test_its_rows_match_the_reference_for_parallel_drafts(self):
        import torch
        from safetensors.torch import load_file
        import distill_draft
        from model import Config, Llama
        data = SOURCE / "tests/data/parallel"
        if not data.exists():
            self.skipTest("tests/data/parallel is missing")
        for name, told in json.loads((data / "reference.json").read_text())["models"].items():
            shape, weights, mask = distill_draft.read_draft(str(data / name))
            self.assertEqual(mask, told["mask_token_id"])
            net, slots = Llama(Config(**shape)), load_file(data / name / "golden.safetensors")["slots"]
            net.load_state_dict(weights)
            for case in told["cases"]:
                text = list(case["prompt"])
                for entry in case["rounds"]:
                    with torch.no_grad():
                        seen = net(torch.tensor([text + [mask] * (entry["rows"] - 1)]))[0, len(text) - 1:]
                    known = slots[entry["first_row"]:entry["first_row"] + entry["rows"]]
                    self.assertLess(float((seen - known).abs().max()), 2e-4, (name, case["name"]))
                    text += entry["committed_after"]

    @wants("numpy", "torch")
    def test_thinned_chains_are_nested(self):
        import numpy as np
        import distill_parallel
        shares = distill_parallel.shares_of(types.SimpleNamespace(**{**self.OPTIONS, "depths": 8}))
        self.assertTrue(np.allclose(shares, [.7, .49, .343, .2401, .2, .2, .2]))
        lessons = np.concatenate([5 + np.arange(400), 600 + 9 + np.arange(300)])
        made = [distill_parallel.Chains(lessons, 2, 600, shares, np.random.default_rng(seed)) for seed in (1, 1, 2)]
        kept = [set(zip((x.lesson - x.depth).tolist(), x.depth.tolist())) for x in made]
        self.assertEqual(kept[0], kept[1])
        self.assertNotEqual(kept[0], kept[2])
        for x, pairs in zip(made, kept):
            self.assertEqual(len(pairs), len(x.picks))
            self.assertEqual(len(set(x.picks.tolist())), len(x.picks))
            self.assertTrue(all((anchor, s - 1) in pairs for anchor, s in pairs if s > 0))
            for s, share in enumerate(shares, 1):
                # A chain that would go past its text's end is shorter: at most 2 * s of the 700 anchors.
                self.assertLessEqual(abs(sum(depth == s for _, depth in pairs) - 700 * share), 1 + 2 * s)
            row = np.asarray(lessons[x.lesson] // 600)
            self.assertTrue((row == x.picks // x.positions.shape[1]).all())
            self.assertEqual(x.counts, [int(np.bincount(row[x.depth == s]).max()) for s in range(1, 8)], "no columns but those of chains")
            self.assertTrue((x.positions.reshape(-1)[x.picks] == lessons[x.lesson] % 600).all())
        everything = distill_parallel.Chains(lessons, 2, 600, [1.0] * 7, np.random.default_rng(1))
        self.assertEqual(np.bincount(everything.depth).tolist(), [700 - 2 * s for s in range(8)])

    @wants("numpy", "torch", "safetensors")
    def test_a_weight_is_the_chance_of_the_chains_tokens(self):
        import torch
        student, text = self.student(), self.text()
        batch = student.batch(text, None, [1.0] * 4)
        ids, places, top, lp, chains = batch
        weights = student.weights_of(batch)
        for weight, depth, lesson in zip(weights.tolist(), chains.depth.tolist(), chains.lesson.tolist()):
            known = 1.0
            for i in range(lesson - depth, lesson):
                p = dict(zip(top[i].tolist(), lp[i].exp().tolist()))
                known *= p.get(int(ids.flatten()[places[i] + 1]), min(min(p.values()), 1 - sum(p.values())))
            self.assertAlmostEqual(weight / known, 1, delta=1e-4)
        self.assertTrue(bool((weights[chains.depth == 0] == 1).all()))
        self.assertIsNone(self.student(by_depth="even").weights_of(batch))

    @wants("numpy", "torch", "safetensors")
    def test_gradients_match_finite_differences(self):
        import torch
        for name, by_depth in (("llama-rope3", "kept"), ("qwen2-bias", "even"), ("qwen3-norm", "kept")):
            student = self.student(name, by_depth=by_depth)
            batch, parameters = student.batch(self.text(), None), list(student.net.parameters())
            gradients = torch.autograd.grad(student.loss(batch), parameters)
            self.assertGreater(float(gradients[0][student.mask].norm()), 0)
            # The loss bends more along its gradient, where a step of 2e-4 has an error of up to 0.8 %.
            for direction, step in ((gradients, 5e-5), ([torch.randn_like(w) * w.detach().std(correction=0) for w in parameters], 5e-3)):
                size = sum(float(d.norm()) ** 2 for d in direction) ** .5
                slope = sum(float((g * d).sum()) for g, d in zip(gradients, direction)) / size
                losses = []
                for sign in (1, -1):
                    with torch.no_grad():
                        for w, d in zip(parameters, direction):
                            w.add_(d, alpha=sign * step / size)
                        losses.append(student.loss(batch).item())
                        for w, d in zip(parameters, direction):
                            w.add_(d, alpha=-sign * step / size)
                # The losses, about 1, have 24 bits.
                self.assertAlmostEqual((losses[0] - losses[1]) / (2 * step), slope, delta=.005 * abs(slope) + 2 ** -22 / step, msg=name)

    @wants("numpy", "torch", "safetensors")
    def test_the_mask_gets_the_first_free_row(self):
        import torch
        import distill_parallel
        weights = {"model.embed_tokens.weight": torch.arange(10.).view(5, 2), "lm_head.weight": torch.ones(5, 2)}
        mask, shape, made = distill_parallel.with_mask({"vocab": 5}, weights, None, 3)
        self.assertEqual((mask, shape["vocab"], made["model.embed_tokens.weight"][3].tolist()), (3, 5, [4, 5]))
        self.assertEqual(made["model.embed_tokens.weight"][[0, 1, 2, 4]].tolist(), [[0, 1], [2, 3], [4, 5], [8, 9]])
        mask, shape, made = distill_parallel.with_mask({"vocab": 5}, weights, None, 5)
        self.assertEqual((mask, shape["vocab"], made["lm_head.weight"].shape[0]), (5, 6, 6))
        self.assertEqual(distill_parallel.with_mask({"vocab": 5}, weights, 1, 5)[0], 1)
        with self.assertRaisesRegex(SystemExit, "--mask-token: found 6, allowed: 0 to 5"):
            distill_parallel.with_mask({"vocab": 5}, weights, 6, 5)

    @wants("numpy", "torch")
    def test_tokens_a_round_are_the_sum_of_products(self):
        import numpy as np
        import torch
        student, text = self.student(), self.text()
        seen = student.evaluate(text, [0])
        ids, places, top, lp, chains = batch = student.batch(text, None, [1.0] * 4)
        with torch.no_grad():
            student.loss(batch)
        stats = {(lesson - depth, depth): row for row, lesson, depth in
                 zip(type(student).loss.__globals__["HeadKl"].stats.tolist(), chains.lesson.tolist(), chains.depth.tolist())}
        for i, name in enumerate(("kl", "accepted", "agreed")):
            known = [np.mean([row[i] for (_, depth), row in stats.items() if depth == s]) for s in range(5)]
            self.assertTrue(np.allclose(seen[name], known), name)
        anchors = [anchor for anchor, depth in stats if depth == 4]
        along = lambda i, anchor, depth: np.prod([stats[anchor, s][i] for s in range(depth + 1)])
        self.assertAlmostEqual(seen["tokens_a_round"], 1 + sum(np.mean([along(1, a, s) for a in anchors]) for s in range(5)), delta=1e-6)
        likely = (ids.flatten()[places + 1] == top[:, 0]).tolist()
        judged = lambda s: [along(2, a, s) for a in anchors if all(likely[a:a + s])]
        self.assertAlmostEqual(seen["tokens_a_round_greedy"], 1 + sum(np.mean(judged(s) or [0]) for s in range(5)), delta=1e-6)

    @wants("numpy", "torch", "safetensors")
    def test_the_recipe_makes_a_parallel_draft_and_resumes(self):
        out = self.folder / "draft"

        def recipe(*options, status=0):
            return self.recipe(out, "--kind", "parallel", "--tokens", "4000", "--sequences", "48", "--length", "40", "--depths", "4",
                               "--rate", "1e-3", "--only", "write,train,export", *options, status=status)

        begun = ("--from", str(SOURCE / "models/storyteller-1m"))
        self.assertIn("give --from DRAFT", recipe("--steps", "0", status=1)[1])
        untrained = recipe(*begun, "--steps", "0")[0]["training"]
        trained = recipe(*begun, "--steps", "60", "--resume")[0]["training"]
        self.assertEqual((untrained["steps"], trained["steps"], len(trained["kl"])), (0, 60, 4))
        self.assertEqual(recipe(*begun, "--only", "train", "--steps", "60")[0]["training"], trained, "it was finished")
        for s in (1, 2, 3):
            self.assertLess(trained["kl"][s], untrained["kl"][s] - .3)
        self.assertLess(trained["kl"][0], untrained["kl"][0] + .05, "it is still a serial draft")
        self.assertGreater(trained["tokens_a_round"], untrained["tokens_a_round"])
        config = json.loads((out / "config.json").read_text())
        self.assertEqual((config["pard_token"], config["spd_type"], config["vocab_size"]), (4096, "pard", 4097))
        import distill_draft
        self.assertEqual(distill_draft.read_draft(str(out))[2], 4096)
        card = (out / "README.md").read_text()
        self.assertIn("| tokens in one pass | trained for 4, with the mask token 4096 ", card)
        self.assertIn(f"; tokens a round {trained['tokens_a_round']:.2f} at T = 1, ", card)
        self.assertIn("use these, or remove the file", recipe(*begun, "--mask-token", "7", status=1)[1])
        self.assertIn("use these, or remove the file", recipe(status=1)[1])

        (self.folder / "draft.work/parallel.pt").unlink()
        recipe("--kind", "model", "--hidden", "64", "--layers", "1", "--ffn", "64", "--steps", "40", "--only", "train")
        own = recipe("--steps", "30", "--mask-token", "5")[0]["training"]
        self.assertEqual((own["begun_from"], own["mask_token"]), ("the student of --kind model", 5))


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
