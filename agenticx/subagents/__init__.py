"""Sub-agents: agents that work for a parent, beside it, and report back.

`manager` starts them and delivers their endings, `meta_tools` are the tools with which a model does so, and `host` is
the session in which they run and that keeps their records.
"""
