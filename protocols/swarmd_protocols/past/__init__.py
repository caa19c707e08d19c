"""What happened, told afterwards: pages of a node's own past, signed by it, kept and given by whoever has them."""
