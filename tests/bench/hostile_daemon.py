"""What one hostile member or MQTT client can make a daemon pay: audit lines, queue, history, journal, replies.

    python -m tests.bench.hostile_daemon            one JSON object on standard output

Virtual clocks where a rate is meant, so the figures are the same on every machine; `…_us` are this machine's.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from swarmd.brain.journal import FILE_NAME as JOURNAL_NAME
from swarmd.brain.journal import Journal
from swarmd.bridges.mqtt.commands import Commands
from swarmd.release.audit import AuditLog, verify_folder
from swarmd.release.refusals import FILE_NAME as REFUSED_NAME
from swarmd.release.refusals import RefusalLog

ATTACK_S = 120
"""Seconds of virtual time that each attack goes on."""
REFUSALS_PER_S = 5_120
"""Ten messages of 512 junk statements a second: 15 kB/s of the attacker's."""


def audit(folder: Path) -> dict[str, float]:
    """One member pushes junk; how many lines come of it, how long the queue gets, what of the history stays."""
    history = AuditLog(folder)
    for number in range(20):
        history.add("accepted", number, kind="release", digest=f"{number:064x}", source="operator")
    now_ns, longest, work_ns, named = 0, 0, 0, 0

    def alarm(source: str, count: int) -> None:
        nonlocal named
        named += source == "thief"

    log = RefusalLog(folder, alarm, lambda: now_ns)
    log.note("release", "ab" * 32, "honest", "a stale statement")
    for _ in range(ATTACK_S):
        now_ns += 1_000_000_000
        began = time.perf_counter_ns()
        for _ in range(REFUSALS_PER_S):
            log.note("?", "", "thief", "no envelope: truncated")
        work_ns += time.perf_counter_ns() - began
        longest = max(longest, log.pending_count)
        log.close()
    lines, _, problem = verify_folder(folder, REFUSED_NAME)
    text = (folder / REFUSED_NAME).read_text()
    return {
        "refusals": ATTACK_S * REFUSALS_PER_S,
        "lines": lines,
        "lines_per_s": round(lines / ATTACK_S, 3),
        "queue_longest": longest,
        "note_us": round(work_ns / (ATTACK_S * REFUSALS_PER_S) / 1e3, 2),
        "refused_log_bytes": len(text),
        "history_kept": verify_folder(folder)[0] / 20,
        "honest_refusals_kept": text.count('"honest"'),
        "chain_sound": int(problem is None),
        "alarms_naming_the_flooder": named,
    }


def journal(folder: Path) -> dict[str, float]:
    """An author writes three times what the file may hold."""
    bound = 16 << 20
    book = Journal(folder, "process", (b"swim/",), file_bytes=bound)
    thief = b"T" * 16
    for number in range(3 * bound // 2_000):
        book.commit([(b"state/o/" + thief + number.to_bytes(6, "big"), b"x" * 2_000)], number * 1_000_000)
    book.commit([(b"swim/incarnation", b"7")], 0)
    alarms = book.take_alarms()
    figures = {
        "bound_bytes": bound,
        "file_bytes": 0,
        "waiting_bytes": book._pending_bytes,
        "identity_written": int(b"swim/incarnation" not in book._pending),
        "flooder_named": int(any(thief.hex() in text for _, text in alarms)),
    }
    book.close()
    figures["file_bytes"] = (folder / JOURNAL_NAME).stat().st_size
    return figures


def commands() -> dict[str, float]:
    """A client that may write commands asks 1,000 times a second under ever new names, for a picture of 200 kB."""
    now_ns, sent, answered, escaped = 0, 0, 0, 0
    prefix = "swarm/v1/farm/reply"
    desk = Commands(lambda verb, rest: {"objects": "x" * 200_000}, prefix, lambda: now_ns)
    for number in range(60_000):
        now_ns += 1_000_000
        topic = f"{prefix}/n{number}" if number % 2 else "swarm/v1/farm/cmd/all/objects"
        answer = desk.answer("objects", b"", topic)
        if answer.reply is not None:
            sent, answered = sent + len(answer.reply), answered + 1
            escaped += not topic.startswith(prefix)
    quiet = desk.answer("status", b"", f"{prefix}/quiet")
    return {
        "asked": 60_000,
        "answered": answered,
        "reply_bytes_per_s": round(sent / 60),
        "replies_elsewhere": escaped,
        "another_verb_is_answered": int(quiet.outcome != "commands_refused"),
    }


def main() -> int:
    """Run all three."""
    with tempfile.TemporaryDirectory() as name:
        figures = {"audit": audit(Path(name) / "a"), "journal": journal(Path(name) / "j"), "commands": commands()}
    json.dump(figures, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
