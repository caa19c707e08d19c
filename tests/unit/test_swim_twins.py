"""Two devices have one address, as where one has it by DHCP and the other written down: it is told, by name."""

from swarmd_protocols.effects import Alarm, MemberState, Moved
from swarmd_protocols.ids import Address
from tests.support.swim_net import Net

OWNER, TWIN, OTHERS = 1, 3, [0, 2]


class TwinNet(Net):
    """One node comes to have another's address; what is sent there comes to `reached`."""

    def __init__(self, count: int) -> None:
        self.reached = -1
        super().__init__(count)

    def address(self, index: int) -> str:  # type: ignore[override]
        return Net.address(OWNER if index == TWIN and self.reached >= 0 else index)

    def index(self, address: str) -> int:  # type: ignore[override]
        found = Net.index(address)
        return self.reached if found == OWNER and self.reached >= 0 else found

    def alarms(self) -> list[tuple[int, Alarm]]:
        return [(index, effect) for _, index, effect in self.log if isinstance(effect, Alarm)]


def moved_to(reached: int, *, owner_is_gone: bool) -> TwinNet:
    net = TwinNet(4)
    assert net.run_until(net.formed, 8) is not None
    net.run(6)
    if owner_is_gone:
        net.kill(OWNER)
        net.run(12)
    net.reached = reached
    net.feed(TWIN, Moved(Address(Net.address(OWNER))))
    net.run(60)
    return net


def test_two_members_with_one_address_are_named_once() -> None:
    net = moved_to(OWNER, owner_is_gone=False)
    told = [(index, alarm.text) for index, alarm in net.alarms() if alarm.code == "address-twice"]
    assert sorted(index for index, _ in told) == OTHERS
    assert all("n001 and n003" in text and Net.address(OWNER) in text for _, text in told)


def test_an_address_that_another_had_before_is_no_twin() -> None:
    net = moved_to(TWIN, owner_is_gone=True)
    assert net.all_see(MemberState.FAILED, OWNER, OTHERS)
    assert net.all_see(MemberState.ALIVE, TWIN, OTHERS)
    assert [alarm for _, alarm in net.alarms() if alarm.code == "address-twice"] == []
