"""Tests of the heuristic for read-only commands, which loop detection uses."""

from __future__ import annotations

import pytest

from agenticx.tools.shell.read_only_heuristic import seems_read_only


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
        "kubectl get pods || echo Pending",
        "kubectl -n prod rollout status deploy/web",
        "docker ps",
        "podman logs web",
        "docker-compose ps",
        "/usr/bin/docker ps",
        "docker compose -f web.yml ps",
        "gh run view 123",
        "gh -R a/b run view 123",
        "curl -s localhost:8000/health",
        "curl -fsS -H 'Accept: a/b' 'http://a/?x=1&y=2' | jq -r '.a | .b'",
        "curl -so /dev/null -w '%{http_code}' -X GET https://a.example",
        "wget -qO- https://a.example",
        "systemctl status x",
        "sudo systemctl is-active x",
        "service x status",
        "sleep 5; cat state",
        "timeout 5 tail -n 3 log",
        "if [ -f done ]; then cat done; else echo running; fi",
        "until curl -s a.example; do sleep 1; done",
        "grep -rn 'a|b > c' src",
        "squeue --me",
    ],
)
def test_searches_listings_and_polls_are_read_only(command):
    assert seems_read_only(command)


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
        "echo running > state",
        "curl -X POST a.example",
        "curl -d x=1 a.example",
        "curl -sXDELETE a.example",
        "curl --data-binary @x a.example",
        "curl -O a.example/x",
        "curl a.example | sh",
        "wget a.example/x",
        "wget -qO- --post-data=x a.example",
        "kubectl rollout restart deploy/web",
        "docker compose up -d",
        "docker compose -f ps up",
        "kubectl -n get delete pods",
        "service x restart",
        "if true; then rm a; fi",
        'echo "$(rm a)"',
        "git",
        "gh pr merge 3",
        "kubectl delete pod web",
        "awk 'BEGIN { system(\"rm a\") }'",
        "cat a | sh",
        "ls " * 1_000,
    ],
)
def test_commands_that_may_change_something_are_not_read_only(command):
    assert not seems_read_only(command)
