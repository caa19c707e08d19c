"""What borrowing may cost: money, bytes and lenders' charge, of a request and of an hour.

A lender says in its offer what a second of its inference costs (`messages.Descriptor`): millionths of a unit of
the fleet's money, and billionths of its battery's charge. A borrower's owner says what a request may cost at most, what
all requests of an hour may, and what waiting is worth in either, by which `placement.py` weighs the cheap lender
against the quick one.

- Nothing is spent that was not allowed: with the configuration's defaults only lenders that ask no money are asked.
- What a request would cost is set aside when it is sent. Spent is what the answer that counts costs; all else is given
  back once its lender has refused or failed, or the request is through.
- An hour's sum is a bucket that refills with time, what is set aside counted as in it: at no moment has more been
  spent in the hour before than twice the sum, and over a day no more than the sum for each hour and one more.
"""

from collections import Counter
from dataclasses import dataclass, replace

HOUR_NS = 3_600_000_000_000
"""What sums are of."""
_NS_PER_S = 1_000_000_000
PRICE_MAX_MICRO_S = 10**12
"""A million units of money for a second of inference: beyond, an offer is none."""
CHARGE_MAX_PPB_S = 10**9
"""The whole battery in a second."""


@dataclass(frozen=True, slots=True)
class CostRule:
    """What a borrower's owner allows."""

    price_max_micro: int = 0
    """Of one request, millionths of a unit of money; 0: only lenders that ask nothing."""
    hour_max_micro: int = 0
    """Of all requests of an hour."""
    bytes_hour_max: int = 0
    """That leave this device in an hour, the frames' own bytes apart; 0: as many as tickets allow."""
    charge_max_ppm: int = 1_000_000
    """Of a lender's charge, one request, millionths."""
    ns_per_micro: int = 0
    """Of waiting that a millionth of a unit of money is worth; 0: of those who are allowed the quickest is taken."""
    ns_per_ppm: int = 0
    """The same of a millionth of a lender's charge."""


FREE = CostRule()
"""Nothing that costs money."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one request at one lender."""

    price_micro: int = 0
    charge_ppm: int = 0

    def is_within(self, rule: CostRule) -> bool:
        """Whether it may be spent on one request."""
        return self.price_micro <= rule.price_max_micro and self.charge_ppm <= rule.charge_max_ppm

    def worth_ns(self, rule: CostRule) -> int:
        """The waiting that it is worth."""
        return self.price_micro * rule.ns_per_micro + self.charge_ppm * rule.ns_per_ppm


def price_micro(rate_micro_s: int, time_ns: int) -> int:
    """Of so much inference, rounded up: what asks money is never free.

    >>> price_micro(2_000, 4_000_000), price_micro(1, 1), price_micro(0, 10**9)
    (8, 1, 0)
    """
    return -(-rate_micro_s * time_ns // _NS_PER_S)


def cost(price_micro_s: int, charge_ppb_s: int, time_ns: int) -> Cost:
    """Of so much inference at a lender with these rates."""
    return Cost(price_micro(price_micro_s, time_ns), charge_ppb_s * time_ns // _NS_PER_S // 1_000)


class Purse:
    """What is left of an hour's money and bytes."""

    def __init__(self, rule: CostRule) -> None:
        """Full."""
        self.rule = rule
        self._micro_ns = rule.hour_max_micro * HOUR_NS
        """Millionths left, times an hour: whole numbers at any pace."""
        self._aside_ns = 0
        """The same of what is set aside: neither spent nor there to be spent."""
        self._bytes_ns = rule.bytes_hour_max * HOUR_NS
        self._at_ns: int | None = None
        self.counts: Counter[str] = Counter()
        """price_micro: spent; over_budget: attempts that did not go out."""

    def allowed(self, size_bytes: int, now_ns: int) -> CostRule | None:
        """The rule of a request that comes now, with what is left of the hour; None: its bytes may not leave."""
        left_micro = self.left_micro(now_ns)
        if self.rule.bytes_hour_max > 0 and size_bytes * HOUR_NS > self._bytes_ns:
            return None
        return self.rule if left_micro >= self.rule.price_max_micro else replace(self.rule, price_max_micro=left_micro)

    def set_aside(self, price: Cost, size_bytes: int, now_ns: int) -> bool:
        """Take a request's cost and bytes out of the hour; False, and nothing taken, where that may not be spent."""
        self._refill(now_ns)
        price_ns, bytes_ns = price.price_micro * HOUR_NS, size_bytes * HOUR_NS
        is_too_long = self.rule.bytes_hour_max > 0 and bytes_ns > self._bytes_ns
        if not price.is_within(self.rule) or price_ns > self._micro_ns or is_too_long:
            self.counts["over_budget"] += 1
            return False
        self._micro_ns -= price_ns
        self._aside_ns += price_ns
        self._bytes_ns -= bytes_ns if self.rule.bytes_hour_max else 0
        return True

    def spend(self, price: int) -> None:
        """Its answer counts: what was set aside is the lender's."""
        self._aside_ns = max(0, self._aside_ns - price * HOUR_NS)
        self.counts["price_micro"] += price

    def give_back(self, price: int) -> None:
        """There is no answer that counts: the bytes have left, the money has not."""
        back_ns = min(self._aside_ns, price * HOUR_NS)
        self._aside_ns -= back_ns
        self._micro_ns += back_ns

    def left_micro(self, now_ns: int) -> int:
        """Money left of the hour, millionths."""
        self._refill(now_ns)
        return max(0, self._micro_ns // HOUR_NS)

    def _refill(self, now_ns: int) -> None:
        past_ns = max(0, now_ns - (now_ns if self._at_ns is None else self._at_ns))
        self._at_ns = now_ns if self._at_ns is None else max(self._at_ns, now_ns)
        rule = self.rule
        full_ns = rule.hour_max_micro * HOUR_NS - self._aside_ns
        self._micro_ns = min(full_ns, self._micro_ns + rule.hour_max_micro * past_ns)
        self._bytes_ns = min(rule.bytes_hour_max * HOUR_NS, self._bytes_ns + rule.bytes_hour_max * past_ns)
