"""The student that reads its target's states: a draft head of one layer (docs/drafting/draft_heads.md), trained on the output of `tandem features`.

There are two forms. `one_layer` (EAGLE-1, MTP): fc(concat(norm(embedding of x[t+1]), norm(last state at t))), then a Llama layer. `eagle3`: fc(inputs of three
layers at t), then a layer whose queries, keys and values are computed from concat(norm(embedding of x[t+1]), norm(state)). Training unrolls both in the same
way as drafting: at step i an anchor t reads x[t+1+i] and its own state of the previous step, and attends to the first step's keys of the anchors up to t and to
its own keys. The output head covers the most frequent tokens of the text, and is initialised with the target's rows.

Needs torch, numpy and safetensors.
"""
import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import train as T
from distill_text import mapped_states, run_files, states_file
from distill_train import Learner, device_for, is_done, learn, save_folder, short_type
from model import RMSNorm, attend_with_chains, rotate

CHUNK = 2048  # positions whose logits exist at a time
HELD_SEQUENCES = 24  # maximum number of sequences of a held-out batch to evaluate
STEP_WEIGHT = .8  # weight of a step's loss, relative to the step before it


def linear(outputs, inputs, scale=1.0):
    weight = nn.Parameter(torch.empty(outputs, inputs))
    nn.init.normal_(weight, std=scale / inputs ** .5)
    return weight


class Head(nn.Module):
    """`shape`: kind, hidden, heads, kv_heads, head_dim, ffn, theta, eps, states (the number of states that it reads)."""

    def __init__(self, shape, draft_ids, embedding, output):
        super().__init__()
        c = self.shape = dict(shape)
        h, width = c["hidden"], (2 if c["kind"] == "eagle3" else 1) * c["hidden"]
        self.register_buffer("ids", draft_ids)
        self.register_buffer("embedding", embedding, persistent=False)
        self.fc = linear(h, (c["states"] if c["kind"] == "eagle3" else 2) * h)
        self.embed_norm, self.hidden_norm = RMSNorm(h, c["eps"]), RMSNorm(h, c["eps"])
        self.input_norm = RMSNorm(h, c["eps"]) if c["kind"] == "one_layer" else None
        self.q, self.k, self.v = (linear(c[n] * c["head_dim"], width) for n in ("heads", "kv_heads", "kv_heads"))
        self.o = linear(h, c["heads"] * c["head_dim"], .3)
        self.mlp_norm = RMSNorm(h, c["eps"])
        self.gate, self.up, self.down = linear(c["ffn"], h), linear(c["ffn"], h), linear(h, c["ffn"], .3)
        self.norm = RMSNorm(h, c["eps"])
        self.register_buffer("targets", output[draft_ids].to(T.SHORT), persistent=False)  # the target's own rows
        self.lm_head = nn.Parameter(output[draft_ids].float().clone())

    def matrices(self):
        return [self.fc, self.q, self.k, self.v, self.o, self.gate, self.up, self.down]

    def angles(self, count, first, device):
        inverse = self.shape["theta"] ** -(torch.arange(0, self.shape["head_dim"], 2, device=device).float() / self.shape["head_dim"])
        turns = torch.outer(torch.arange(first, first + count, device=device).float(), inverse)
        turns = torch.cat([turns, turns], -1)
        return turns.cos(), turns.sin()

    def step(self, i, tokens, state, cache, mask):
        """tokens [b, t], state [b, t, hidden] -> the state of step i before `norm`. cache: keys and values of the earlier steps."""
        c, (b, t) = self.shape, tokens.shape
        embedded = self.embed_norm(self.embedding[tokens].float())
        both = torch.cat((embedded, self.hidden_norm(state)), -1)
        if c["kind"] == "eagle3":
            x, read = state, both
        else:
            x = F.linear(both, self.fc)
            read = self.input_norm(x)
        split = lambda y, n: y.view(b, t, n, c["head_dim"]).transpose(1, 2)
        cos, sin = self.angles(t, i, tokens.device)
        groups = c["heads"] // c["kv_heads"]
        q = rotate(split(F.linear(read, self.q), c["heads"]).float(), cos, sin)
        k = rotate(split(F.linear(read, self.k), c["kv_heads"]).float(), cos, sin).repeat_interleave(groups, 1)
        v = split(F.linear(read, self.v), c["kv_heads"]).repeat_interleave(groups, 1)
        q, k, v = q.to(T.SHORT), k.to(T.SHORT), v.to(T.SHORT)
        cache.append((k, v))
        if i == 0:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = attend_with_chains(q, *cache[0], mask, cache[1:])
        x = x + F.linear(y.transpose(1, 2).reshape(b, t, -1), self.o)
        m = self.mlp_norm(x)
        return x + F.linear(F.silu(F.linear(m, self.gate)) * F.linear(m, self.up), self.down)

    def unroll(self, ids, states, steps):
        """ids [b, t], states [b, t, states * hidden]. Yields for each step the normed states [b, t, hidden], from which anchor a of step i
        predicts x[a + 2 + i]. Positions after the end of `ids` are 0."""
        t = ids.shape[1]
        mask = torch.full((t, t), float("-inf"), device=ids.device).triu(1)
        state = F.linear(states, self.fc) if self.shape["kind"] == "eagle3" else states
        cache = []
        for i in range(steps):
            tokens = F.pad(ids[:, 1 + i:], (0, min(1 + i, t)))[:, :t]
            state = self.step(i, tokens, state.float(), cache, mask)
            yield self.norm(state)


class DraftKl(torch.autograd.Function):
    """Mean KL between the target's distribution over the draft's tokens, softmax(`lessons`), and the draft's. Gradients are computed in chunks.
    `stats`: sums over the positions of KL, of sum min(p, q), and of equal argmaxes."""
    stats = torch.zeros(3)

    @staticmethod
    def forward(ctx, states, weight, lessons, needs_gradients):
        n, w, x = len(states), weight.detach().to(T.SHORT), states.detach().to(T.SHORT)
        of_states, of_weight = (torch.empty_like(x), torch.zeros_like(weight)) if needs_gradients else (None, None)
        stats = torch.zeros(3, dtype=torch.float64, device=x.device)
        for i in range(0, n, CHUNK):
            xi = x[i:i + CHUNK]
            log_q = torch.log_softmax((xi @ w.T).float(), -1)
            log_p = torch.log_softmax(lessons[i:i + CHUNK].float(), -1)
            p, q = log_p.exp(), log_q.exp()
            stats += torch.stack([(p * (log_p - log_q)).sum(), torch.minimum(p, q).sum(), (log_q.argmax(-1) == log_p.argmax(-1)).sum()]).double()
            if needs_gradients:
                g = (q - p).to(T.SHORT)
                of_states[i:i + CHUNK] = g @ w
                of_weight += (g.T @ xi).float()
        if needs_gradients:
            ctx.save_for_backward(of_states.to(states.dtype) / n, of_weight / n)
        DraftKl.stats = stats
        return (stats[0] / max(1, n)).float()

    @staticmethod
    def backward(ctx, by_loss):
        of_states, of_weight = ctx.saved_tensors
        return of_states * by_loss, of_weight * by_loss, None, None


class Run:
    """The texts of a run with their states, in batches of similar width."""

    def __init__(self, file, num_read):
        run, left = np.load(file), np.load(states_file(file))
        self.states, self.num_read = torch.from_numpy(mapped_states(file)), num_read  # [tokens, layers, hidden]: the layers that the head reads, then the last
        self.ids, self.lengths, self.prompt, self.held = torch.from_numpy(left["ids"]).long(), left["lengths"], run["prompt"], run["held"]
        self.first = np.concatenate(([0], np.cumsum(self.lengths)))

    def batch(self, rows):
        """Returns ids [b, t], 0 after a text's end; the states that the head reads [b, t, num_read * hidden]; the last states [b, t, hidden]; and
        whether a position is a lesson [b, t], because the target wrote its next token. States after a text's end belong to other positions."""
        lengths, prompt = (torch.from_numpy(x[rows]).long()[:, None] for x in (self.lengths, self.prompt))
        t = torch.arange(int(lengths.max()))
        places = (torch.from_numpy(self.first[rows])[:, None] + t).clamp(max=len(self.ids) - 1)
        ids, states = self.ids[places] * (t < lengths), self.states[places]
        return ids, states[:, :, :self.num_read].flatten(2), states[:, :, -1], (t >= prompt - 1) & (t < lengths - 1)

    def batches(self, tokens, rng, wants_held=False):
        """Yields batches of at most `tokens` positions, unless one sequence has more."""
        rows = np.flatnonzero(self.held == wants_held)
        rows = rows[np.argsort(self.lengths[rows] + (rng.random(len(rows)) if rng is not None else 0), kind="stable")]
        cut, group = [], []
        for row in rows:
            if group and int(self.lengths[row]) * (len(group) + 1) > tokens:
                cut.append(group)
                group = []
            group.append(row)
        cut += [group] * bool(group)
        for i in rng.permutation(len(cut)) if rng is not None else range(len(cut)):
            yield self.batch(np.array(cut[i]))


def frequent_tokens(files, vocab, coverage, most):
    """Returns the fewest tokens, in ascending order, whose share of the written text is at least `coverage`, and this share. Their number is a
    multiple of 1,024 unless the vocabulary or `most` is smaller."""
    counts = np.zeros(vocab)
    for file in files:
        run = np.load(file)
        for ids, prompt, length in zip(run["ids"], run["prompt"], run["length"]):
            counts += np.bincount(ids[prompt:prompt + length], minlength=vocab)
    order = np.argsort(-counts, kind="stable")
    share = np.cumsum(counts[order]) / max(1, counts.sum())
    count = min(vocab, most, 1024 * (1 + int(np.searchsorted(share, coverage)) // 1024))
    return np.sort(order[:count]), float(share[count - 1])


class HeadStudent(Learner):
    """A draft head."""

    def __init__(self, shape, draft_ids, embedding, output, device):
        self.device = device
        net = Head(shape, torch.from_numpy(draft_ids), embedding.to(T.SHORT), output).to(device)
        norms = [w for _, w in net.named_parameters() if w.ndim < 2]
        super().__init__(net, net.matrices(), [{"params": [net.lm_head], "rate": 5e-4}, {"params": norms, "rate": 3e-3}])
        self.told.update(run=0, epoch=0)

    def described(self):
        return dict(shape=self.net.shape)

    def losses(self, batch, steps, needs_gradients):
        """Yields for each step its loss, DraftKl.stats, and their number of positions."""
        ids, read, last, is_lesson = (x.to(self.device) for x in batch)
        with torch.autocast(self.device.split(":")[0], T.SHORT, enabled=T.SHORT != torch.float32):
            lessons, places = last[is_lesson].to(T.SHORT) @ self.net.targets.T, is_lesson.nonzero()[:, 1]
            for i, states in enumerate(self.net.unroll(ids, read.float(), steps)):
                # Anchor a of step i learns from the target's state at a + 1 + i.
                taught = is_lesson[:, 1 + i:]
                states = states[:, :taught.shape[1]][taught]
                if len(states):
                    loss = DraftKl.apply(states, self.net.lm_head, lessons[places > i], needs_gradients)
                    yield loss, DraftKl.stats, len(states)

    def step(self, batch, steps, scale):
        total = sum(STEP_WEIGHT ** i * loss for i, (loss, _, _) in enumerate(self.losses(batch, steps, True)))
        if torch.is_tensor(total):
            self.descend(total, self.net.parameters(), scale, int(batch[3].sum()))

    @torch.no_grad()
    def evaluate(self, runs, steps, num_read, tokens):
        """Returns, for each step, the KL, the acceptance at T = 1 and the agreement of the most likely tokens on the held-out texts."""
        totals, counts = np.zeros((steps, 3)), np.zeros(steps)
        for file in runs:
            for batch in Run(file, num_read).batches(tokens, None, wants_held=True):
                for i, (_, stats, n) in enumerate(self.losses([x[:HELD_SEQUENCES] for x in batch], steps, False)):
                    totals[i] += stats.cpu().numpy()
                    counts[i] += n
        means = totals / np.maximum(counts, 1)[:, None]
        return {name: [round(float(x), 4) for x in means[:, i]] for i, name in enumerate(("kl", "accepted", "agreed"))}


def head_shape(architecture, options):
    """Returns the shape of a head with the sizes of one of the target's layers, for the architecture that `tandem inspect` reports."""
    a = architecture
    return dict(kind=options.kind, hidden=a["hidden_size"], heads=a["num_heads"], kv_heads=a["num_kv_heads"], head_dim=a["head_dim"],
                ffn=options.ffn or a["intermediate_size"], theta=a["rope_theta"], eps=1e-5, states=len(layers_read(a, options.kind)),
                vocab=a["vocab_size"], layers=layers_read(a, options.kind))


def layers_read(architecture, kind):
    """Returns the layers whose inputs a head reads; the target's number of layers stands for its last state."""
    layers = architecture["num_layers"]
    return [layers] if kind == "one_layer" else [2, layers // 2, layers - 3]


def batches(files, num_read, tokens, told, seed):
    """Yields batches without end. `told` keeps the epoch and the run in it."""
    while True:
        order = np.random.default_rng([seed, told["epoch"]]).permutation(len(files))
        for i in order[told["run"]:]:
            yield from Run(files[i], num_read).batches(tokens, np.random.default_rng([seed, told["epoch"], told["run"]]))
            told["run"] += 1
        told.update(epoch=told["epoch"] + 1, run=0)


def train(data, shape, embedding, output, checkpoint, options):
    """Trains a head, from the checkpoint if it exists. Returns the figures that the checkpoint keeps."""
    torch.manual_seed(options.seed)
    device = device_for(options)
    T.SHORT = short_type(device)
    files, steps, num_read = run_files(data), options.unroll, shape["states"]
    missing = [file for file in files if not os.path.exists(states_file(file))]
    if missing or not files:
        raise SystemExit(f"{missing[0]}: has no states; `--only features` makes them" if files else f"{data}: the text is missing; `--only write` makes it")
    saved = torch.load(checkpoint, map_location=device) if os.path.exists(checkpoint) else None
    if saved is not None and saved["shape"] != shape:
        raise SystemExit(f"{checkpoint}: the student has another shape, {saved['shape']}; use that shape, or remove the file")
    ids, coverage = (saved["model"]["ids"].cpu().numpy(), saved["told"]["coverage"]) if saved is not None else frequent_tokens(
        files, shape["vocab"], options.coverage, options.head_tokens)
    student = HeadStudent(shape, ids, embedding, output, device)
    if saved is not None:
        student.restore(saved)
    student.told.update(draft_vocab=len(ids), coverage=coverage, unroll=steps)
    if is_done(student.told, options):
        return student.told
    tokens, checked = options.batch_tokens, files[::max(1, len(files) // 6)]
    print(f"{len(ids)} tokens cover {coverage:.4f}")
    return learn(student, ((batch, steps) for batch in batches(files, num_read, tokens, student.told, options.seed)),
                 lambda: student.evaluate(checked, steps, num_read, tokens), checkpoint, options)


def export(checkpoint, out):
    """Writes the trained head as a folder in bfloat16: EAGLE-3 in the published flat layout, or the one-layer form (docs/drafting/draft_heads.md).
    Returns its shape and the report of its training."""
    saved = torch.load(checkpoint, map_location="cpu")
    c, m = saved["shape"], saved["model"]
    is_eagle = c["kind"] == "eagle3"
    layer = "midlayer" if is_eagle else "layers.0"
    names = {**{x: f"{layer}.self_attn.{x}_proj" for x in "qkvo"}, **{x: f"{layer}.mlp.{x}_proj" for x in ("gate", "up", "down")},
             "fc": "fc", "lm_head": "lm_head", "norm.weight": "norm", "mlp_norm.weight": f"{layer}.post_attention_layernorm",
             **({"embed_norm.weight": f"{layer}.input_layernorm", "hidden_norm.weight": f"{layer}.hidden_norm"} if is_eagle else
                {"embed_norm.weight": "embed_norm", "hidden_norm.weight": "hidden_norm", "input_norm.weight": f"{layer}.input_layernorm"})}
    tensors = {f"{name}.weight": m[key] for key, name in names.items()}
    tensors["d2t"] = m["ids"].long() - torch.arange(len(m["ids"]))
    config = dict(architectures=["LlamaForCausalLMEagle3" if is_eagle else "TandemOneLayerHead"], model_type="llama", vocab_size=c["vocab"],
                  draft_vocab_size=len(m["ids"]), hidden_size=c["hidden"], target_hidden_size=c["hidden"], intermediate_size=c["ffn"],
                  num_hidden_layers=1, num_attention_heads=c["heads"], num_key_value_heads=c["kv_heads"], head_dim=c["head_dim"],
                  max_position_embeddings=8192, rms_norm_eps=c["eps"], rope_theta=c["theta"], rope_scaling=None,
                  tie_word_embeddings=False, attention_bias=False)
    if is_eagle:
        config.update(norm_before_residual=False, eagle_aux_hidden_state_layer_ids=c["layers"])
    save_folder(out, tensors, config)
    return dict(shape=c, training=saved["told"])
