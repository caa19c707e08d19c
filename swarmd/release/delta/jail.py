"""What a decoder may still ask of the kernel: memory, what is open already, and its end. Linux, by a seccomp filter.

Limits keep a decoder from opening files and sockets and from taking memory. What needs no file they do not stop: a
signal to the daemon, a look into its memory (`ptrace`, `process_vm_readv`), the removal of a file by its name, another
program in its own place. The filter lets pass what a decoder calls (`_MAY`), memory that cannot be executed, and
nothing else: the rest fails with EPERM, so that whatever was forgotten here ends in a delta that cannot be made, and
the node fetches the whole file.

It holds all threads of the process, those too that a library has started before (`seccomp(2)` with TSYNC); where the
kernel or the container knows no such call, the thread that asks for it and those that this one starts: by `prctl`. It
needs no right and no library: containers leave both to their programs, since filters only add up. Where the kernel or
the container refuses it, or the machine is none of those below, the limits are what there is.

Source:
    `seccomp(2)`, `linux/filter.h`, `linux/audit.h`; numbers: `asm/unistd_64.h`, `asm-generic/unistd.h` (Linux 6.1).
"""

import ctypes
import platform
import struct

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC = 1, 1
_SECCOMP = {"x86_64": 317, "aarch64": 277}
"""Number of `seccomp(2)` by machine."""
_LOAD, _IS, _HAS_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
"""Instructions: load a word, jump where it equals, jump where it has a bit, return."""
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050001
"""Return values: let pass; fail with EPERM."""
_NUMBER_AT, _ARCHITECTURE_AT, _THIRD_ARGUMENT_AT = 0, 4, 32
"""Offsets in `struct seccomp_data`; of the argument the lower half, on machines that begin with it."""
_PROT_EXEC = 4
_MAY = {
    "x86_64": (
        0xC000003E,
        (9, 10),
        # read write close fstat lseek munmap brk rt_sigaction rt_sigprocmask rt_sigreturn mremap madvise getpid exit
        # gettid futex restart_syscall clock_gettime exit_group getrandom sched_yield sigaltstack
        (0, 1, 3, 5, 8, 11, 12, 13, 14, 15, 25, 28, 39, 60, 186, 202, 219, 228, 231, 318, 24, 131),
    ),
    "aarch64": (
        0xC00000B7,
        (222, 226),
        (63, 64, 57, 80, 62, 215, 214, 134, 135, 139, 216, 233, 172, 93, 178, 98, 128, 113, 94, 278, 124, 132),
    ),
}
"""By machine: its number for audits; `mmap` and `mprotect`; what passes whatever its arguments, in the same order."""


def shut_in() -> bool:
    """Leave this process, from now on and for good, only what a decoder needs.

    Returns:
        Whether the kernel has taken the filter.
    """
    # A program of 32 bits on a kernel of 64 has other numbers: all it asks would be refused, and no delta ever be made.
    if platform.machine() not in _MAY or struct.calcsize("P") != 8:
        return False
    program = _program(*_MAY[platform.machine()])
    held = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: how many instructions of 8 bytes, and where they are.
    head = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(held)))
    library = ctypes.CDLL(None, use_errno=True)
    prctl, syscall = library.prctl, library.syscall
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    syscall.argtypes, syscall.restype = [ctypes.c_long] + [ctypes.c_ulong] * 3, ctypes.c_long
    if prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    number = _SECCOMP[platform.machine()]
    # -1 where there is no such call; above 0 the thread that has other filters, and nothing has happened.
    if syscall(number, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC, ctypes.addressof(head)) == 0:
        return True
    return not prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(head), 0, 0)


def _program(architecture: int, of_memory: tuple[int, ...], others: tuple[int, ...]) -> bytes:
    """The filter: `struct sock_filter` one after the other; a jump says how many instructions it passes over."""
    calls = [*of_memory, *others]
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_IS, 1, 0, architecture),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    for place, number in enumerate(calls):
        left = len(calls) - place - 1
        # Behind the last comparison: refuse, look at the argument (two lines), refuse, allow.
        lines.append((_IS, left + (1 if number in of_memory else 4), 0, number))
    lines += [
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _THIRD_ARGUMENT_AT),
        (_HAS_BIT, 0, 1, _PROT_EXEC),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
