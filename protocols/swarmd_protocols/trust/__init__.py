"""Who may speak: signed envelopes, the root chain, roles, certificates, revocations, group keys."""
