"""The verdict of a race, from made-up recordings."""

from chat_case import ChatCase

JUDGE = """
const runOf = ({times, ids = [1], tokens = times.length, ...meter}) => {
  const recording = new m.Recording();
  times.forEach((time, i) => recording.frames.push({time, parts: [], tokens: i + 1}));
  recording.ids = ids;
  return {meter: {tokens, rounds: tokens, proposed: 0, accepted: 0, idleReason: null,
                  speculation: null, decodeMs: times.at(-1), ...meter}, recording};
};
const [drafted, plain, body] = arguments[0];
return m.verdictOf(runOf(drafted), runOf(plain), {speculation: {}, temperature: 0, ...body});
"""
STEADY = [100 * i for i in range(1, 41)]
SLOWER = [110 * i for i in range(1, 41)]
FASTER = [50 * i for i in range(1, 41)]


class RacePage(ChatCase):
    def judge(self, drafted, plain, **body):
        verdict = self.call('race.js', JUDGE, [drafted, plain, body])
        return verdict['words'], verdict['reason']

    def setUp(self):
        self.open()

    def test_says_how_it_was_measured_when_drafts_win(self):
        words, reason = self.judge({'times': FASTER, 'proposed': 9, 'accepted': 1}, {'times': STEADY})
        self.assertEqual(words, '2.00 times as fast with drafts: 2.00 s against 4.00 s. '
                                'Both texts are identical, token for token.')
        self.assertRegex(reason, '^Measured one after the other.* side by side.$')
        by_source = [{'source': 'memory', 'accepted': 5}, {'source': 'model', 'accepted': 4}]
        self.assertIn('from an earlier answer', self.judge(
            {'times': FASTER, 'proposed': 9, 'accepted': 9, 'speculation': {'by_source': by_source}},
            {'times': STEADY})[1])

    def test_says_why_drafts_lose(self):
        lost = {'times': SLOWER}
        words, reason = self.judge({**lost, 'idleReason': 'draft idle in 9 of 10 rounds'}, {'times': STEADY})
        self.assertRegex(words, r'^0\.91 times as fast with drafts: 4\.40 s against 4\.00 s\.')
        self.assertEqual(reason, 'Draft idle in 9 of 10 rounds.')
        self.assertEqual(self.judge(lost, {'times': STEADY})[1], 'Nothing was drafted.')
        drafted = {**lost, 'proposed': 80, 'accepted': 8, 'rounds': 32}
        self.assertEqual(
            self.judge(drafted, {'times': STEADY})[1],
            'Only 8 of 80 drafted tokens were kept. A round with drafts took 1.38 times as long as a plain '
            'pass, for 1.25 tokens.')
        self.assertIn('1 round only tested whether drafts pay, for 70 ms.', self.judge(
            {**drafted, 'speculation': {'probes': 1, 'probe_ms': 70.4}}, {'times': STEADY})[1])
        uneven = [time + 300 * (i // 5) for i, time in enumerate(STEADY)]
        self.assertIn('The machine was busy: one of ten plain passes took 4.0 times as long as most.',
                      self.judge({**drafted, 'times': [4 * time for time in SLOWER]}, {'times': uneven})[1])

    def test_compares_the_texts(self):
        for rule, words in [('block', 'The texts differ: block keeps their distribution, not the draws'),
                            ('exact_match', 'The texts differ.')]:
            verdict, _ = self.judge({'times': FASTER, 'ids': [1, 2]}, {'times': STEADY, 'ids': [1, 3]},
                                    speculation={'verifier': rule}, temperature=1)
            self.assertIn(words, verdict)
