"""Attacks that once worked, each as its attacker did it, on the objects of today: has any its effect again?

    python -m tests.bench.attacks [NAME …]        a line an attack; exit 1 where one has its effect

Each was first a program of an independent review, which saw the effect that `HAD` names. What is sent, how much of it
and by whom are as they were; names of modules and helpers are today's. The tests that hold each law in general stand
in docs/security.md ("Known attacks").
"""
