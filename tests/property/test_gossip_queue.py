"""The queue of news against its plain definition: sort everything for every datagram."""

from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.channel.dissemination import GossipQueue

LIMIT = 6


class Plain:
    """What the queue means, written the slow way."""

    def __init__(self):
        self.updates = {}
        self.urgent = []

    def put(self, about, encoded, priority, rides, *, urgent):
        self.updates.pop(about, None)
        if len(self.updates) >= LIMIT:
            del self.updates[max(self.updates, key=lambda key: self.updates[key][1])]
        update = [encoded, priority, rides, urgent]
        self.updates[about] = update
        if urgent:
            self.urgent.append(update)

    def overheard(self, about):
        update = self.updates.get(about)
        if update is not None and not any(update is other for other in self.urgent):
            update[2] -= 1
            if update[2] <= 0:
                del self.updates[about]

    def drop(self, about):
        update = self.updates.pop(about, None)
        if update is not None:
            update[3] = False

    def settle(self, priority):
        self.updates = {
            about: update
            for about, update in self.updates.items()
            if update[1] != priority or any(update is other for other in self.urgent)
        }

    def take_urgent(self, lowest):
        pushed = sorted((u for u in self.urgent if u[3] and u[1] <= lowest), key=lambda update: update[1])
        self.urgent.clear()
        return [(update[1], update[0]) for update in pushed]

    def take(self, room, lowest):
        taken = []
        for about, update in sorted(self.updates.items(), key=lambda item: (item[1][1], -item[1][2])):
            if update[1] <= lowest and len(update[0]) <= room and room >= 16:
                room -= len(update[0])
                taken.append(update[0])
                update[2] -= 1
                if update[2] <= 0:
                    del self.updates[about]
        return taken


priorities = st.integers(0, 3)
steps = st.one_of(
    st.tuples(
        st.just("put"), st.integers(0, 8), st.integers(1, 60), priorities, st.integers(1, 4), st.booleans()
    ),
    st.tuples(st.just("take"), st.integers(0, 150), priorities),
    st.tuples(st.just("drop"), st.integers(0, 8)),
    st.tuples(st.just("overheard"), st.integers(0, 8)),
    st.tuples(st.just("settle"), priorities),
    st.tuples(st.just("take_urgent"), priorities),
    st.tuples(st.just("keep"), st.integers(0, 8)),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=40))
def test_the_queue_is_what_it_means(script):
    queue, plain = GossipQueue(LIMIT), Plain()
    for number, (what, *arguments) in enumerate(script):
        if what == "put":
            about, size, priority, rides, urgent = arguments
            encoded = number.to_bytes(2, "big") + bytes(size)
            queue.put(about, encoded, priority, rides, urgent=urgent)
            plain.put(about, encoded, priority, rides, urgent=urgent)
        elif what == "keep":
            queue.keep(lambda about, least=arguments[0]: about >= least)
            for about in [about for about in plain.updates if about < arguments[0]]:
                plain.drop(about)
        elif what == "take_urgent":
            pushed = [(update.priority, update.encoded) for update in queue.take_urgent(*arguments)]
            assert pushed == plain.take_urgent(*arguments)
        else:
            assert getattr(queue, what)(*arguments) == getattr(plain, what)(*arguments)
        assert len(queue) == len(plain.updates)
