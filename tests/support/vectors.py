"""`make vectors`: writes every golden file anew, of the wire and of bundles' digests; tests only read them.

A changed vector of the wire is a new wire version; a changed digest renames every installed bundle.
"""

import json

from tests.support import (
    bundle_vectors,
    far_vectors,
    federation_vectors,
    learning_vectors,
    offload_swarm,
    past_vectors,
    positions_vectors,
    relay_vectors,
    state_vectors,
    swim_vectors,
    thumb_vectors,
    trust_vectors,
)

FILES = (
    swim_vectors,
    state_vectors,
    positions_vectors,
    thumb_vectors,
    trust_vectors,
    bundle_vectors,
    offload_swarm,
    federation_vectors,
    past_vectors,
    relay_vectors,
    far_vectors,
    learning_vectors,
)


def main() -> None:
    for one in FILES:
        one.PATH.write_text(json.dumps(one.document(), indent=1) + "\n")


if __name__ == "__main__":
    main()
