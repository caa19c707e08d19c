"""Checkers: rule books apart from the workload. Safety while faults go on, liveness after the quiet time.

membership   no dead member comes back by itself; nobody healthy is called failed; views equal after quiet
state        nothing acknowledged is lost; equal digests mean equal views; digests equal after quiet; size bounded
begins       a node that starts takes for new what was said since
claims       no cell is missing; duplicates stay within the bound
releases     nobody runs an unsigned, revoked or too old model; a bad one stops at its canaries; no split fleet
decisions    what nodes believe is what officers and publisher have signed, in spite of what anybody else says
bounds       what one author, one accuser and one stranger may cost the others
traffic      no oversized frame; bytes within the budget
truth        faults found, missed, doubled; distinct faults merged into one
"""
