"""What an emulated device is told from a real one by; the rest of it runs only on an emulated Arm as root."""

import platform

import pytest

from swarmd_models.backends.emulation import hide_foreign_processor, is_foreign

X86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\n"
ARM = "processor\t: 0\nBogoMIPS\t: 108.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n"


@pytest.mark.parametrize(
    ("text", "machine", "foreign"),
    [(X86, "aarch64", True), (ARM, "aarch64", False), (X86, "x86_64", False), ("", "aarch64", False)],
)
def test_only_a_foreign_description_is_foreign(text: str, machine: str, foreign: bool) -> None:
    assert is_foreign(text, machine) is foreign


@pytest.mark.skipif(platform.machine() == "aarch64", reason="64-bit Arm here, where it may have something to hide")
def test_nothing_is_hidden_on_a_machine_that_is_what_it_says() -> None:
    assert hide_foreign_processor() is False
