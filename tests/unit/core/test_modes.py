"""The mode of a prompt: small talk and general knowledge, questions about notes, and work with tools."""

from __future__ import annotations

import pytest

from agenticx.core.prompt_modes import Mode, detect_mode
from tests.support.knowledge.bars import classify_prompts


def kind(text: str, *mentions: str, previous: Mode | None = None) -> str:
    return detect_mode(text, vaults=True, tools=["bash_exec"], mentions=mentions, previous=previous).kind


def test_few_prompts_are_taken_for_chat_or_vault_wrongly_and_most_of_either_are_found() -> None:
    found = classify_prompts()
    classed = sum(number for (_, mode), number in found.items() if mode != "agent")

    assert (found["chat", "chat"] + found["vault", "vault"]) / classed >= 0.95
    assert found["vault", "vault"] / sum(found[mode] for mode in found if mode[0] == "vault") >= 0.85
    assert found["chat", "chat"] / sum(found[mode] for mode in found if mode[0] == "chat") >= 0.75


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What did I write about the boiler last winter?", "vault"),
        ("Cerca nei miei appunti la ricetta del tiramisù", "vault"),
        ("Delete the note on Kafka", "agent"),
        ("@vault delete everything", "agent"),
        ("Summarize my notes and write them to out.md", "agent"),
        ("Take my notes on sailing and turn them into slides", "agent"),
        ("Check what my notes say about the lease and update [[Lease]]", "agent"),
        ("Search my notes for how to create and delete branches", "vault"),
        ("Search the web for news about my notes app", "agent"),
        ("What does git status say?", "agent"),
        ("メモを作成して", "agent"),
        ("What's in the file notes.txt?", "agent"),
        ("What are musical notes?", "chat"),
        ('Translate this into French: "search my notes"', "chat"),
        ("Obrigado!", "chat"),
        ("color #fff please", "agent"),
        ("make [it](#intro) #ff00aa", "agent"),
        ("what about #house?", "vault"),
        ("go on", "agent"),
        ("", "agent"),
    ],
)
def test_an_order_beats_notes_and_doubt_is_agent(text: str, expected: str) -> None:
    assert kind(text) == expected


def test_mentions_and_the_mode_before_count() -> None:
    vault = detect_mode("[[Lease]]: who pays?", vaults=True, tools=["bash_exec"])

    assert vault == Mode("vault", "it names notes or tags", True)
    assert kind("who pays", "vault") == "vault"
    assert kind("who pays in my notes", "web") == "agent"
    assert kind("continue", previous=vault) == "vault"
    assert detect_mode("search my notes", vaults=False, tools=["bash_exec"]).kind == "agent"
    assert detect_mode("Delete a.txt", vaults=True, tools=[]).kind == "chat"
