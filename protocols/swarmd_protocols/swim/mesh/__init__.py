"""Membership over several radio hops: who is near, who hears whom, who is reached."""
