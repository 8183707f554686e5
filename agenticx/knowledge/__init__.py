"""Notes: vaults of Markdown files, search in them, and citations that are compared with the notes.

    from pathlib import Path
    from agenticx.knowledge import Vaults, check_citations

    vaults = Vaults(Path("~/.agenticx").expanduser())
    vault, _ = await vaults.add(Path("Notes"))
    found = await vault.search("when does the lease end?")
    passages = {number: result.passage for number, result in enumerate(found.results, start=1)}

A model is given `passages` by number. `check_citations(reply, passages, read)` compares each `[^n]` of its reply with
the passage and with the present note.

    words           terms of the index, stop words
    dates           dates in texts, in digits and with names of months
    vault           which files are notes, and their text
    parsing         frontmatter, headings, passages, tags and links of a note
    index           the SQLite file of a vault, brought up to date before each search
    search          the ranking
    registry        the vaults below AGX_HOME
    cache_file      SQLite files of a vault that may be damaged, removed or read-only
    embeddings      search by meaning: vectors made in the background, with the person's consent
    vectors         the file of these vectors, and the nearest ones
    vaults          vaults in use on an event loop
    citations       claims, facts, and their comparison
    memory          texts that the user agreed to have remembered in all sessions; shared_memory: for several workers
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agenticx.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from agenticx.knowledge.citations import CheckedCitation, CitationStatus, check_citations
    from agenticx.knowledge.index import IndexState, NoteRecord, VaultIndex
    from agenticx.knowledge.memory import Memory, MemoryEntry, MemoryUnusable, UnknownMemory, UserMemory
    from agenticx.knowledge.parsing import ParsedNote, Passage, parse_note, passage_sha256
    from agenticx.knowledge.registry import (
        EmbeddingConsent,
        InvalidVault,
        UnknownVault,
        VaultRecord,
        VaultRegistry,
        VaultUnreadable,
    )
    from agenticx.knowledge.search import FoundPassage, search_notes
    from agenticx.knowledge.vault import NoteProblem, VaultMissing
    from agenticx.knowledge.vaults import NoteSearch, Vault, Vaults

__all__ = [
    "CheckedCitation",
    "CitationStatus",
    "EmbeddingConsent",
    "FoundPassage",
    "IndexState",
    "InvalidVault",
    "Memory",
    "MemoryEntry",
    "MemoryUnusable",
    "NoteProblem",
    "NoteRecord",
    "NoteSearch",
    "ParsedNote",
    "Passage",
    "UnknownMemory",
    "UnknownVault",
    "UserMemory",
    "Vault",
    "VaultIndex",
    "VaultMissing",
    "VaultRecord",
    "VaultRegistry",
    "VaultUnreadable",
    "Vaults",
    "check_citations",
    "parse_note",
    "passage_sha256",
    "search_notes",
]

__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "agenticx.knowledge.citations": ["CheckedCitation", "CitationStatus", "check_citations"],
        "agenticx.knowledge.index": ["IndexState", "NoteRecord", "VaultIndex"],
        "agenticx.knowledge.memory": ["Memory", "MemoryEntry", "MemoryUnusable", "UnknownMemory", "UserMemory"],
        "agenticx.knowledge.parsing": ["ParsedNote", "Passage", "parse_note", "passage_sha256"],
        "agenticx.knowledge.registry": [
            "EmbeddingConsent",
            "InvalidVault",
            "UnknownVault",
            "VaultRecord",
            "VaultRegistry",
            "VaultUnreadable",
        ],
        "agenticx.knowledge.search": ["FoundPassage", "search_notes"],
        "agenticx.knowledge.vault": ["NoteProblem", "VaultMissing"],
        "agenticx.knowledge.vaults": ["NoteSearch", "Vault", "Vaults"],
    },
)
