"""Teams from files: their configuration, and the runs of such a team as turns of a session."""
