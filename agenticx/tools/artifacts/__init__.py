"""The tools for files of a session, called artifacts, which live with the session and not on the disk."""
