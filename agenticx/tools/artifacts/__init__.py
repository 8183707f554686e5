"""The files of a session, called artifacts: their revisions and paths, previews, edits, and pages in answers."""
