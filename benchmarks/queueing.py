"""Closed forms of queues for scale_out_model.py. Times are seconds, rates are per second.

Sources: Erlang (1917) for M/M/c; Kingman (1962) for G/G/1 in heavy traffic; Allen, "Probability, Statistics, and Queueing
Theory" (1990), for the correction of M/M/c by two moments of Allen and Cunneen; Kraemer and Langenbach-Belz (1976) for
regular arrivals; Abate, Choudhury and Whitt (1995) for exponential tails; Cohen (1979) for processor sharing at a speed that
depends on the number of jobs, in which the distribution of this number does not depend on the law of the work; Mitzenmacher
(1996) and Vvedenskaya et al. (1996) for the shorter of two queues.
"""
import math
from dataclasses import dataclass

POINTS = 200  # number of equally likely values that represent a law
MAX_POOL = 64  # workers; larger pools are computed as this many, whose queues vary more


class Overloaded(Exception):
    """The arrival rate exceeds the capacity; the text says where."""


@dataclass(frozen=True)
class Wait:
    """An arrival waits with this probability. The wait is exponential, and its mean over all arrivals is `mean`."""
    probability: float = 0.0
    mean: float = 0.0

    def beyond(self, time):
        """Returns the probability of a wait longer than `time`."""
        if self.mean <= 0 or self.probability <= 0:
            return 0.0
        return self.probability * math.exp(-time * self.probability / self.mean)

    def plus(self, other):
        """Returns the sum of two waits: that of a single queue, which pools of any size have, and that of the whole pool."""
        return Wait(min(1.0, self.probability + other.probability), self.mean + other.mean)

    def points(self):
        shares = [1 - (i + 0.5) / POINTS for i in range(POINTS)]
        if self.mean <= 0 or self.probability <= 0:
            return [0.0]
        scale = self.mean / self.probability
        return [scale * max(0.0, math.log(self.probability / share)) for share in shares]


def erlang_c(servers, load):
    """Returns the probability that an arrival at M/M/c waits. `load` < `servers` is the mean number of busy servers."""
    blocking = 1.0
    for n in range(1, servers + 1):
        blocking = load * blocking / (n + load * blocking)
    return servers * blocking / (servers - load * (1 - blocking))


def station_wait(what, rate, service, scv, servers, routing, arrivals=1.0):
    """Returns the wait in a pool in which each server works on one job at a time, in order. `scv`: squared coefficient of
    variation of the service time; `arrivals`: that of the times between arrivals. `shortest` is approximated by one queue
    for all servers."""
    utilization = rate * service / servers
    if utilization >= 1:
        raise Overloaded(what)
    if utilization <= 0:
        return Wait()
    if routing == "shortest" or (routing == "power_of_two" and servers == 2):
        probability = erlang_c(servers, utilization * servers)
        return Wait(probability, probability * service / (servers * (1 - utilization)) * (arrivals + scv) / 2)
    if routing == "power_of_two" and servers > 2:
        shared = station_wait(what, rate, service, scv, servers, "shortest", arrivals)
        found = [utilization ** (2 * (2 ** k - 1)) for k in range(1, 12)]  # at least k jobs, in the shorter of two
        return Wait(found[0], service * sum(found) * (arrivals + scv) / 2).plus(shared)
    if routing == "round_robin":
        arrivals /= servers
    mean = utilization / (1 - utilization) * service * (arrivals + scv) / 2
    if arrivals < 1 and mean > 0:
        mean *= math.exp(-2 * (1 - utilization) * (1 - arrivals) ** 2 / (3 * utilization * (arrivals + scv)))
    return Wait(utilization, mean)


@dataclass(frozen=True)
class Occupancy:
    """The number of sequences of a worker: it has k for `shares[k]` of the time, and an arrival finds k with probability
    `found[k]`. `wait` is the wait for a place in its batch."""
    shares: list
    found: list
    wait: Wait


def _normalised(logarithms):
    top = max(logarithms)
    weights = [math.exp(entry - top) for entry in logarithms]
    total = sum(weights)
    return [weight / total for weight in weights]


def _chain(birth, death, most, least):
    """Returns the law of a birth-death chain, which goes from k - 1 to k at rate birth(k) and back at rate death(k)."""
    logarithms, top = [0.0], 0.0
    for k in range(1, most):
        logarithms.append(logarithms[-1] + math.log(birth(k)) - math.log(death(k)))
        top = max(top, logarithms[-1])
        if k > least and logarithms[-1] < top - 18:
            break
    return _normalised(logarithms)


def _tails(shares):
    """Returns a list whose entry k is the share of at least k; the last entry is 0."""
    tails = [0.0]
    for share in reversed(shares):
        tails.append(tails[-1] + share)
    return tails[::-1]


def _shorter_of_two(rate, death, shares):
    """Returns the fixed point of the shares of workers with k sequences, if each arrival goes to the shorter of two."""
    steps = [math.log(rate / death(k)) for k in range(1, len(shares))]
    for _ in range(2000):
        tails = _tails(shares)
        logarithms = [0.0]
        for k, step in enumerate(steps):
            logarithms.append(logarithms[-1] + step + math.log(max(tails[k] + tails[k + 1], 1e-300)))
        wanted = _normalised(logarithms)
        change = max(abs(a - b) for a, b in zip(wanted, shares))
        shares = [0.7 * a + 0.3 * b for a, b in zip(shares, wanted)]
        if change < 1e-5:
            break
    return shares


def batch_occupancy(what, rate, rounds, round_seconds, places, workers, routing):
    """Returns the occupancy of a pool of workers that run rounds over all of their sequences. `rate`: arrivals per worker;
    `rounds`: mean number of rounds of a sequence; `round_seconds(k)`: time of a round with k sequences. Sequences beyond
    `places` wait."""
    if rate <= 0 or rounds <= 0:
        return Occupancy([1.0], [1.0], Wait())

    def death(k):
        running = min(k, places)
        return running / (rounds * round_seconds(running))

    if rate >= death(places):
        raise Overloaded(what)
    if workers > 1 and (routing == "shortest" or (routing == "power_of_two" and workers == 2)):
        pool = min(workers, MAX_POOL)

        def pool_death(number):
            each, more = divmod(number, pool)
            return (pool - more) * (death(each) if each else 0.0) + more * death(each + 1)

        pooled = _chain(lambda _: pool * rate, pool_death, pool * places * 100, pool * places)
        shares = [0.0] * (len(pooled) // pool + 2)
        found = [0.0] * len(shares)
        for number, share in enumerate(pooled):
            each, more = divmod(number, pool)
            found[each] += share
            shares[each] += share * (pool - more) / pool
            shares[each + 1] += share * more / pool
    else:
        shares = found = _chain(lambda _: rate, death, places * 1000, places)
        if routing == "power_of_two" and workers > 2:
            # The tail falls much faster than with random routing.
            shares = _shorter_of_two(rate, death, shares[:4 * places + 50])
            squares = [tail * tail for tail in _tails(shares)]
            found = [a - b for a, b in zip(squares, squares[1:])]
    waiting = sum((k - places) * share for k, share in enumerate(shares) if k > places)
    wait = Wait(sum(found[places:]), waiting / rate)
    if routing == "power_of_two" and workers > 2:
        wait = wait.plus(batch_occupancy(what, rate, rounds, round_seconds, places, workers, "shortest").wait)
    return Occupancy(shares, found, wait)


def points_of(pairs):
    """Returns the law of (value, weight) pairs as equally likely values."""
    pairs = sorted(pair for pair in pairs if pair[1] > 0)
    total = sum(weight for _, weight in pairs)
    points, passed, index = [], 0.0, 0
    for i in range(POINTS):
        wanted = (i + 0.5) / POINTS * total
        while index < len(pairs) - 1 and passed + pairs[index][1] < wanted:
            passed += pairs[index][1]
            index += 1
        points.append(pairs[index][0])
    return points


def added(a, b):
    """Returns the law of the sum of two independent values, each given as equally likely points."""
    if len(a) == 1 or len(b) == 1:
        return [x + y for x in a for y in b]
    sums = sorted(x + y for x in a for y in b)
    return [sums[(2 * i + 1) * len(sums) // (2 * POINTS)] for i in range(POINTS)]


def percentile(pairs, percent):
    """Returns the smallest value of (value, weight) pairs that at least `percent` of the weight does not exceed."""
    pairs = sorted(pairs)
    left = percent / 100 * sum(weight for _, weight in pairs) * (1 - 1e-9)
    for value, weight in pairs:
        left -= weight
        if left <= 0:
            return value
    return pairs[-1][0]
