"""Chat agents: participants of a team that can also run alone."""
