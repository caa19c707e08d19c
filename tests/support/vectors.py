"""`make vectors`: writes every golden file of the wire anew; tests only read them.

A changed vector is a new wire version.
"""

import json

from tests.support import positions_vectors, state_vectors, swim_vectors, trust_vectors

FILES = (swim_vectors, state_vectors, positions_vectors, trust_vectors)


def main() -> None:
    for one in FILES:
        one.PATH.write_text(json.dumps(one.document(), indent=1) + "\n")


if __name__ == "__main__":
    main()
