"""MQTT 5: the swarm's picture for brokers, home automation and clouds. No broker, no problem: nothing waits for it."""
