"""Tests of the decision of each permission mode about each kind of call."""

from __future__ import annotations

import pytest

from agenticx.permissions import Verdict
from agenticx.tools import Assessment
from tests.support.verdicts import decide


@pytest.mark.parametrize(
    ("mode", "read", "write", "execute"),
    [
        ("default", "allow", "ask", "ask"),
        ("accept_edits", "allow", "ask", "ask"),
        ("plan", "allow", "deny", "deny"),
        ("auto", "allow", "allow", "allow"),
    ],
)
def test_a_mode_decides_by_risk(mode, read, write, execute) -> None:
    assert [decide(mode, Assessment(risk=risk)).decision for risk in ("read", "write", "execute")] == [
        read,
        write,
        execute,
    ]


@pytest.mark.parametrize(
    ("decision", "about"),
    [
        ("allow", {"paths": ("src/a.py", "b.txt")}),
        ("ask", {}),
        ("ask", {"paths": ("a.txt", "../b.txt")}),
        ("ask", {"paths": ("/etc/hosts",)}),
        ("ask", {"paths": ("a.md",), "elsewhere": True}),
        ("ask", {"paths": ("a.txt",), "sends": True}),
        ("ask", {"paths": ("a.txt",), "hosts": ("example.com",)}),
        ("ask", {"paths": ("a.txt",), "server": "files"}),
    ],
)
def test_mode_accept_edits_allows_changes_of_files_of_the_workspace_and_no_others(decision, about) -> None:
    verdict = decide("accept_edits", Assessment(risk="write", **about))
    assert (verdict.decision, verdict.decided_by) == (decision, "accept_edits")


@pytest.mark.promise("H3")
@pytest.mark.parametrize("mode", ["default", "accept_edits", "auto"])
@pytest.mark.parametrize("risk", ["read", "write", "execute"])
def test_a_protected_path_is_asked_about_in_every_mode(mode, risk) -> None:
    verdict = decide(mode, Assessment(risk=risk, protected=True, reasons=("It writes .git/config.",)))

    assert (verdict.decision, verdict.decided_by) == ("ask", "protected")
    assert verdict.reasons == (
        "It writes .git/config.",
        "Such a call is asked about in every mode.",
    )


@pytest.mark.promise("H3")
def test_plan_mode_asks_about_a_protected_read_too() -> None:
    assert decide("plan", Assessment(risk="read", protected=True)).decision == "ask"


@pytest.mark.promise("H3")
@pytest.mark.parametrize("mode", ["default", "accept_edits", "auto"])
@pytest.mark.parametrize("risk", ["read", "write", "execute"])
def test_an_unchecked_call_is_asked_about_in_every_mode(mode, risk) -> None:
    verdict = decide(mode, Assessment(risk=risk, unchecked=True, reasons=("It is too long.",)))

    assert (verdict.decision, verdict.decided_by) == ("ask", "unchecked")
    assert verdict.reasons == (
        "It is too long.",
        "A call that cannot be checked completely is asked about in every mode.",
    )


@pytest.mark.parametrize("mode", ["default", "accept_edits", "auto"])
def test_text_for_later_sessions_is_asked_about_in_every_other_mode_and_with_the_sources(mode) -> None:
    verdict = decide(mode, Assessment(risk="write", remembers=True), sources=["a.md"])

    assert verdict == Verdict(
        "ask",
        "remembers",
        (
            "Later sessions will have it, which is asked about in every mode, each time.",
            "The conversation has texts that others wrote (a.md); the call may have been their idea.",
        ),
    )


def test_a_question_names_three_sources_and_one_about_later_sessions_twenty() -> None:
    sources = [f"{number}.md" for number in range(30)]
    reasons = [
        decide("default", Assessment(risk="write", remembers=flag), sources=sources).reasons[-1]
        for flag in (False, True)
    ]

    assert "(0.md, 1.md, 2.md, … and 27 more)" in reasons[0]
    assert f"({', '.join(sources[:20])}, … and 10 more)" in reasons[1]


@pytest.mark.parametrize("reason", ["protected", "unchecked", "discloses", "remembers", "sends", "undeclared"])
def test_plan_mode_denies_a_change_before_any_question_and_says_what_to_do_instead(reason) -> None:
    verdict = decide("plan", Assessment(risk="write", **{reason: True}), sources=["a.md"])

    assert (verdict.decision, verdict.decided_by) == ("deny", "plan")
    assert verdict.reasons == (
        "The session is in plan mode, where only reading is allowed: "
        "describe the change instead; the user can leave plan mode to have it made.",
    )


def test_a_question_without_reasons_gets_the_reason_of_its_risk() -> None:
    assert decide("default", Assessment(risk="execute")).reasons == ("It runs code with the user's full permissions.",)
