"""Lends this device's inference to other programs: a child process that serves loaded bundles."""
