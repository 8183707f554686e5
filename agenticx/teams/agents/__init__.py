"""Chat agents: participants of a team, which can also run alone."""
