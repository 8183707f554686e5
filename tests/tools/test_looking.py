"""Which commands count as looking only, when loops are judged."""

from __future__ import annotations

import pytest

from agenticx.tools.looking import seems_to_look


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "grep -rn tax src 2>/dev/null | head -n 5",
        "cd src && find . -name '*.py' | wc -l",
        "git status -s; git diff",
        "sleep 20; cat job.state",
        "gh run view 71 --log",
        "kubectl get pods 2>&1 | tail",
        "ls a || ls b",
    ],
)
def test_searches_listings_and_polls_look(command):
    assert seems_to_look(command)


@pytest.mark.parametrize(
    "command",
    [
        "",
        " ; ",
        "mkdir a",
        "ls > list.txt",
        "cat a >> b",
        "find . -name x -delete",
        "find . -exec rm {} +",
        "grep x a | xargs rm",
        "ls $(rm a)",
        "ls `rm a`",
        "ls & rm a",
        "git push",
        "git",
        "gh pr merge 3",
        "kubectl delete pod web",
        "awk 'BEGIN { system(\"rm a\") }'",
        "cat a | sh",
        "ls " * 1_000,
    ],
)
def test_what_may_change_something_does_not(command):
    assert not seems_to_look(command)
