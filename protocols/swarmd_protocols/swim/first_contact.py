"""First contacts on their way in and out: hellos, notices and cookies become effects. Who is answered: `contact.py`."""

from typing import Protocol

from swarmd_protocols.channel.channel import DATAGRAM, Channel
from swarmd_protocols.channel.codec import encode
from swarmd_protocols.channel.contact import Contacts, Opened
from swarmd_protocols.ids import Address
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.messages import Hello


class ContactSender(Protocol):
    """What first contacts go out through."""

    def contact(self, address: Address, frame: bytes | None) -> None:
        """Send a frame of first contact, where there is one."""
        ...

    def hello(self, address: Address, answer: bool, group: int | None = None, extra: bytes = b"") -> None:
        """Show this node's record; see `Port.hello`."""
        ...


class FirstContact:
    """Sends and takes first contacts."""

    def __init__(self, core: Core, sender: ContactSender, channel: Channel) -> None:
        self.core = core
        self._sender = sender
        self.contacts = Contacts(channel, core.counters)

    def hello(self, address: Address, answer: bool, group: int | None, extra: bytes, *, paid: bool) -> None:
        """Show this node's record; `paid` where it answers a hello that was taken."""
        parts = [self.core.own.encoded_record, encode(Hello(answer))]
        frame = self.contacts.hello(address, parts, group, self.core.now_ns, extra=extra, paid=paid)
        self._sender.contact(address, frame)

    def on_first_contact(self, source: Address, kind: int, frame: bytes) -> Opened | None:
        """A hello arrived: what is to be processed of it; under load it is answered with a cookie instead."""
        taken = self.contacts.take(source, kind, frame, self.core.now_ns)
        if isinstance(taken, bytes):
            self._sender.contact(source, taken)
            return None
        return taken

    def on_cookie(self, source: Address, frame: bytes) -> None:
        """A cookie arrived: the hello goes out again with it."""
        self._sender.contact(source, self.contacts.on_cookie(source, frame, self.core.now_ns))

    def unopened(self, source: Address, frame: bytes) -> None:
        """A datagram does not open: its sender holds an older record of this node, or is new to it, or is nobody."""
        member = source in self.core.table.by_address
        self._sender.contact(source, self.contacts.notice(source, frame, self.core.now_ns, member=member))

    def on_notice(self, source: Address, frame: bytes) -> Member | None:
        """A member could not open what this node sent: it is shown this node's record, and asked for its own."""
        for member in self.core.table.at(source):
            if member.session is None:
                continue
            group = self.contacts.on_notice(frame, member.session.past()[DATAGRAM])
            if group is not None:
                self._sender.hello(member.address, True, group)
                return member
        return None
