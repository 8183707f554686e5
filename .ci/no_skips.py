"""A check that CI skipped no test: `no_skips.py JUNIT_XML`.

`ALLOWED` names what CI cannot have, with the reason.
"""

from __future__ import annotations

import sys
from xml.etree import ElementTree

ALLOWED = {"AGX_STREAMS": "the recorded provider streams are not part of the repository"}


def main(path: str) -> int:
    """Print every skipped test; return 1 if one of them has no allowed reason, or if no test ran at all."""
    refused = ran = 0
    for case in ElementTree.parse(path).iter("testcase"):
        ran += 1
        skipped = case.find("skipped")
        if skipped is None:
            continue
        reason = skipped.get("message", "")
        allowed = next((why for word, why in ALLOWED.items() if word in reason), None)
        refused += allowed is None
        print(f"skipped: {case.get('classname')}::{case.get('name')}: {reason} ({allowed or 'NOT ALLOWED'})")
    print(f"{ran} tests, {refused} skipped without an allowed reason")
    return 0 if ran and not refused else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
