"""TOML files by name, such as those of teams: their folders, and the problems in one as sentences."""
