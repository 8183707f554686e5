"""The tools for files of a session, called artifacts, which live with the session and not on the disk."""

from agenticx.tools.artifacts.edits import EditedText, EditError, apply_edits
from agenticx.tools.artifacts.extraction import Extracted, extract_html, unwrap_page

__all__ = ["EditError", "EditedText", "Extracted", "apply_edits", "extract_html", "unwrap_page"]
