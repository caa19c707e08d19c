"""SWIM membership with Lifeguard, signed: messages, member table, probing, suspicion, links, repair."""
