"""What tests share: worlds, nets, daemons and files to test with."""
