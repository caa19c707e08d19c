"""Signed models that travel peer to peer, prove themselves on canaries and can be taken back."""
