"""The student: a small model (model.py) that learns the target's predictions. The loss is the KL to the target's largest probabilities and
one bucket for the rest. The optimisers are Muon and Adam, the same as in train.py, with a rate that falls to zero at the end of the schedule.

Loss and gradients of the output head are computed in chunks, so that the logits of all positions never exist at the same time.
Needs torch, numpy, safetensors, and gguf if the target is a GGUF file.
"""
import contextlib
import glob
import json
import os
import time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import train as T
from distill_text import figures, tokens_a_round
from model import Config, Llama

HEAD_BYTES = {"cpu": 1 << 27, "cuda": 1 << 30}  # maximum bytes of logits that exist at a time


def gguf_parts(path):
    """Returns the files of a GGUF model given by its file, its first part or its folder; an empty list for a Hugging Face folder."""
    if os.path.isdir(path):
        if os.path.exists(os.path.join(path, "config.json")):
            return []
        found = sorted(glob.glob(os.path.join(path, "*.gguf")))
    else:
        found = [path]
    first = found[0] if found else ""
    return sorted(glob.glob(glob.escape(first.split("-00001-of-")[0]) + "-*-of-*.gguf")) if "-00001-of-" in first else found[:1]


EMBEDDING = ("token_embd.weight", "embed_tokens.weight")  # names in GGUF and Hugging Face files
OUTPUT = ("output.weight", "lm_head.weight")


def gguf_values(tensor):
    """Returns the values of a tensor of a GGUF file in float32."""
    import gguf
    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    return torch.from_numpy(np.array(values, np.float32).reshape([int(n) for n in reversed(tensor.shape)]))


def table_of(target, names):
    """Returns a table of the target with a row for each token, [vocabulary, width] in float32; None if the target does not have it."""
    parts = gguf_parts(target)
    if parts:
        import gguf
        for part in parts:
            for tensor in gguf.GGUFReader(part).tensors:
                if tensor.name == names[0]:
                    return gguf_values(tensor)
        return None
    from safetensors import safe_open
    for file in sorted(glob.glob(os.path.join(target, "*.safetensors"))):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():
                if name.endswith(names[1]):
                    return tensors.get_tensor(name).float()
    return None


def embedding_of(target):
    """Returns the target's embedding, [vocabulary, width] in float32."""
    table = table_of(target, EMBEDDING)
    if table is None:
        raise SystemExit(f"{target}: has neither {' nor '.join(EMBEDDING)}")
    return table


def principal_components(table, often, width):
    """Projects the table onto its `width` leading principal components, with tokens weighted by their frequency and a standard deviation of
    .05. If the table has fewer components, the others are small noise."""
    share = often / often.sum()
    centred = table - share @ table
    values, vectors = torch.linalg.eigh(centred.T @ (centred * share[:, None]))
    start = centred @ vectors.flip(1)[:, :width]
    start = start / start.std() * .05
    return F.pad(start, (0, width - start.shape[1])) + (start.shape[1] < width) * .005 * torch.randn(len(start), width)


class Text:
    """The runs of distill_text.py: the text for training, and the held-out text."""

    def __init__(self, files):
        runs = []
        for file in files:
            run = np.load(file)
            if "top" not in run:
                raise SystemExit(f"{file}: lacks the log-probabilities that a draft model learns from: it was written with --top 0")
            runs.append({name: run[name] for name in ("ids", "prompt", "length", "top", "lp", "held")})
        self.runs = [run for run in runs if len(run["ids"])]
        rows = [(r, i) for r, run in enumerate(self.runs) for i in range(len(run["ids"]))]
        self.training = [(r, i) for r, i in rows if not self.runs[r]["held"][i]]
        self.held = [(r, i) for r, i in rows if self.runs[r]["held"][i]]

    def tokens(self, rows):
        return sum(int(self.runs[r]["length"][i]) for r, i in rows)

    def width(self, row):
        return int(self.runs[row[0]]["prompt"][row[1]] + self.runs[row[0]]["length"][row[1]])

    def longest(self):
        return max(map(self.width, self.training + self.held))

    def largest_id(self, written=False):
        """Returns the largest id of the text, and unless `written` of the lessons."""
        return max(int(run[name].max()) for run in self.runs for name in (("ids",) if written else ("ids", "top")))

    def often(self, vocab):
        """Returns the count of each token, plus a small value so that no count is 0."""
        counts = np.full(vocab, .3)
        for r, i in self.training:
            counts += np.bincount(self.runs[r]["ids"][i, :self.width((r, i))], minlength=vocab)
        return torch.from_numpy(counts).float()

    def batch(self, rows, device):
        """Returns ids [rows, width]; the positions of the lessons' states in the flattened ids; and top and lp of the lessons."""
        width, ids, places, top, lp = max(map(self.width, rows)), [], [], [], []
        for b, (r, i) in enumerate(rows):
            run = self.runs[r]
            prompt, length = int(run["prompt"][i]), int(run["length"][i])
            ids.append(np.pad(run["ids"][i, :prompt + length], (0, width - prompt - length)))
            places.append(b * width + prompt - 1 + np.arange(length))
            top.append(run["top"][i, :length])
            lp.append(run["lp"][i, :length])
        n = min(x.shape[-1] for x in top)
        together = (np.stack(ids).astype(np.int64), np.concatenate(places), np.concatenate([x[:, :n] for x in top]).astype(np.int64),
                    np.concatenate([x[:, :n] for x in lp]).astype(np.float32))
        return [torch.from_numpy(x).to(device) for x in together]

    def batches(self, size, rng):
        """Yields batches without end, epoch after epoch, each with rows of similar width."""
        while True:
            order = [self.training[i] for i in rng.permutation(len(self.training))]
            for start in range(0, len(order), 16 * size):
                window = sorted(order[start:start + 16 * size], key=self.width)
                cut = [window[i:i + size] for i in range(0, len(window), size)]
                yield from (cut[i] for i in rng.permutation(len(cut)))


def device_for(options):
    return options.train_device or ("cuda" if torch.cuda.is_available() else "cpu")


def short_type(device):
    """Returns bfloat16, or float32 on processors on which bfloat16 is slower (ten times without instructions for it)."""
    seconds = {}
    for kind in (torch.bfloat16, torch.float32):
        x = torch.ones(256, 512, dtype=kind)
        for _ in range(2):  # the first call warms up the libraries
            begin = time.perf_counter()
            x @ x.T
            seconds[kind] = time.perf_counter() - begin
    return min(seconds, key=seconds.get) if device == "cpu" else torch.bfloat16


class HeadKl(torch.autograd.Function):
    """Mean over the positions of `by_row` (1 if it is left out) times the KL between the target's distribution p and the student's q, both over
    the target's top tokens and one bucket for the rest. The gradient of a KL with respect to a logit is q - p for top tokens, and
    q (1 - rest / q_rest) for others, where `rest` is the bucket of p and q_rest that of q. `stats` [positions, 3]: KL, sum min(p, q) over the
    top tokens (a lower bound of the acceptance at T = 1), and whether the argmaxes are equal."""
    stats = torch.zeros(0, 3)

    @staticmethod
    def forward(ctx, states, weight, top, lp, needs_gradients, by_row=None):
        n, w, x = len(states), weight.detach().to(T.SHORT), states.detach().to(T.SHORT)
        of_states, of_weight = (torch.empty_like(x), torch.zeros_like(weight)) if needs_gradients else (None, None)
        stats = torch.zeros(n, 3, device=x.device)
        chunk = max(16, HEAD_BYTES.get(x.device.type, 1 << 27) // (4 * len(w)))
        for i in range(0, n, chunk):
            xi, t, p = x[i:i + chunk], top[i:i + chunk], lp[i:i + chunk].exp()
            rest = (1 - p.sum(-1)).clamp(min=0)
            q_all = (xi @ w.T).float()
            agreed = q_all.argmax(-1) == t[:, 0]
            q_all.sub_(torch.logsumexp(q_all, -1, keepdim=True)).exp_()
            q = q_all.gather(1, t)
            q_rest = (1 - q.sum(-1)).clamp(min=1e-6)
            kl = (p * (lp[i:i + chunk] - q.clamp(min=1e-20).log())).sum(-1) + rest * (rest.clamp(min=1e-20).log() - q_rest.log())
            stats[i:i + chunk] = torch.stack([kl, torch.minimum(p, q).sum(-1), agreed], -1)
            if needs_gradients:
                g = q_all.mul_((1 - rest / q_rest)[:, None]).scatter_(1, t, q - p)
                g = (g if by_row is None else g * by_row[i:i + chunk, None]).to(T.SHORT)
                of_states[i:i + chunk] = g @ w
                of_weight += (g.T @ xi).float()
        if needs_gradients:
            ctx.save_for_backward(of_states.to(states.dtype) / n, of_weight / n)
        HeadKl.stats = stats
        return (stats[:, 0] if by_row is None else stats[:, 0] * by_row).mean()

    @staticmethod
    def backward(ctx, by_loss):
        of_states, of_weight = ctx.saved_tensors
        return of_states * by_loss, of_weight * by_loss, None, None, None, None


class Learner:
    """A network, its optimisers, and the progress of its schedule. `groups`: the parameters that Adam learns, with their rates; Muon learns the
    matrices."""

    def __init__(self, net, matrices, groups):
        self.net = net
        self.muon = T.Muon(matrices, .02, .01)
        self.adam = torch.optim.AdamW(groups, betas=(.9, .98), weight_decay=0.0)
        # Minutes of the current schedule so far, and of all earlier ones; steps and tokens of all schedules; the current schedule's first step.
        self.told = dict(minutes=0.0, before=0.0, steps=0, first=0, tokens=0, finished=False)

    def descend(self, loss, clipped, scale, tokens):
        """Runs one step of both optimisers, with their rates times `scale`. Clips the gradients of `clipped` to a norm of 1."""
        loss.backward()
        nn.utils.clip_grad_norm_(clipped, 1.0)
        for group in self.adam.param_groups:
            group["lr"] = group["rate"] * scale
        self.adam.step()
        self.muon.step(lambda w: w.grad, scale, .95)
        self.net.zero_grad(set_to_none=True)
        self.told["steps"] += 1
        self.told["tokens"] += tokens

    def save(self, path, **described):
        torch.save(dict(model=self.net.state_dict(), adam=self.adam.state_dict(), muon=[momentum for _, momentum in self.muon.groups],
                        told=self.told, **described), path + ".part")
        os.replace(path + ".part", path)

    def restore(self, saved):
        self.net.load_state_dict(saved["model"])
        self.adam.load_state_dict(saved["adam"])
        for (_, momentum), was in zip(self.muon.groups, saved["muon"]):
            momentum.copy_(was)
        self.told = saved["told"]


class Student(Learner):
    """A draft model. `first_table`: its target's embedding, if it is not to be loaded."""

    def __init__(self, shape, device, longest, first_table=None):
        self.config, self.device, self.first_table = Config(**shape), device, first_table
        net = Llama(Config(**{**shape, "max_pos": longest})).to(device)
        self.clipped, matrices, groups = self.learned(net)
        super().__init__(net, matrices, groups)
        self.amp = (lambda: torch.autocast("cuda", torch.bfloat16)) if device.startswith("cuda") else contextlib.nullcontext

    def learned(self, net):
        """Returns the parameters whose gradients are clipped, the matrices that Muon learns, and the groups of Adam."""
        named, embedding = list(net.named_parameters()), net.model.embed_tokens.weight
        norms = [w for _, w in named if w.ndim < 2]
        return [embedding, *norms], [w for n, w in named if w.ndim == 2 and "embed" not in n], [
            {"params": [embedding], "rate": 2e-3}, {"params": norms, "rate": 5e-3}]

    def begin(self, text):
        """Gives a student that was not loaded its first weights."""
        with torch.no_grad():
            self.net.output.copy_(principal_components(self.first_table, text.often(self.config.vocab), self.config.hidden))

    def batch(self, text, rows):
        return text.batch(rows, self.device)

    def loss(self, batch):
        ids, places, top, lp = batch
        with self.amp():
            states = self.net.features(ids).flatten(0, 1)[places]
        return HeadKl.apply(states, self.net.output, top, lp, torch.is_grad_enabled())

    def step(self, text, rows, scale):
        batch = self.batch(text, rows)
        self.descend(self.loss(batch), self.clipped, scale, len(batch[1]))

    @torch.no_grad()
    def evaluate(self, text, rows):
        """Returns the KL, the acceptance at T = 1 and the agreement of the most likely tokens on the held-out text."""
        total, count = np.zeros(3), 0
        for i in range(0, len(rows), 8):
            self.loss(self.batch(text, rows[i:i + 8]))
            total, count = total + HeadKl.stats.double().sum(0).cpu().numpy(), count + len(HeadKl.stats)
        return dict(zip(("kl", "accepted", "agreed"), (float(x) / max(1, count) for x in total)))

    def described(self):
        """Returns what a checkpoint says besides the weights and the progress."""
        return dict(config=self.config.dict())

    def load(self, path):
        saved = torch.load(path, map_location=self.device)
        if Config(**saved["config"]) != self.config:
            raise SystemExit(f"{path}: the student has another shape, {saved['config']}; use that shape, or remove the file")
        self.restore(saved)


class Schedule:
    """The progress of a student's schedule, in minutes or steps. `told` is the student's record, which continues where it stopped."""

    def __init__(self, told, options):
        self.told, self.options, self.earlier, self.begin, self.reported = told, options, told["minutes"], time.time(), time.time()

    def minutes(self):
        return self.earlier + (time.time() - self.begin) / 60

    def progress(self):
        whole = self.options.minutes if self.options.steps is None else self.options.steps
        passed = self.minutes() if self.options.steps is None else self.told["steps"] - self.told["first"]
        return passed / whole if whole > 0 else 1

    def is_time_to_report(self):
        is_time = time.time() - self.reported > 60 * self.options.tell
        if is_time:
            self.reported = time.time()
        return is_time


def shape_for(architecture, context, options):
    """Returns the student's shape for the architecture that `tandem inspect` reports; options take precedence. The width is
    about .45 of the target's, and at most 512, because the product with the vocabulary dominates the cost of a step."""
    hidden = options.hidden or min(512, max(64, 64 * round(.45 * architecture["hidden_size"] / 64)))
    head_dim = options.head_dim or 64
    heads = options.heads or max(1, hidden // head_dim)
    return dict(vocab=architecture["vocab_size"], hidden=hidden, layers=options.layers or min(6, max(2, round(architecture["num_layers"] / 7.5))),
                heads=heads, kv_heads=options.kv_heads or (heads // 2 if heads % 2 == 0 else 1), head_dim=head_dim,
                ffn=options.ffn or 3 * hidden, theta=options.rope_theta, eps=1e-5, max_pos=context)


def is_done(told, options):
    """Whether the student has finished its schedule and is not to begin another, which --resume does."""
    if told["finished"] and options.resume:
        told.update(before=told["before"] + told["minutes"], minutes=0.0, first=told["steps"], finished=False)
    if told["finished"]:
        print("already trained; --resume trains for another schedule")
    return told["finished"]


def learn(student, batches, judge, checkpoint, options):
    """Trains on `batches`, the arguments of `student.step`, until the schedule ends. `judge()` returns the figures on the held-out text. Returns
    what the checkpoint keeps."""
    told = student.told
    schedule = Schedule(told, options)

    def tell(**more):
        told.update(minutes=schedule.minutes(), **judge(), **more)
        print("%.1f min, step %d: held out KL %s, accepted at T = 1 %s, argmax agrees %s%s" % (
            told["minutes"], told["steps"], *(figures(told[name]) for name in ("kl", "accepted", "agreed")), tokens_a_round(told)), flush=True)
        student.save(checkpoint, **student.described())

    print(f"{sum(w.numel() for w in student.net.parameters())} parameters on {student.device}, {T.SHORT}")
    while (done := schedule.progress()) < 1:
        warm = max((told["steps"] - told["first"] + 1) / 50, done / .05)
        student.step(*next(batches), min(1, warm) * min(1, (1 - done) / .7))
        if schedule.is_time_to_report():
            tell()
    tell(finished=True)
    return told


def train(text, make, checkpoint, options):
    """Trains `make(device)`, a student, from the checkpoint if it exists. Returns the figures that the checkpoint keeps."""
    torch.manual_seed(options.seed)
    device = device_for(options)
    T.SHORT = short_type(device)
    student = make(device)
    if os.path.exists(checkpoint):
        student.load(checkpoint)
    else:
        student.begin(text)
    if is_done(student.told, options):
        return student.told
    checked = text.held[::max(1, len(text.held) // 64)]
    rows = text.batches(options.batch or (48 if device.startswith("cuda") else 12), np.random.default_rng([options.seed, student.told["steps"]]))
    print(f"{json.dumps(student.config.dict())}\n{text.tokens(text.training)} tokens for training, {text.tokens(text.held)} held out")

    told = learn(student, ((text, some) for some in rows), lambda: student.evaluate(text, checked), checkpoint, options)
    as_many = text.training[::max(1, len(text.training) // max(1, len(checked)))]
    told["accepted_of_learned"] = student.evaluate(text, as_many)["accepted"]
    student.save(checkpoint, **student.described())
    print(f"accepted on the training text {figures(told['accepted_of_learned'])}")
    return told


def save_folder(out, tensors, config):
    """Writes a Hugging Face folder of a Llama in bfloat16, without a tokenizer. Integers among the tensors stay as they are."""
    from safetensors.torch import save_file
    os.makedirs(out, exist_ok=True)
    save_file({name: (w.to(torch.bfloat16) if w.is_floating_point() else w).contiguous() for name, w in tensors.items()},
              os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as file:
        json.dump(dict(config, hidden_act="silu", torch_dtype="bfloat16"), file, indent=2)
        file.write("\n")


def export(checkpoint, out, **more):
    """Writes the trained student as a folder, with `more` in its configuration. Returns its shape and the report of its training."""
    saved = torch.load(checkpoint, map_location="cpu")
    c = Config(**saved["config"])
    family = "qwen2" if c.qkv_bias else "qwen3" if c.head_norms else "llama"
    config = dict(architectures=[f"{family.capitalize()}ForCausalLM"], model_type=family, vocab_size=c.vocab, hidden_size=c.hidden,
                  intermediate_size=c.ffn, num_hidden_layers=c.layers, num_attention_heads=c.heads, num_key_value_heads=c.kv_heads,
                  head_dim=c.head_dim, max_position_embeddings=c.max_pos, rms_norm_eps=c.eps, rope_theta=c.theta,
                  rope_scaling=c.scaling, tie_word_embeddings=c.tied, **more)
    if not c.qkv_bias:  # Qwen2 always has these biases, and no such key
        config.update(attention_bias=False)
    if family == "llama":
        config.update(mlp_bias=False)
    if "mask" in saved:
        config.update(pard_token=saved["mask"], spd_type="pard")
    save_folder(out, saved["model"], config)
    return dict(shape=c.dict(), training=saved.get("told"))
