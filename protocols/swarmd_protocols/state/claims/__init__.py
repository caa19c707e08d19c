"""Who works where: leases on local monotonic timers, without coordinator and without clocks."""
