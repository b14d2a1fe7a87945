"""The student that proposes several tokens in one pass: a draft model with masks after its text (docs/drafting/distillation.md). It begins as a
trained draft model, and learns on text and log-probabilities like one (distill_train.py).

Every lesson's row is an anchor, from which a chain of masks may go out: mask s of anchor a lies at position a + s, attends to the text up to a
and to the masks of its own chain up to itself, and predicts the token at a + s + 1. A pass holds the text and the chains of all anchors.
"""
import os
import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from distill_draft import read_draft
from distill_text import figures
from distill_train import HeadKl, Student
from model import Config, attend, attend_with_chains

BLOCK = 256  # masks whose scores exist at a time; they are computed again for the gradient
OWN_STUDENT = .1  # rates for a student of --kind model, relative to those that it learned with


def shares_of(options):
    """Returns the share of the anchors that have a mask s, for s = 1 .. depths - 1."""
    return [max(options.keep ** s, options.keep_least) for s in range(1, options.depths)]


class Chains:
    """The rows of a pass: the batch's text [b, width], then all masks s = 1 of the batch, all masks s = 2 and so on, each [b, counts[s - 1]].
    `lessons`: places of the anchors in the flattened text, in order. A chain has each mask up to its last, and each has a lesson.

    positions [b, width + masks]
    picks, depth, lesson [rows]: places in the flattened rows of those that have a lesson, their s (0: a row of the text), and their lessons
    """

    def __init__(self, lessons, size, width, shares, rng):
        count, row = len(lessons), lessons // width
        left = np.cumsum(np.bincount(row, minlength=size))[row] - 1 - np.arange(count)  # lessons of the same text after it
        drawn = (rng.permutation(count) + .5) / max(1, count)
        length = np.minimum((drawn[:, None] < np.array(shares)).sum(1), left)  # of each chain
        order = np.lexsort((-length, row))  # the longest chains of each text first, so that the masks s are those of its first anchors
        rank = np.arange(count) - np.searchsorted(row[order], row[order])
        self.width, self.counts = width, []
        picks, depth, lesson, positions = [lessons // width], [np.zeros(count, int)], [np.arange(count)], [np.tile(np.arange(width), (size, 1))]
        columns = [lessons % width]
        at, anchors = width, np.zeros((size, count), int)  # positions of the anchors by rank; 0 for a column that a text does not use
        anchors[row[order], rank] = lessons[order] % width
        for s in range(1, len(shares) + 1):
            has = length[order] >= s
            most = int(rank[has].max()) + 1 if has.any() else 0
            if most == 0:
                break
            self.counts.append(most)
            picks.append(row[order][has])
            columns.append(at + rank[has])
            depth.append(np.full(has.sum(), s))
            lesson.append(order[has] + s)
            positions.append(np.minimum(anchors[:, :most] + s, width - 1))
            at += most
        self.anchors = anchors[:, :self.counts[0] if self.counts else 0]
        self.positions = np.concatenate(positions, 1)
        self.picks = np.concatenate(picks) * at + np.concatenate(columns)
        self.depth, self.lesson = np.concatenate(depth), np.concatenate(lesson)

    def to(self, device):
        for name in ("anchors", "positions", "picks", "depth", "lesson"):
            setattr(self, name, torch.from_numpy(getattr(self, name)).to(device))
        return self

    def ids(self, text, mask):
        return F.pad(text, (0, sum(self.counts)), value=mask)

    def attend(self, q, k, v):
        """Computes attention for all rows, [b, heads, width + masks, d]. A mask's scores of the text and of its chain share a softmax."""
        text = [x[:, :, :self.width] for x in (q, k, v)]
        masks = [x[:, :, self.width:].split(self.counts, 2) for x in (q, k, v)]
        out, place = [attend(*text)], torch.arange(self.width, device=q.device)
        for s, rows in enumerate(masks[0]):
            for i in range(0, rows.shape[2], BLOCK):
                part = slice(i, min(i + BLOCK, rows.shape[2]))
                hidden = place > self.anchors[:, part, None]
                after = torch.zeros_like(hidden, dtype=torch.float32).masked_fill_(hidden, float("-inf"))[:, None]
                chain = [(key[:, :, part], value[:, :, part]) for key, value in zip(masks[1][:s + 1], masks[2][:s + 1])]
                out.append(checkpoint(attend_with_chains, rows[:, :, part], *text[1:], after, chain, use_reentrant=False,
                                      preserve_rng_state=False))
        return torch.cat(out, 2)


def chances_of(drawn, top, lp):
    """Returns the target's probability of each token of `drawn` [n]; for one that is not in `top` [n, N], at most that of all others."""
    p = lp.double().exp()
    found = top == drawn[:, None]
    rest = (1 - p.sum(-1)).clamp(min=1e-9)
    return torch.where(found.any(-1), (p * found).sum(-1), torch.minimum(p[:, -1], rest))


class ParallelStudent(Student):
    """A draft model with a mask token. `source` [name, is_own]: the model that it begins as, and whether this recipe made that. `weights`: its
    first weights, if it is not to be loaded."""

    def __init__(self, shape, mask, source, weights, device, longest, options):
        self.mask, self.source, self.weights, self.options = mask, source, weights, options
        self.shares = shares_of(options)
        super().__init__(shape, device, longest)
        self.told.update(unroll=options.depths, begun_from=source[0], by_depth=options.by_depth, mask_token=mask)

    def learned(self, net):
        if self.source[1]:
            return super().learned(net)
        return list(net.parameters()), [], [{"params": list(net.parameters()), "rate": self.options.rate}]

    def begin(self, text):
        self.net.load_state_dict(self.weights)

    def described(self):
        return dict(super().described(), mask=self.mask, source=self.source)

    def load(self, path):
        super().load(path)
        self.told.update(unroll=self.options.depths, by_depth=self.options.by_depth)

    def batch(self, text, rows, shares=None):
        """Returns what `Text.batch` does, and the chains. They depend on the seed and the number of the step."""
        ids, places, top, lp = text.batch(rows, self.device)
        rng = np.random.default_rng([self.options.seed, self.told["steps"], 1])
        chains = Chains(places.cpu().numpy(), *ids.shape, self.shares if shares is None else shares, rng)
        return ids, places, top, lp, chains.to(self.device)

    def weights_of(self, batch):
        """Returns the weight of each row's lesson: with `kept`, the target's probability of the tokens at the masks of its chain."""
        ids, places, top, lp, chains = batch
        if self.options.by_depth == "even":
            return None
        chances = chances_of(ids.flatten()[places + 1], top, lp).log()
        before = torch.cumsum(chances, 0) - chances
        return (before[chains.lesson] - before[chains.lesson - chains.depth]).exp().float()

    def loss(self, batch):
        ids, _, top, lp, chains = batch
        with self.amp():
            states = self.net.features(chains.ids(ids, self.mask), chains.positions, chains.attend).flatten(0, 1)[chains.picks]
        return HeadKl.apply(states, self.net.output, top[chains.lesson], lp[chains.lesson], torch.is_grad_enabled(), self.weights_of(batch))

    def step(self, text, rows, scale):
        super().step(text, rows, scale * (OWN_STUDENT if self.source[1] else 1))

    @torch.no_grad()
    def evaluate(self, text, rows):
        """Returns, by draft position, the KL, the acceptance at T = 1 and the agreement of the most likely tokens on the held-out text, with
        all masks. `tokens_a_round`: 1 + the sum of the products of the acceptance along a chain. `tokens_a_round_greedy`: the same of the
        agreement, at position s over the chains whose tokens before s are the target's most likely ones."""
        depths = len(self.shares) + 1
        total, count, kept = np.zeros((depths, 3)), np.zeros(depths), np.zeros((2, depths))
        judged = np.zeros((2, depths))
        for i in range(0, len(rows), 8):
            batch = self.batch(text, rows[i:i + 8], [1.0] * (depths - 1))
            self.loss(batch)
            ids, places, top, _, chains = batch
            stats, n = HeadKl.stats.double(), len(places)
            told = torch.full((n, depths, 3), float("nan"), dtype=torch.float64, device=stats.device)
            told[chains.lesson - chains.depth, chains.depth] = stats
            total, count = total + told.nansum(0).cpu().numpy(), count + (~told[..., 0].isnan()).sum(0).cpu().numpy()
            whole = told[~told[:, -1, 0].isnan()]  # the chains with all masks
            likely = (ids.flatten()[places + 1] == top[:, 0]).double()
            onward = torch.arange(n, device=stats.device)[:, None] + torch.arange(depths - 1, device=stats.device)
            path = F.pad(likely[onward.clamp(max=n - 1)], (1, 0), value=1.0).cumprod(1)[~told[:, -1, 0].isnan()]
            kept += np.stack([whole[..., 1].cumprod(1).sum(0).cpu(), (whole[..., 2].cumprod(1) * path).sum(0).cpu()])
            judged += np.stack([np.full(depths, len(whole)), path.sum(0).cpu()])
        means = total / np.maximum(count, 1)[:, None]
        rounds = 1 + (kept / np.maximum(judged, 1)).sum(1)
        return dict({name: means[:, i].tolist() for i, name in enumerate(("kl", "accepted", "agreed"))},
                    tokens_a_round=float(rounds[0]), tokens_a_round_greedy=float(rounds[1]))


def with_mask(shape, weights, wanted, num_tokens):
    """Returns the mask token, the shape and the weights with a row for it, which is the mean embedding. `wanted`: an id, or None for the first
    row from `num_tokens` on, which no token has."""
    vocab = shape["vocab"]
    mask = min(num_tokens, vocab) if wanted is None else wanted
    if not 0 <= mask <= vocab:
        raise SystemExit(f"--mask-token: found {mask}, allowed: 0 to {vocab}, where {vocab} adds a row")
    weights = dict(weights)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        if name in weights:
            mean = weights[name].mean(0, keepdim=True)
            if mask == vocab:
                weights[name] = torch.cat([weights[name], mean])
            elif "embed" in name:
                weights[name] = torch.cat([weights[name][:mask], mean, weights[name][mask + 1:]])
    return mask, dict(shape, vocab=max(vocab, mask + 1)), weights


def maker(path, own, num_tokens, text, options):
    """Returns the function that makes the student for `distill_train.train`. `path`: its checkpoint. `own`: the checkpoint of --kind model, which
    it begins as unless there is a --from. `num_tokens`: ids that the target's tokenizer has."""
    source = [os.path.basename(options.start.rstrip("/")), False] if options.start else ["the student of --kind model", True]
    weights = None
    if os.path.exists(path):
        saved = torch.load(path, map_location="cpu")
        if saved["source"] != source or options.mask_token not in (None, saved["mask"]):
            raise SystemExit(f"{path}: began as {saved['source'][0]} with the mask token {saved['mask']}; use these, or remove the file")
        shape, mask = saved["config"], saved["mask"]
    else:
        if options.start:
            shape, weights, known = read_draft(options.start)
        elif os.path.exists(own):
            saved = torch.load(own, map_location="cpu")
            shape, weights, known = Config(**saved["config"]).dict(), saved["model"], None
        else:
            raise SystemExit(f"{own} is missing: give --from DRAFT, or make the draft model first with --kind model and the same --work")
        wanted = known if options.mask_token is None else options.mask_token
        largest = text.largest_id()
        if largest >= shape["vocab"]:
            raise SystemExit(f"{source[0]}: has a vocabulary of {shape['vocab']}, but the text has token {largest}: it is not a draft for this target")
        mask, shape, weights = with_mask(shape, weights, wanted, max(num_tokens, text.largest_id(written=True) + 1))
        print(f"begins as {source[0]}, with the mask token {mask}: {figures(shares_of(options))} of the places have the masks 1 to "
              f"{options.depths - 1}")
    return lambda device: ParallelStudent(shape, mask, source, weights, device, text.longest(), options)
